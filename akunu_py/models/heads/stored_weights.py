"""Tensors of a head in safetensors files, checked and put into the head."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten, tree_map_with_path

from akunu_py.models.expansion import expand
from akunu_py.models.heads.head_config import HeadConfig
from akunu_py.models.library_errors import from_library
from akunu_py.models.load_steps import finish
from akunu_py.models.weight_files import check_weight_file, read_header
from akunu_py.system.errors import ConfigError, ModelFormatError

_WHOLE = ("U32", "I32", "I64")

OFFSETS = "d2t"
"""Name of the tensor that limits what a head guesses; see `head`."""


class TensorPlace(NamedTuple):
    """Where a tensor of a head is: the file, and the tensor's name there."""

    path: Path
    name: str


class StoredHead:
    """A head in safetensors files, before it is made: where its tensors are, by paths in the head.

    Methods raise ModelFormatError, naming file and tensor, for a damaged file.
    """

    def __init__(self, source: Path, tensors: Mapping[str, TensorPlace]) -> None:
        """Take note of tensors found in a file or folder, `source`."""
        self.source = source
        self.tensors = dict(tensors)

    @classmethod
    def of(
        cls,
        source: Path,
        rename: Callable[[str], str | None],
        files: str = "model*.safetensors",
    ) -> "StoredHead":
        """Return the head in a file, or in the `files` of a folder.

        Tensors without a name in the head are left out. So are frequencies, which follow from a
        head's arguments.
        """
        paths = [source] if source.is_file() else sorted(source.glob(files))
        stored = (TensorPlace(path, name) for path in paths for name in check_weight_file(path))
        used = (tensor for tensor in stored if not tensor.name.endswith("rotary_emb.inv_freq"))
        return cls(source, {own: tensor for tensor in used if (own := rename(tensor.name))})

    @property
    def place(self) -> Path:
        """Return the file of the tensors, or the folder of their files."""
        paths = {tensor.path for tensor in self.tensors.values()}
        first = next(iter(paths), self.source)
        return first if len(paths) < 2 else first.parent

    @property
    def is_quantized(self) -> bool:
        """Return whether any of its weights are codes with scales."""
        return any(name.endswith(".scales") for name in self.tensors)

    @property
    def num_guessed(self) -> int | None:
        """Return how many tokens of the target it guesses; None for all (`head`)."""
        return math.prod(self.shape(OFFSETS)) if OFFSETS in self.tensors else None

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        path, own_name = self.tensors[name]
        return tuple(check_weight_file(path)[own_name])

    def config(self, path: Path, kind: str) -> HeadConfig:
        """Return the config of a head of a kind, as in "an EAGLE-3", whose file is `path`."""
        return HeadConfig.next_to(path, kind)

    def read(self) -> dict[str, mx.array]:
        """Return the tensors; infinite numbers and NaN are damage."""
        files: dict[Path, Any] = {
            path: mx.load(str(path)) for path in {t.path for t in self.tensors.values()}
        }
        arrays = {name: files[path][own_name] for name, (path, own_name) in self.tensors.items()}
        for name, array in arrays.items():
            if _is_float(array) and not mx.isfinite(array).all().item():
                path, own_name = self.tensors[name]
                raise ModelFormatError(
                    f"tensor {own_name!r} in {path} has infinite numbers or NaN; the file is "
                    "damaged: download it again"
                )
        return arrays

    def num_bytes(self, number_bytes: int) -> int:
        """Return its bytes in memory: codes as they are, numbers of `number_bytes` each."""
        total = 0
        for path in {tensor.path for tensor in self.tensors.values()}:
            shapes = check_weight_file(path)
            header, _ = read_header(path)
            for name in (tensor.name for tensor in self.tensors.values() if tensor.path == path):
                # Codes are packed into whole numbers of 32 bits, and ids become such numbers.
                size = 4 if header[name]["dtype"] in _WHOLE else number_bytes
                total += math.prod(shapes[name]) * size
        return total


