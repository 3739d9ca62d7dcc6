"""llama.cpp and ggml by their C interfaces, from the library inside the package xllamacpp.

The package's own interface has neither logits nor ggml's quantizers; the library that it is built around
exports both. C structures that are handed over by value are laid out here by hand, for VERSION alone: in
another version fields may have moved, so it is refused.
"""

import ctypes
import functools
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from akunu_py.gguf import BLOCK_TYPES

VERSION = "2026.10.11549"
CONTEXT = 128
TYPES = {block.name: block for block in BLOCK_TYPES.values()}
FIM = ("pre", "suf", "mid", "pad", "rep", "sep")
_FLOAT32 = 0


class _ModelParameters(ctypes.Structure):
    """`llama_model_params`: the fields set here, and where they lie."""

    _fields_ = (
        ("devices", ctypes.c_void_p * 2),
        ("gpu_layers", ctypes.c_int32),
        ("between", ctypes.c_uint8 * 52),
        ("vocab_only", ctypes.c_bool),
        ("after", ctypes.c_uint8 * 183),
    )


class _ContextParameters(ctypes.Structure):
    """`llama_context_params`, likewise. What a callee does not know of at the end does no harm."""

    _fields_ = (
        ("n_ctx", ctypes.c_uint32),
        ("n_batch", ctypes.c_uint32),
        ("n_ubatch", ctypes.c_uint32),
        ("n_seq_max", ctypes.c_uint32),
        ("between", ctypes.c_uint32 * 3),
        ("n_threads", ctypes.c_int32),
        ("n_threads_batch", ctypes.c_int32),
        ("kinds", ctypes.c_int32 * 4),
        ("flash_attention", ctypes.c_int32),
        ("numbers", ctypes.c_float * 8),
        ("callback", ctypes.c_void_p * 2),
        ("type_k", ctypes.c_int32),
        ("type_v", ctypes.c_int32),
        ("pointers", ctypes.c_void_p * 3),
        ("switches", ctypes.c_bool * 4),
        ("swa_full", ctypes.c_bool),
        ("after", ctypes.c_uint8 * 115),
    )


class _Batch(ctypes.Structure):
    _fields_ = (
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.POINTER(ctypes.c_float)),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    )


class _Traits(ctypes.Structure):
    """The head of ggml's `ggml_type_traits`."""

    _fields_ = (
        ("type_name", ctypes.c_char_p),
        ("block_elements", ctypes.c_int64),
        ("interleave", ctypes.c_int64),
        ("block_bytes", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)),
    )


_POINTER, _TEXT, _INT = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32
_FUNCTIONS = {
    "llama_backend_init": (None,),
    "llama_log_set": (None, _POINTER, _POINTER),
    "llama_model_default_params": (_ModelParameters,),
    "llama_model_load_from_file": (_POINTER, _TEXT, _ModelParameters),
    "llama_model_get_vocab": (_POINTER, _POINTER),
    "llama_model_free": (None, _POINTER),
    "llama_context_default_params": (_ContextParameters,),
    "llama_init_from_model": (_POINTER, _POINTER, _ContextParameters),
    "llama_n_ctx": (ctypes.c_uint32, _POINTER),
    "llama_n_ubatch": (ctypes.c_uint32, _POINTER),
    "llama_n_threads": (_INT, _POINTER),
    "llama_free": (None, _POINTER),
    "llama_get_memory": (_POINTER, _POINTER),
    "llama_memory_clear": (None, _POINTER, ctypes.c_bool),
    "llama_batch_init": (_Batch, _INT, _INT, _INT),
    "llama_batch_free": (None, _Batch),
    "llama_decode": (_INT, _POINTER, _Batch),
    "llama_get_logits_ith": (ctypes.POINTER(ctypes.c_float), _POINTER, _INT),
    "llama_vocab_n_tokens": (_INT, _POINTER),
    "llama_vocab_is_eog": (ctypes.c_bool, _POINTER, _INT),
    "llama_vocab_get_add_bos": (ctypes.c_bool, _POINTER),
    "llama_tokenize": (
        _INT, _POINTER, _TEXT, _INT, ctypes.POINTER(_INT), _INT, ctypes.c_bool, ctypes.c_bool,
    ),
    **{f"llama_vocab_fim_{name}": (_INT, _POINTER) for name in FIM},
    "ggml_get_type_traits": (ctypes.POINTER(_Traits), ctypes.c_int),
    "ggml_quantize_chunk": (
        ctypes.c_size_t, ctypes.c_int, _POINTER, _POINTER, *[ctypes.c_int64] * 3, _POINTER,
    ),
}  # fmt: skip
_LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_log: deque[str] = deque(maxlen=8)
# Kept in a name: llama.cpp calls it as long as the process lives.
_listen = _LOG(lambda _level, text, _: _log.append(text.decode(errors="replace")))


