"""MLX model folders through mlx-lm, and its tokenizers behind akunu's protocol."""

import contextlib
import io
import json
import logging
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.tokenizer_utils import TokenizerWrapper
from mlx_lm.utils import dequantize_model
from mlx_lm.utils import load_model as mlx_load_model
from mlx_lm.utils import load_tokenizer as mlx_load_tokenizer

from akunu_py.errors import ConfigError, ModelFormatError, UnsupportedArchitectureError
from akunu_py.tokenizers.chat_template import check_messages
from akunu_py.tokenizers.gguf_tokenizer import partition
from akunu_py.tokenizers.special_text import SpecialTextGuard
from akunu_py.types import Detokenizer, Message

_log = logging.getLogger(__name__)

DEFAULT_CONTEXT = 4096
"""For a config that does not say what the model was trained for."""

_MAX_CONFIG_BYTES = 16 * 2**20


def read_folder_config(folder: Path) -> dict[str, Any]:
    """Return a folder's config.json.

    Raises ModelFormatError for a missing or malformed one, or one that asks to run code.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise ModelFormatError(
            f"{folder} has no config.json: it is no MLX model folder; give a GGUF file or a folder "
            "with config.json, *.safetensors and tokenizer files"
        )
    if path.stat().st_size > _MAX_CONFIG_BYTES:
        raise ModelFormatError(f"{path} is larger than any model's config; download it again")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"{path} is not JSON ({error}); download it again") from None
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise ModelFormatError(f"{path} names no model_type; download the model again")
    if "model_file" in config:
        raise ConfigError(
            f"{path} asks to run the Python file {config['model_file']!r}; akunu runs no code from "
            "model folders: use a model of a known architecture"
        )
    return config


def folder_context(config: dict[str, Any]) -> int:
    """Return the context the model was trained for, or DEFAULT_CONTEXT where it does not say."""
    text = config.get("text_config")
    for place in (config, text if isinstance(text, dict) else {}):
        value = place.get("max_position_embeddings")
        if isinstance(value, int) and not isinstance(value, bool) and 2 <= value < 2**40:
            return value
    return DEFAULT_CONTEXT


def folder_name(folder: Path) -> str:
    """Return what the model of a folder is called: of a snapshot in a hub's cache, its repository.

    There the folder itself is called by a hash: models--OWNER--REPO/snapshots/HASH.
    """
    place = folder.resolve()
    repository = place.parent.parent.name
    if place.parent.name == "snapshots" and repository.startswith("models--"):
        return repository.rpartition("--")[2] or place.name
    return place.name


def load_folder_model(
    folder: Path, config: dict[str, Any], *, dense: bool
) -> tuple[nn.Module, dict[str, Any]]:
    """Load the model of a folder; with `dense`, expand what is quantized.

    Returns it with its whole config, generation_config.json included.

    Raises UnsupportedArchitectureError for an unknown model_type, ModelFormatError for weights
    that are missing or do not fit.
    """
    check_weight_files(folder)
    with quiet():
        try:
            model, whole_config = mlx_load_model(folder)
        except (ValueError, KeyError, TypeError, OSError, RuntimeError) as error:
            message = str(error)
            if "not supported" in message and config["model_type"] in message:
                raise UnsupportedArchitectureError(
                    f"the model in {folder} is of the type {config['model_type']!r}, which the "
                    "installed mlx-lm does not know; update mlx-lm or use another model"
                ) from None
            raise ModelFormatError(
                f"the model in {folder} cannot be loaded: {message}; download it again"
            ) from error
    loaded: nn.Module = model
    if dense:
        loaded = dequantize_model(loaded)
        if mx.default_device() == mx.Device(mx.cpu):
            # The CPU backend is many times slower in 16 bits than in 32.
            loaded.set_dtype(mx.float32)
        mx.eval(loaded.parameters())
        mx.clear_cache()
    return loaded, whole_config


def check_weight_files(folder: Path) -> None:
    """Refuse weight files whose header does not fit the file, before MLX maps them.

    Raises ModelFormatError naming the file.
    """
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise ModelFormatError(f"{folder} has no model*.safetensors; download the model again")
    for path in files:
        size = path.stat().st_size
        with path.open("rb") as stream:
            head = stream.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else size
            if length > size - 8:
                raise ModelFormatError(
                    f"{path} is truncated or no safetensors file; download it again"
                )
            try:
                tensors = json.loads(stream.read(length))
                end = max(
                    (t["data_offsets"][1] for n, t in tensors.items() if n != "__metadata__"),
                    default=0,
                )
                complete = 8 + length + end <= size
            except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
                complete = False
            if not complete:
                raise ModelFormatError(f"{path} is truncated or damaged; download it again")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what libraries print while they load away from the user's output; log it instead."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        yield
    if text := printed.getvalue().strip():
        _log.info("%s", text)


class FolderTokenizer:
    """An mlx-lm tokenizer as `akunu_py.types.Tokenizer`."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        with quiet():
            try:
                # Left open, transformers would ask on the terminal to run the folder's code.
                self._wrapper: TokenizerWrapper = mlx_load_tokenizer(
                    folder, {"trust_remote_code": False}, eos_token_ids=config.get("eos_token_id")
                )
            except (ValueError, KeyError, TypeError, OSError, RuntimeError) as error:
                raise ModelFormatError(
                    f"the tokenizer in {folder} cannot be loaded: {error}; download it again"
                ) from error
        texts = sorted(map(str, self._wrapper.all_special_tokens), key=len, reverse=True)
        self._special = [(text, self._wrapper.convert_tokens_to_ids(text)) for text in texts]
        self._guard = SpecialTextGuard(texts)

    @property
    def vocabulary_size(self) -> int:
        """Return the number of ids, added tokens included."""
        return len(self._wrapper)

    @property
    def end_ids(self) -> frozenset[int]:
        """Return the ids that end a reply."""
        return frozenset(self._wrapper.eos_token_ids)

    @property
    def has_chat_template(self) -> bool:
        """Return whether the folder has a chat template."""
        return bool(self._wrapper.has_chat_template)

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        """Return the ids of a text, special tokens added as the tokenizer's config has them."""
        return list(self._wrapper.encode(text, split_special_tokens=not parse_special))

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of a conversation, laid out by the folder's template.

        Control tokens written out in a message are text, never control tokens.
        """
        if not self.has_chat_template:
            raise ConfigError("this model has no chat template; use generate with a raw prompt")
        check_messages(messages)
        hidden = self._guard.hide(messages, str(self._wrapper.chat_template))
        try:
            text: str = self._wrapper.apply_chat_template(
                [dict(message) for message in hidden.messages],
                tokenize=False,
                add_generation_prompt=True,
            )
        except Exception as error:  # a template may raise anything
            raise ModelFormatError(f"the chat template fails: {error}") from error
        if hidden.reveal(text) == text:
            return list(self._wrapper.encode(text, add_special_tokens=False))
        # Only here in pieces: some tokenizers put a space before each piece they are given.
        ids: list[int] = []
        for part in partition(text, self._special):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self._wrapper.encode(
                    hidden.reveal(part), add_special_tokens=False, split_special_tokens=True
                )
        return ids

    def decode(self, token_ids: Iterable[int], *, with_control: bool = False) -> str:
        """Return the text of ids, control tokens left out.

        With `with_control` they are written out, but for the begin token that `encode` puts in
        front.
        """
        ids = list(token_ids)
        if with_control and ids[:1] == [self._wrapper.bos_token_id] == self.encode("")[:1]:
            del ids[0]
        return str(self._wrapper.decode(ids, skip_special_tokens=not with_control))

    def token_texts(self) -> Sequence[str]:
        """Return the text of each id, as the vocabulary writes it."""
        ids: dict[str, int] = self._wrapper.get_vocab()
        texts = [""] * (max(ids.values(), default=-1) + 1)
        for text, token in ids.items():
            texts[token] = text
        return texts

    def detokenizer(self, *, continues: bool = False) -> Detokenizer:  # noqa: ARG002
        """Return a fresh incremental detokenizer; mlx-lm's decide about a space by themselves."""
        return _FolderDetokenizer(self._wrapper)


class _FolderDetokenizer:
    """mlx-lm's streaming detokenizer; each property access there makes a fresh one."""

    def __init__(self, wrapper: TokenizerWrapper) -> None:
        self._inner = wrapper.detokenizer
        self._inner.reset()
        self._skipped = frozenset(wrapper.all_special_ids)

    def feed(self, token_ids: Iterable[int]) -> str:
        for token in token_ids:
            if token not in self._skipped:
                self._inner.add_token(token)
        return str(self._inner.last_segment)

    def finish(self) -> str:
        self._inner.finalize()
        return str(self._inner.last_segment)
