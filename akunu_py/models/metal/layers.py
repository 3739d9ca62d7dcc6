"""Layers that multiply few rows by akunu's kernel, as the race of their shape decided."""

from collections.abc import Iterable, Sequence
from typing import Any

import mlx.core as mx
from mlx import nn

from akunu_py.models.layers import Planes, PlanesEmbedding, PlanesLinear
from akunu_py.models.metal.few_rows import MatrixForm, few_rows

_LEAST_WEIGHTS = 1 << 18
"""Smaller matrices are read from the GPU's caches, and take no share of a pass worth a race."""

_LEAST_COLUMNS = 256
"""MLX has another kernel for one row of 64 or 128 columns."""


def form_of(layer: nn.Module) -> MatrixForm | None:
    """Return the form of a layer's weights; None where the kernel is not for them."""
    if type(layer) not in _WITH_FEW_ROWS or getattr(layer, "mode", "affine") != "affine":
        return None
    outs, words = layer.weight.shape
    form = MatrixForm(outs, words * 32 // layer.bits, layer.bits, layer.group_size)
    # The kernel reads these types alone, and mixed ones are widened first.
    if layer.scales.dtype not in (mx.float16, mx.bfloat16, mx.float32):
        return None
    large = form.outs * form.cols >= _LEAST_WEIGHTS and form.cols >= _LEAST_COLUMNS
    return form if large and layer.biases.dtype == layer.scales.dtype else None


def give_few_rows(layers: Iterable[nn.Module], form: MatrixForm, rows: Sequence[int]) -> None:
    """Let the kernel multiply so many rows with layers' weights, in place of MLX's product."""
    for layer in layers if rows else ():
        # The parameters, the name and the place of the layer stay as they are.
        layer.__class__ = _WITH_FEW_ROWS[type(layer)]
        layer.form, layer.own_rows = form, frozenset(rows)


def _own(layer: Any, x: mx.array) -> mx.array | None:
    """Return the kernel's product; None where MLX multiplies."""
    if x.size // layer.form.cols not in layer.own_rows or x.dtype != layer.scales.dtype:
        return None
    return few_rows(x, layer, layer.form)


class _FewRowsLinear(nn.QuantizedLinear):  # type: ignore[misc]
    def __call__(self, x: mx.array) -> mx.array:
        y = _own(self, x)
        if y is not None:
            return y + self["bias"] if "bias" in self else y
        of_mlx: mx.array = super().__call__(x)
        return of_mlx


class _FewRowsEmbedding(nn.QuantizedEmbedding):  # type: ignore[misc]
    def as_linear(self, x: mx.array) -> mx.array:
        y = _own(self, x)
        if y is None:
            y = super().as_linear(x)
        return y


class _FewRowsPlanes(Planes):
    def _product(self, x: mx.array, *, transpose: bool = True) -> mx.array:
        # `x` has been widened: planes are columns of one matrix.
        y = _own(self, x) if transpose else None
        return super()._product(x, transpose=transpose) if y is None else y


class _FewRowsPlanesLinear(_FewRowsPlanes, PlanesLinear):
    pass


class _FewRowsPlanesEmbedding(_FewRowsPlanes, PlanesEmbedding):
    pass


_WITH_FEW_ROWS: dict[type[nn.Module], type[nn.Module]] = {
    nn.QuantizedLinear: _FewRowsLinear,
    nn.QuantizedEmbedding: _FewRowsEmbedding,
    PlanesLinear: _FewRowsPlanesLinear,
    PlanesEmbedding: _FewRowsPlanesEmbedding,
}