@functools.cache
def library() -> ctypes.CDLL:
    """The library, its functions declared. Raises RuntimeError where it is not the one described here."""
    try:
        installed = version("xllamacpp")
    except PackageNotFoundError:
        installed = "nothing"
    if installed != VERSION:
        raise RuntimeError(
            f"needs xllamacpp {VERSION}, found {installed}: python -m pip install --group references"
        )
    folder = Path(find_spec("xllamacpp").origin).parent
    found = ctypes.CDLL(str(next(folder.glob("xllamacpp.*"))))
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    usual = found.llama_context_default_params()
    seen = (usual.n_ctx, usual.n_batch, usual.n_ubatch, usual.n_seq_max, usual.flash_attention)
    if seen != (512, 2048, 512, 1, -1) or (usual.type_k, usual.type_v) != (1, 1):
        raise RuntimeError(f"llama.cpp's parameters are not laid out as in xllamacpp {VERSION}")
    found.llama_log_set(_listen, None)
    found.llama_backend_init()
    return found


class Model:
    """A GGUF file in llama.cpp, on the CPU; with `vocab_only` its tokenizer alone."""

    def __init__(self, path: Path, *, vocab_only: bool = False) -> None:
        self._library = library()
        options = self._library.llama_model_default_params()
        options.gpu_layers, options.vocab_only = 0, vocab_only
        self._model = self._library.llama_model_load_from_file(str(path).encode(), options)
        if not self._model:
            raise RuntimeError(f"llama.cpp does not load {path.name}: {''.join(_log)}")
        self._vocab = self._library.llama_model_get_vocab(self._model)
        self.size = self._library.llama_vocab_n_tokens(self._vocab)

    def close(self) -> None:
        self._library.llama_model_free(self._model)

    def encode(self, text: str, *, special: bool, begin: bool = False) -> list[int]:
        """Ids of a text; `special` looks for control tokens in it, `begin` adds what the model begins with."""
        data = text.encode()
        room = len(data) * 2 + 16
        ids = (_INT * room)()
        count = self._library.llama_tokenize(
            self._vocab, data, len(data), ids, room, begin, special
        )
        if count < 0:
            raise RuntimeError(f"llama.cpp makes more ids than fit of {text!r}")
        return list(ids[:count])

    def end_ids(self) -> list[int]:
        """Ids that end a reply."""
        return [i for i in range(self.size) if self._library.llama_vocab_is_eog(self._vocab, i)]

    def fim_ids(self) -> list[int]:
        """Ids of FIM's tokens, -1 where there is none."""
        return [getattr(self._library, f"llama_vocab_fim_{name}")(self._vocab) for name in FIM]

    def adds_bos(self) -> bool:
        return self._library.llama_vocab_get_add_bos(self._vocab)

    @contextmanager
    def context(
        self, size: int = CONTEXT, threads: int = 1, *, flash: bool = False
    ) -> Iterator["Context"]:
        """A context of `size` tokens whose KV cache is in float32; `flash` is for attention."""
        made = Context(self._model, self.size, size, threads, flash=flash)
        try:
            yield made
        finally:
            made.close()


