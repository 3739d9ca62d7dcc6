"""A head that was found at a place: what it needs, and how its weights are read."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten

from akunu_py.gguf.architectures import find_reader
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.quants.forms import DENSE
from akunu_py.gguf.reader import GGUFFile, TensorInfo
from akunu_py.models.cache import CacheNeeds, cache_needs, cached_bytes, drop_numbers
from akunu_py.models.expansion import num_parameters
from akunu_py.models.gguf_model import fill_model, set_rotary
from akunu_py.models.heads.assistant import Assistant
from akunu_py.models.heads.families import decoder_of, drop_copies, set_draft_vocabulary
from akunu_py.models.heads.kinds import KINDS, Head, HeadKind
from akunu_py.models.heads.stored_weights import (
    OFFSETS,
    StoredHead,
    TensorPlace,
    fill_head,
    read_ids,
)
from akunu_py.models.library_errors import explain_errors, from_library
from akunu_py.models.load_steps import finish
from akunu_py.models.rollback.caches import leaves
from akunu_py.models.sources.source import place_kind
from akunu_py.models.weights import Float16OverflowError, WeightReader, bytes_in_forms, forms_of
from akunu_py.system.errors import ConfigError, ModelFormatError, UnsupportedArchitectureError

_GROUP, _BITS = 64, 8
"""Of a head's weights that are stored dense, beside a quantized model."""

_PICKLES = (".bin", ".pt", ".pth")


@dataclass(frozen=True, slots=True)
class GGUFHead:
    """A head in an open GGUF file, before its weights are read, and where they come from."""

    kind: HeadKind
    target: nn.Module
    file: GGUFFile
    head: Head
    plan: ModelPlan

    def make(self) -> Head:
        """Return the head without weights."""
        return self.head

    def size(self, number_bytes: int, *, dense: bool) -> int:
        """Return the bytes of its weights in memory.

        A number of its target has `number_bytes`, and the weights are `dense` or not.
        """
        tensors = self._tensors()
        if dense or self._is_quantized():
            forms = forms_of(tensors, number_bytes, dense=dense)
            size = bytes_in_forms(tensors, forms, number_bytes)
        else:
            _quantize(self.head)
            size = _bytes_of(self.head, number_bytes)
        if (ids := self.file.tensors.get(OFFSETS)) is not None:
            size += 4 * ids.shape[-1]
            size += _bytes_taken(self.head, self.target, ids.shape[-1], number_bytes)
        return size

    def _tensors(self) -> list[TensorInfo]:
        """Return the tensors of its weights."""
        used = {name for placement in self.plan.placements for name in placement.tensors}
        return [self.file.tensors[name] for name in used]

    def _is_quantized(self) -> bool:
        return any(tensor.type.name not in DENSE for tensor in self._tensors())

    def load(self, *, dense: bool) -> Head:
        """Return the head with its weights, which are `dense` as the target's or not."""
        head, target, ids = self.head, self.target, self._ids()
        reader = WeightReader(self.file, _number_of(target), dense)
        set_rotary(head, self.plan, reader, None)
        finish(fill_model(head, self.plan, reader))
        quantizes = not (dense or self._is_quantized())
        _join(head, target, ids, shares=self.kind.shares, quantizes=quantizes)
        return head

    def _ids(self) -> mx.array | None:
        """Return the tokens that the head guesses; None for all."""
        tensor = self.file.tensors.get(OFFSETS)
        if tensor is None:
            return None
        numbers = np.empty(0, np.int64)
        if tensor.type.name == "I64":
            numbers = self.file.tensor_bytes(OFFSETS).reshape(-1).view(np.int64)
        place = TensorPlace(self.file.path, OFFSETS)
        return read_ids(mx.array(numbers), place, _vocabulary_of(self.target), absolute=True)


