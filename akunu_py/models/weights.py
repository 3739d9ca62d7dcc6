"""Tensors of a GGUF file to arrays and layers of a model, and what they take of the memory."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.mla import MultiLinear, QuantizedMultiLinear
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear
from numpy.typing import NDArray

from akunu_py.gguf.plan import Placement
from akunu_py.gguf.quants.forms import DENSE, WeightForm, form_of
from akunu_py.gguf.quants.matrix import QuantizedMatrix, dequantize, relayout
from akunu_py.gguf.quants.scratch import ReusedMemory
from akunu_py.gguf.reader import GGUFFile, TensorInfo
from akunu_py.models.layers import (
    FloatEmbedding,
    PlanesEmbedding,
    PlanesLinear,
    PlanesMultiLinear,
    PlanesSwitchLinear,
    Scaled,
    ScaledLinear,
    ScaledSwitchLinear,
    StackedLinear,
)
from akunu_py.system.errors import ModelFormatError
from akunu_py.values.load_options import Q6KForm


def forms_of(
    tensors: Iterable[TensorInfo],
    number_bytes: int,
    *,
    dense: bool,
    q6k: Q6KForm = "planes",
) -> list[WeightForm]:
    """Return the form of each tensor in memory; `dense` and `q6k` as in `WeightReader`."""
    if dense:
        return [WeightForm(8 * number_bytes, 0, "dense") for _ in tensors]
    return [form_of(info.type.name, q6k) for info in tensors]


def bytes_in_forms(
    tensors: Sequence[TensorInfo], forms: Sequence[WeightForm], number_bytes: int
) -> int:
    """Return the bytes of tensors in these forms; a dense number has `number_bytes`."""
    bits = sum(
        info.rows * info.cols * _bits_per_weight(form, number_bytes)
        for info, form in zip(tensors, forms, strict=True)
    )
    return round(bits / 8)


def _bits_per_weight(form: WeightForm, number_bytes: int) -> float:
    """Return the bits of a weight in a model whose dense numbers have `number_bytes`."""
    if form.mode == "dense":
        return 8.0 * number_bytes
    # The rest are scales and biases: 16 bits in a form, as wide as dense numbers here.
    codes = form.bits * form.codes_per_weight
    wider = number_bytes / 2 if form.mode == "affine" else 1
    return codes + (form.bits_per_weight - codes) * wider


_FLOAT16_LIMIT = 65520.0
"""The smallest number that rounds to infinity in float16; comparisons are written to catch NaN."""

_SMALL = 1 << 20

MATRIX_LAYERS = (nn.Linear, nn.Embedding, SwitchLinear, MultiLinear)
"""The layers whose weight can stay quantized."""


class Float16OverflowError(Exception):
    """Scales, weights or activations of the model do not fit float16."""


@dataclass(frozen=True, slots=True)
class WeightReader:
    """Reads the tensors of placements, in the form the model will have."""

    file: GGUFFile
    kind: mx.Dtype
    """The type of dense weights and scales, and so of activations."""

    dense: bool = False
    q6k: Q6KForm = "planes"
    """The form of Q6_K tensors."""

    memory: ReusedMemory = field(default_factory=ReusedMemory, repr=False)
    """Buffer for results before MLX copies them."""

    def vector(self, name: str) -> NDArray[np.float32]:
        """Return a small tensor's numbers, flat."""
        return dequantize(self.file.tensors[name], self.file.tensor_bytes(name)).reshape(-1)

    def array(self, placement: Placement, shape: tuple[int, ...]) -> mx.array:
        """Return a dense parameter of that shape.

        Raises ModelFormatError, naming the tensors, where their shapes do not fit.
        """
        values = self._numbers(placement, shape)
        if placement.convert is not None:
            try:
                with np.errstate(all="ignore"):  # reported below
                    values = np.ascontiguousarray(placement.convert(values), np.float32)
            except ValueError as error:
                # The tensor cannot be reshaped.
                raise wrong_shape(placement, values.shape, shape) from error
        if values.shape != shape:
            raise wrong_shape(placement, values.shape, shape)
        # Only norms, biases and the like: matrices would have to be read a second time.
        if values.size <= _SMALL and not np.isfinite(values).all():
            raise ModelFormatError(
                f"tensor {placement.tensors[0]!r} makes {placement.path} infinite or NaN; the file "
                "is damaged: download it again"
            )
        if placement.float32:
            return mx.array(values)
        if self.kind == mx.float16 and not np.abs(values).max(initial=0) < _FLOAT16_LIMIT:
            raise Float16OverflowError(placement.path)
        return mx.array(values).astype(self.kind)

    def layer(self, placement: Placement, old: nn.Module) -> nn.Module | None:
        """Return a layer with the quantized weights of a placement, to replace `old`.

        None for weights that are, or will be, dense. Raises ModelFormatError as `array` does.
        """
        infos = [self.file.tensors[name] for name in placement.tensors]
        if (
            self.dense
            or placement.convert is not None
            or all(info.type.name in DENSE for info in infos)
        ):
            return None
        if len(infos) > 1:
            _check_stackable(placement, infos)
        if placement.scales and type(old) not in (nn.Linear, SwitchLinear):
            return None
        shape = tuple(old.weight.shape)
        if len({info.type.id for info in infos}) > 1:
            return self._stacked_layer(placement, infos, old)
        if placement.rows is None and len(infos) == 1 and infos[0].shape[:-1] != shape[:-1]:
            raise wrong_shape(placement, infos[0].shape, shape)
        info, raw, columns = self._select(placement, infos)
        found = (info.rows, info.cols if columns is None else len(columns))
        if found != (math.prod(shape[:-1]), shape[-1]):
            raise wrong_shape(placement, found, shape)
        matrix = self._relayout(info, raw)
        if columns is not None:
            moved = _move_groups(matrix, columns)
            if moved is None:
                return None
            matrix = moved
        new = self._make(matrix, old, shape[:-1])
        return self._scaled_layer(placement, infos, new) if placement.scales else new

    def _numbers(self, placement: Placement, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return the dense numbers of a placement, before its conversion."""
        infos = [self.file.tensors[name] for name in placement.tensors]
        if len(infos) > 1:
            _check_stackable(placement, infos)
        columns = placement.columns
        if len(infos[0].shape) > 1 and len({info.type.id for info in infos}) == 1:
            info, raw, columns = self._select(placement, infos)
            values = dequantize(info, raw)
        else:
            pieces = [dequantize(info, self.file.tensor_bytes(info.name)) for info in infos]
            if len(infos[0].shape) == 1:
                pieces = [piece.reshape(-1) for piece in pieces]
            values = np.concatenate(pieces) if len(pieces) > 1 else pieces[0]
            if placement.rows is not None:
                values = _take(placement, values, placement.rows)
            if columns is not None:
                columns = _checked(placement, columns, values.shape[-1])
        if placement.scales:
            scales = self._row_scales(placement, infos)
            values = values * scales.reshape(-1, *(1,) * (values.ndim - 1))
        if columns is not None:
            values = values[..., columns]
        if placement.rows is None and len(infos) == 1:
            return values.reshape(*infos[0].shape[:-1], values.shape[-1])
        return values.reshape(shape) if math.prod(shape) == values.size else values

    def _select(
        self, placement: Placement, infos: list[TensorInfo]
    ) -> tuple[TensorInfo, NDArray[np.uint8], NDArray[np.intp] | None]:
        """Return the blocks that hold the numbers of a placement, as one tensor of one type.

        The last value says which columns of that tensor they are, None for all. Nothing else of
        the file is read, unless rows are taken from several tensors.
        """
        raw: NDArray[np.uint8] = self.file.tensor_bytes(infos[0].name)
        if len(infos) > 1:
            raw = np.concatenate([self.file.tensor_bytes(info.name) for info in infos])
        if placement.rows is not None:
            raw = _take(placement, raw, placement.rows)
        kind, cols, columns = infos[0].type, infos[0].cols, placement.columns
        if columns is not None and len(columns):
            columns = _checked(placement, columns, cols)
            begin = int(columns.min()) // kind.block_elements
            end = int(columns.max()) // kind.block_elements + 1
            blocks = raw.reshape(len(raw), -1, kind.block_bytes)
            raw = blocks[:, begin:end].reshape(len(raw), -1)
            cols = (end - begin) * kind.block_elements
            columns = columns - begin * kind.block_elements
            if np.array_equal(columns, np.arange(cols)):
                columns = None
        info = TensorInfo(infos[0].name, kind, (cols, len(raw)), 0, raw.nbytes)
        return info, raw, columns

    def _row_scales(self, placement: Placement, infos: list[TensorInfo]) -> NDArray[np.float32]:
        """Return the factor of each row of a placement, flat."""
        scales = [
            self._row_scale(*pair).reshape(-1) for pair in zip(infos, placement.scales, strict=True)
        ]
        rows = np.concatenate(scales)
        return rows if placement.rows is None else _take(placement, rows, placement.rows)

    def _row_scale(self, info: TensorInfo, name: str | None) -> NDArray[np.float32]:
        """Return the factor of each row of a tensor; shape: the tensor's without the last axis."""
        lead = info.shape[:-1]
        if name is None:
            return np.ones(lead, np.float32)
        scale = self.vector(name)
        if scale.size not in (1, math.prod(lead[:-1])) or not np.isfinite(scale).all():
            raise ModelFormatError(
                f"tensor {name!r} should hold a scale for {info.name!r}, or one for each expert, "
                f"but has {scale.size} numbers; download or convert the model again"
            )
        return np.broadcast_to(scale.reshape(-1, *(1,) * (len(lead) > 1)), lead)

    def _scaled_layer(
        self, placement: Placement, infos: list[TensorInfo], inner: nn.Module
    ) -> Scaled:
        """Return a layer that multiplies the outputs of `inner`, whose bias it takes."""
        if self.kind == mx.float16:
            # Unscaled outputs are thousands of times too large.
            raise Float16OverflowError(placement.tensors[0])
        rows = self._row_scales(placement, infos)
        kind = ScaledSwitchLinear if inner.weight.ndim > 2 else ScaledLinear
        new = kind(inner, mx.array(rows.reshape(inner.weight.shape[:-1])))
        if "bias" in inner:
            new.bias = inner.pop("bias")
        return new

    def _relayout(self, info: TensorInfo, raw: NDArray[np.uint8]) -> QuantizedMatrix:
        half = self.kind == mx.float16
        # MLX has copied the previous tensor.
        self.memory.begin()
        matrix = relayout(
            info,
            raw,
            # numpy has no bfloat16: such scales are rounded once, from float32.
            scale_type="float16" if half else "float32",
            q6k=self.q6k,
            memory=self.memory,
        )
        if not isinstance(matrix, QuantizedMatrix):
            raise TypeError(info.type.name)
        if half and matrix.scales.dtype == np.float32:
            raise Float16OverflowError(info.name)
        return matrix

    def _stacked_layer(
        self, placement: Placement, infos: list[TensorInfo], old: nn.Module
    ) -> nn.Module | None:
        shape = tuple(old.weight.shape)
        if type(old) is not nn.Linear or placement.columns is not None:
            return None
        parts = []
        scales = placement.scales or (None,) * len(infos)
        for info, scale in zip(infos, scales, strict=True):
            # Never evaluated: only its shape is used.
            part = nn.Linear(shape[-1], info.rows, bias=False)
            piece = Placement(
                path=placement.path, tensors=(info.name,), scales=(scale,) if scale else ()
            )
            made = self.layer(piece, part)
            if made is None:
                part.weight = self.array(piece, info.shape)
                made = part
            parts.append(made)
        rows = sum(info.rows for info in infos)
        order = None
        if placement.rows is not None:
            indices = _take(placement, np.arange(rows, dtype=np.int32), placement.rows)
            rows = len(indices)
            order = mx.array(indices)
        if (rows, infos[0].cols) != shape:
            raise wrong_shape(placement, (rows, infos[0].cols), shape)
        layer = StackedLinear(parts, order)
        if "bias" in old:
            layer.bias = old.bias
        return layer

    def _make(self, matrix: QuantizedMatrix, old: nn.Module, lead: tuple[int, ...]) -> nn.Module:
        scales = mx.array(matrix.scales.reshape(*lead, -1))
        biases = None
        if matrix.biases is not None:
            # MLX would promote if scales and activations had different types.
            scales = scales.astype(self.kind)
            biases = mx.array(matrix.biases.reshape(*lead, -1)).astype(self.kind)
        packed = mx.array(matrix.packed.reshape(*lead, -1))
        form: dict[str, Any] = {"group_size": matrix.group_size, "bits": matrix.bits}
        if matrix.multipliers and biases is not None:
            form["multipliers"] = matrix.multipliers
            new = planes_layer(old, packed, scales, biases, form=form)
        else:
            form["mode"] = matrix.mode
            new = quantized_layer(old, packed, scales, biases, kind=self.kind, form=form)
        if "bias" in old:
            new.bias = old.bias
        return new


def planes_layer(
    old: nn.Module,
    packed: mx.array,
    scales: mx.array,
    biases: mx.array,
    *,
    form: dict[str, Any],
) -> nn.Module:
    """Return the layer of planes for `old`; `form` has group_size, bits and multipliers."""
    kinds = {
        nn.Linear: PlanesLinear,
        nn.Embedding: PlanesEmbedding,
        SwitchLinear: PlanesSwitchLinear,
        MultiLinear: PlanesMultiLinear,
    }
    make = next(kinds[base] for base in type(old).__mro__ if base in kinds)
    return make(packed, scales, biases, **form)


def quantized_layer(
    old: nn.Module,
    packed: mx.array,
    scales: mx.array,
    biases: mx.array | None,
    *,
    kind: mx.Dtype,
    form: dict[str, Any],
) -> nn.Module:
    """Return MLX's quantized layer for `old`; `form` has group_size, bits and mode.

    It is created small, since its arrays are replaced at once.
    """
    new: nn.Module
    if isinstance(old, nn.Linear):
        new = nn.QuantizedLinear(128, 1, bias=False, **form)
    elif isinstance(old, nn.Embedding) and form["mode"] != "affine":
        new = FloatEmbedding(kind, **form)
    elif isinstance(old, nn.Embedding):
        new = nn.QuantizedEmbedding(1, 128, **form)
    elif isinstance(old, SwitchLinear):
        new = QuantizedSwitchLinear(128, 1, 1, bias=False, **form)
    else:
        new = QuantizedMultiLinear(128, 1, 1, **form)
    new.weight, new.scales, new.biases = packed, scales, biases
    return new


def _move_groups(matrix: QuantizedMatrix, columns: NDArray[np.intp]) -> QuantizedMatrix | None:
    """Return a matrix of some columns, in their order; None where that would split groups."""
    width = matrix.group_columns
    starts = columns.reshape(-1, width)[:, 0] if len(columns) % width == 0 else columns[:0]
    whole = (starts[:, None] + np.arange(width)).ravel()
    if (starts % width).any() or not np.array_equal(whole, columns):
        return None
    order = starts // width
    count = matrix.scales.shape[1]

    def move(values: NDArray[Any]) -> NDArray[Any]:
        rows = len(values)
        return values.reshape(rows, count, -1)[:, order].reshape(rows, -1)

    return QuantizedMatrix(
        packed=move(matrix.packed),
        scales=move(matrix.scales),
        biases=None if matrix.biases is None else move(matrix.biases),
        bits=matrix.bits,
        group_size=matrix.group_size,
        mode=matrix.mode,
        multipliers=matrix.multipliers,
    )


def _take(placement: Placement, values: NDArray[Any], rows: Any) -> NDArray[Any]:
    if isinstance(rows, slice):
        if rows.stop is not None and rows.stop > len(values):
            raise wrong_shape(placement, values.shape, (rows.stop,))
        return values[rows]
    return values[_checked(placement, rows, len(values))]


def _checked(placement: Placement, index: NDArray[np.intp], size: int) -> NDArray[np.intp]:
    if len(index) and int(index.max()) >= size:
        raise wrong_shape(placement, (size,), (int(index.max()) + 1,))
    return index


def _check_stackable(placement: Placement, infos: Sequence[TensorInfo]) -> None:
    shapes = {info.shape[1:] for info in infos}
    rows = infos[0].shape[:-1]
    # Dimensions of 1 change no order.
    if len(shapes) > 1 or math.prod(rows) != max(rows, default=1):
        raise ModelFormatError(
            f"the tensors {', '.join(placement.tensors)} should be parts of one matrix, but have "
            f"the shapes {', '.join(str(info.shape) for info in infos)}; download or convert the "
            "model again"
        )


def wrong_shape(
    placement: Placement, found: tuple[int, ...], wanted: tuple[int, ...]
) -> ModelFormatError:
    """Return the error for tensors whose shape is not their parameter's."""
    names = ", ".join(repr(name) for name in placement.tensors)
    return ModelFormatError(
        f"tensor {names} has the shape {found} where the metadata asks for {wanted}; download or "
        "convert the model again"
    )