class Context:
    """Rows of one text in llama.cpp."""

    def __init__(
        self, model: int, vocabulary: int, size: int, threads: int, *, flash: bool
    ) -> None:
        self._library = library()
        self._vocabulary = vocabulary
        options = self._library.llama_context_default_params()
        options.n_ctx = options.n_batch = options.n_ubatch = size
        options.n_threads = options.n_threads_batch = threads
        options.type_k = options.type_v = _FLOAT32
        options.flash_attention = int(flash)
        options.swa_full = False
        self._context = self._library.llama_init_from_model(model, options)
        if not self._context:
            raise RuntimeError(f"llama.cpp makes no context: {''.join(_log)}")
        self._held = 0
        made = (
            self._library.llama_n_ctx(self._context) >= size,
            self._library.llama_n_ubatch(self._context) == size,
            self._library.llama_n_threads(self._context) == threads,
        )
        if not all(made):
            raise RuntimeError("llama.cpp did not take the parameters of its context")

    def close(self) -> None:
        self._library.llama_free(self._context)

    def clear(self) -> None:
        """Forget all rows."""
        self._library.llama_memory_clear(self._library.llama_get_memory(self._context), True)
        self._held = 0

    def feed(self, ids: Sequence[int]) -> np.ndarray:
        """Feed ids after those before; return the logits after each, float32 [n, vocab]."""
        batch = self._library.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for place, token in enumerate(ids):
            batch.token[place], batch.pos[place] = token, self._held + place
            batch.n_seq_id[place], batch.seq_id[place][0], batch.logits[place] = 1, 0, 1
        failed = self._library.llama_decode(self._context, batch)
        self._library.llama_batch_free(batch)
        if failed:
            raise RuntimeError("llama_decode failed")
        self._held += len(ids)
        rows = []
        for place in range(len(ids)):
            row = self._library.llama_get_logits_ith(self._context, place)
            rows.append(np.ctypeslib.as_array(row, (self._vocabulary,)).copy())
        return np.stack(rows)

    def greedy(self, row: np.ndarray, count: int, never: Sequence[int] = ()) -> np.ndarray:
        """Logits [count, vocab] that tokens are chosen by, from `row` on: the likeliest but those of `never`."""
        rows = [row]
        while len(rows) < count:
            allowed = rows[-1].copy()
            allowed[list(never)] = -np.inf
            rows.append(self.feed([int(allowed.argmax())])[-1])
        return np.stack(rows)


def quantize(kind: str, weights: np.ndarray, importance: np.ndarray | None = None) -> np.ndarray:
    """Blocks uint8 [rows, row_bytes] of the type `kind` that ggml makes of float32 weights [rows, cols].

    `importance` float32 [cols] says what each column weighs; all the same where it is left out.
    """
    traits = _traits(kind)
    rows, cols = weights.shape
    weights = np.ascontiguousarray(weights, np.float32)
    importance = np.ones(cols, np.float32) if importance is None else importance
    raw = np.zeros((rows, cols // traits.block_elements * traits.block_bytes), np.uint8)
    pointers = weights.ctypes.data, raw.ctypes.data
    written = library().ggml_quantize_chunk(
        TYPES[kind].id, *pointers, 0, rows, cols, importance.ctypes.data
    )
    if written != raw.nbytes:
        raise RuntimeError(f"ggml wrote {written} bytes, not {raw.nbytes}")
    return raw


def dequantize(kind: str, raw: np.ndarray) -> np.ndarray:
    """The weights float32 [rows, cols] that ggml reads in blocks uint8 [rows, row_bytes] of `kind`."""
    traits = _traits(kind)
    cols = raw.shape[1] // traits.block_bytes * traits.block_elements
    weights = np.zeros((len(raw), cols), np.float32)
    raw = np.ascontiguousarray(raw)
    traits.to_float(raw.ctypes.data, weights.ctypes.data, weights.size)
    return weights


def _traits(kind: str) -> _Traits:
    block = TYPES[kind]
    traits = library().ggml_get_type_traits(block.id).contents
    theirs = traits.type_name.decode().upper(), traits.block_elements, traits.block_bytes
    if theirs != (kind, block.block_elements, block.block_bytes):
        raise RuntimeError(f"{kind} is {theirs} in this ggml")
    return traits