@dataclass(frozen=True, slots=True)
class SafetensorsHead:
    """A head in safetensors files, before its weights are read; methods as those of `GGUFHead`.

    `architecture` names the target in messages.
    """

    kind: HeadKind
    target: nn.Module
    stored: StoredHead
    architecture: str

    def make(self) -> Head:
        return self.kind.make(self.stored, self.target, self.architecture)

    def size(self, number_bytes: int, *, dense: bool) -> int:
        head, guessed = self.make(), self.stored.num_guessed
        taken, quantizes = 0, not (dense or self.stored.is_quantized)
        if quantizes:
            _quantize(head)
        if guessed is not None:
            taken = _bytes_taken(head, self.target, guessed, number_bytes)
        if _is_expanded(dense, number_bytes):
            return number_bytes * num_parameters(head)
        if quantizes:
            return _bytes_of(head, number_bytes)
        return self.stored.num_bytes(number_bytes) + taken

    def load(self, *, dense: bool) -> Head:
        stored, target, head, ids = self.stored, self.target, self.make(), None
        number = _number_of(target)
        with from_library(stored.place, "prediction head"):
            arrays = stored.read()
        offsets = arrays.pop(OFFSETS, None)
        if offsets is not None:
            ids = read_ids(offsets, stored.tensors[OFFSETS], _vocabulary_of(target))
        fill_head(
            head,
            self.kind.arrange(stored, arrays, target),
            stored.place,
            number,
            dense=_is_expanded(dense, number.size),
            is_cast=getattr(target, "cast_predicate", None),
        )
        quantizes = not (dense or stored.is_quantized)
        _join(head, target, ids, shares=self.kind.shares, quantizes=quantizes)
        return head


FoundHead = GGUFHead | SafetensorsHead


@contextlib.contextmanager
def find_head(place: Path, target: nn.Module, architecture: str) -> Iterator[FoundHead | None]:
    """Return the head at a place for a target, which `architecture` names; None without one.

    The place is open meanwhile. Raises what the kinds of heads raise for damaged files.
    """
    form = format_of(place)
    _refuse_pickles(place)
    if form == "gguf":
        with GGUFFile.open(place) as file, _of_gguf_head(file):
            planned = ((kind, kind.plan(file, target, architecture)) for kind in KINDS)
            found = next(
                (GGUFHead(kind, target, file, *found) for kind, found in planned if found), None
            )
            if found is None:
                _check_known(file)
            yield found
    elif form == "stored":
        stored = ((kind, kind.find(place, target)) for kind in KINDS)
        yield next(
            (SafetensorsHead(kind, target, one, architecture) for kind, one in stored if one), None
        )
    else:
        yield None


def format_of(place: Path) -> Literal["gguf", "stored"] | None:
    """Return the format in which a file or folder may have a head, None where it has none."""
    kind = place_kind(place)
    if kind == "converted" or not place.exists():
        # A converted folder was made from a GGUF file, without the head.
        return None
    return "stored" if kind == "mlx" or place.suffix == ".safetensors" else "gguf"


def _refuse_pickles(place: Path) -> None:
    """Raise ModelFormatError for a head whose weights are pickled."""
    files = place.iterdir() if place.is_dir() else [place]
    pickles = sorted(file.name for file in files if file.suffix in _PICKLES)
    if pickles and not (place.is_dir() and any(place.glob("*.safetensors"))):
        how = (
            "load it with torch and write it with safetensors.torch.save_file, as "
            "medusa_lm_head.safetensors"
            if pickles[0].startswith("medusa")
            else "convert its folder with llama.cpp: convert_hf_to_gguf.py FOLDER "
            "--target-model-dir FOLDER_OF_THE_MODEL, and give the GGUF file"
        )
        raise ModelFormatError(
            f"{place} has weights in {pickles[0]}, a pickle, which can run code, so akunu reads "
            f"none; {how}"
        )


def _check_known(file: GGUFFile) -> None:
    """Raise UnsupportedArchitectureError for a file that has neither a head nor a known model."""
    own = str(file.metadata.get("general.architecture"))
    if find_reader(own) is None:
        raise UnsupportedArchitectureError(
            f"{file.path} is of the architecture {own[:80]!r}, of which akunu reads no heads; if "
            "it is one, convert its folder with llama.cpp's convert_hf_to_gguf.py, or give the "
            "folder"
        )


@contextlib.contextmanager
def _of_gguf_head(file: GGUFFile) -> Iterator[None]:
    """Name the file's head in errors of planning and filling it."""
    try:
        yield
    except Float16OverflowError as error:
        raise ConfigError(
            f"the prediction head in {file.path} has numbers in {error} that float16 cannot hold; "
            "choose another compute type for the model"
        ) from None
    except ModelFormatError as error:
        if str(file.path) in error.message:
            raise
        raise type(error)(
            f"the prediction head in {file.path} cannot be loaded: {error.message}"
        ) from None