def fill_head(
    head: nn.Module,
    arrays: Mapping[str, mx.array],
    place: Path,
    kind: mx.Dtype,
    *,
    dense: bool,
    is_cast: Callable[[str], bool] | None = None,
) -> None:
    """Put stored arrays, by their paths in the head, in place of its parameters.

    Quantized weights keep their form, unless they are to be `dense`, in float32; all others, and
    scales, become `kind` where `is_cast` allows it.

    Raises ModelFormatError, naming `place` and tensor, for a head that is incomplete, damaged or of
    another model, ConfigError for numbers that `kind` cannot hold.
    """
    if any(path.endswith(".scales") for path in arrays):
        _quantize(place, head, arrays)
    _check_tensors(place, head, arrays)
    head.load_weights(list(arrays.items()))
    if dense:
        finish(expand(head))
    _set_type(place, head, kind, is_cast)
    head.eval()


def _quantize(place: Path, head: nn.Module, arrays: Mapping[str, mx.array]) -> None:
    """Give a head's layers the forms of their stored weights."""
    from akunu_py.models.whole_mlx_lm import infer_quant_config  # transformers

    with from_library(place, "prediction head"):
        nn.quantize(
            head,
            class_predicate=lambda path, layer: (
                f"{path}.scales" in arrays
                and hasattr(layer, "to_quantized")
                and infer_quant_config(path, layer, arrays)
            ),
        )


def _check_tensors(place: Path, head: nn.Module, arrays: Mapping[str, mx.array]) -> None:
    """Raise ModelFormatError where the stored tensors cannot be the head's parameters."""
    wanted = dict(tree_flatten(head.parameters()))
    for found, problem in (
        (wanted.keys() - arrays.keys(), "lacks the tensors of"),
        (arrays.keys() - wanted.keys(), "has tensors that the heads of this model do not have:"),
    ):
        if found:
            names = sorted(path.removeprefix("body.") for path in found)
            shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            raise ModelFormatError(
                f"the prediction head in {place} {problem} {shown}; it is incomplete, or made for "
                "another model: download it again, or use the head of this model"
            )
    for path, parameter in wanted.items():
        array, name = arrays[path], path.removeprefix("body.")
        if array.shape != parameter.shape:
            raise ModelFormatError(
                f"the prediction head in {place} has {name} in the shape {array.shape} where this "
                f"model asks for {parameter.shape}; use the head of this model"
            )
        if array.dtype != parameter.dtype and not (_is_float(array) and _is_float(parameter)):
            raise ModelFormatError(
                f"the prediction head in {place} has {name} in the type {array.dtype}, which a "
                "head cannot have there; download it again"
            )


def _is_float(array: mx.array) -> bool:
    return bool(mx.issubdtype(array.dtype, mx.floating))


def _set_type(
    place: Path, head: nn.Module, kind: mx.Dtype, is_cast: Callable[[str], bool] | None
) -> None:
    """Convert a head's floating-point parameters, except those that the model's class keeps."""

    def convert(path: str, array: mx.array) -> mx.array:
        if not _is_float(array) or (is_cast and not is_cast(path)):
            return array
        converted = array.astype(kind)
        if kind == mx.float16 and not mx.isfinite(converted).all().item():
            raise ConfigError(
                f"the prediction head in {place} has numbers in {path.removeprefix('body.')} that "
                "float16 cannot hold; choose another compute type for the model"
            )
        mx.eval(converted)
        return converted

    head.update(tree_map_with_path(convert, head.parameters()))
    mx.eval(head.parameters())


def read_ids(
    offsets: mx.array, tensor: TensorPlace, vocabulary: int, *, absolute: bool = False
) -> mx.array:
    """Return the target's ids of a draft vocabulary, int32 [n], from its tensor `d2t`.

    It has their distances from 0, 1, 2, ..., or the ids themselves (`absolute`).

    Raises ModelFormatError, naming file and tensor, unless these are different ids below
    `vocabulary` in ascending order.
    """
    known = mx.issubdtype(offsets.dtype, mx.integer) and offsets.ndim == 1 and offsets.size > 0
    numbers = np.array(offsets) if known else np.array([-1])
    if absolute:
        numbers = numbers - np.arange(len(numbers))
    # Ids ascend where no offset is below the one before it.
    known = known and numbers[0] >= 0 and bool((numbers[1:] >= numbers[:-1]).all())
    if not known or int(numbers[-1]) + len(numbers) > vocabulary:
        raise ModelFormatError(
            f"tensor {tensor.name!r} in {tensor.path} does not name different tokens of the "
            f"{vocabulary} of this model in ascending order; the file is damaged, or made for "
            "another model: download it again, or use the head of this model"
        )
    return mx.array((numbers + np.arange(len(numbers))).astype(np.int32))