def _join(
    head: Head, target: nn.Module, ids: mx.array | None, *, shares: bool, quantizes: bool
) -> None:
    """Let a head use its target's layers, and guess the tokens `ids` alone; None for all."""
    if shares:
        drop_copies(head, target)
    if quantizes:
        _quantize(head)
    if ids is not None:
        set_draft_vocabulary(head, target, ids)
    mx.eval(head.parameters())


def _quantize(head: Head) -> None:
    """Quantize a head's dense matrices, except those whose rows do not divide into groups.

    A guess takes the time of reading them, and it need not be exact.
    """
    nn.quantize(
        head,
        _GROUP,
        _BITS,
        class_predicate=lambda _, layer: (
            hasattr(layer, "to_quantized") and layer.weight.shape[-1] % _GROUP == 0
        ),
    )


def _vocabulary_of(target: nn.Module) -> int:
    size: int = decoder_of(target)[1].embed_tokens.weight.shape[0]
    return size


def _number_of(target: nn.Module) -> mx.Dtype:
    """Return the type of a target's activations."""
    _, decoder = decoder_of(target)
    # Nothing is computed: only the type is asked for.
    kind: mx.Dtype = decoder.embed_tokens(mx.zeros((1, 1), dtype=mx.int32)).dtype
    return kind


def _is_expanded(dense: bool, number_bytes: int) -> bool:
    """Return whether stored codes are expanded; on a GPU quantized weights are the fast ones."""
    return dense and number_bytes == 4


def _bytes_taken(head: Head, target: nn.Module, guessed: int, number_bytes: int) -> int:
    """Let a head without weights guess some tokens; return the bytes of the target's rows."""
    takes = "lm_head" not in head
    set_draft_vocabulary(head, target, mx.zeros((guessed,), dtype=mx.int32))
    return _bytes_of(head.lm_head.rows, number_bytes) if takes else 0


def _bytes_of(layer: nn.Module, number_bytes: int) -> int:
    """Return the bytes of a layer whose codes keep their type; a number has `number_bytes`."""
    arrays = [array for _, array in tree_flatten(layer.parameters())]
    return sum(
        array.size * (number_bytes if mx.issubdtype(array.dtype, mx.floating) else array.itemsize)
        for array in arrays
    )


@dataclass(frozen=True, slots=True)
class HeadNeeds:
    """What a prediction head needs beside its target."""

    weights_bytes: int
    """Size of its weights in memory. Copies of the target's embedding and output head count, since
    only their numbers show that they are copies. Rows that a head takes of the output head of a
    GGUF file count as dense."""

    caches: tuple[CacheNeeds, ...]
    """One entry for each cache that holds rows; an assistant has none."""

    number_bytes: int
    """Size of a number in them; they are never quantized."""

    def cache_bytes(self, tokens: int) -> int:
        """Return the bytes of its caches for a text of `tokens` tokens."""
        return cached_bytes(self.caches, tokens, self.number_bytes)


def head_needs(
    target: nn.Module,
    architecture: str,
    place: Path,
    number_bytes: int,
    *,
    dense: bool,
) -> HeadNeeds | None:
    """Return the needs of the head at a place; None where there is none, which loading explains.

    `place` may be the target's own file or folder. The target, whose weights are not read, computes
    in numbers of `number_bytes`; whether they are `dense` holds for the head as well. Raises as
    `load_head` does, except for damaged weights.
    """
    with explain_errors(place), find_head(place, target, architecture) as found:
        if found is None:
            return None
        size = found.size(number_bytes, dense=dense)
        return HeadNeeds(size, _caches_of(found.make()), number_bytes)


def _caches_of(head: Head) -> tuple[CacheNeeds, ...]:
    """Return the sizes of a head's caches after one pair, of which nothing is computed."""
    if isinstance(head, Assistant):
        return ()
    drop_numbers(head)
    caches = head.make_cache()
    head(mx.zeros((1, 1, head.width)), mx.zeros((1, 1), dtype=mx.int32), caches)
    return tuple(cache_needs(leaf) for leaf in leaves(caches))
