"""Layers for weights in forms that MLX and mlx-lm have no layers for."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx import nn


class FrequencyRope(nn.Module):  # type: ignore[misc]  # mlx.nn has no types
    """Rotary embedding with frequencies from the file, as for Llama 3 and Phi 3.

    Positions are divided by `wavelengths`, float32 [dims / 2]: base ** (2 i / dims) times the
    file's factor i. The rotated dimensions are also multiplied by `scale`.
    """

    def __init__(
        self, dims: int, wavelengths: mx.array, *, traditional: bool, scale: float = 1.0
    ) -> None:
        super().__init__()
        self.dims = dims
        self.traditional = traditional
        self.scale = scale
        # Underscored, so that it does not count as a parameter to load or cast.
        self._wavelengths = wavelengths

    @property
    def wavelengths(self) -> mx.array:
        """Return the divisors of positions, float32 [dims / 2]."""
        return self._wavelengths

    def __call__(self, x: mx.array, offset: int | mx.array = 0) -> mx.array:
        """Rotate x [batch, heads, length, dims], whose first row is at position `offset`."""
        if self.scale != 1.0:
            x = mx.concatenate([x[..., : self.dims] * self.scale, x[..., self.dims :]], axis=-1)
        return mx.fast.rope(
            x,
            self.dims,
            traditional=self.traditional,
            base=None,
            scale=1.0,
            offset=offset,
            freqs=self._wavelengths,
        )


class StackedLinear(nn.Module):  # type: ignore[misc]
    """Several linear layers over one input as one, where GGUF splits what mlx-lm's class fuses.

    Their tensors may have different quantizations, and then cannot become one matrix. With `order`,
    int32 [out], output i is entry order[i] of the concatenated outputs.
    """

    def __init__(self, parts: Sequence[nn.Module], order: mx.array | None = None) -> None:
        super().__init__()
        self.parts = list(parts)
        self._order = order

    @property
    def order(self) -> mx.array | None:
        """Return the order of the parts' outputs; None for the order of the parts."""
        return self._order

    def __call__(self, x: mx.array) -> mx.array:
        """Return the outputs of all parts, [..., out]."""
        y = mx.concatenate([part(x) for part in self.parts], axis=-1)
        if self._order is not None:
            y = y[..., self._order]
        return y + self["bias"] if "bias" in self else y


class Scaled(nn.Module):  # type: ignore[misc]
    """A layer whose outputs are scaled, as NVFP4 needs besides the scales of its blocks.

    `row_scale`, float32, has the shape of the inner layer's outputs: [out], or [experts, out].
    """

    def __init__(self, inner: nn.Module, row_scale: mx.array) -> None:
        super().__init__()
        self.inner = inner
        self.row_scale = row_scale

    @property
    def weight(self) -> Any:
        """Return the inner layer's weight."""
        return self.inner.weight


class ScaledLinear(Scaled):
    """A linear layer with scaled outputs."""

    def __call__(self, x: mx.array) -> mx.array:
        """Return the scaled outputs, [..., out]."""
        y: mx.array = self.inner(x)
        y = (y * self.row_scale).astype(y.dtype)
        return y + self["bias"] if "bias" in self else y


class ScaledSwitchLinear(Scaled):
    """The linear layers of a mixture's experts, with scaled outputs."""

    def __call__(self, x: mx.array, indices: mx.array, sorted_indices: bool = False) -> mx.array:
        """Multiply x by the matrix of the expert each index names."""
        y: mx.array = self.inner(x, indices, sorted_indices=sorted_indices)
        y = (y * mx.expand_dims(self.row_scale[indices], -2)).astype(y.dtype)
        return y + mx.expand_dims(self["bias"][indices], -2) if "bias" in self else y


class LowRank(nn.Module):  # type: ignore[misc]
    """A layer and a product that is added to it: `up` [..., out, r] times `down` [..., r, in].

    Layers of mlx-lm do the same, in a package that imports transformers.
    """

    def __init__(self, inner: nn.Module, up: mx.array, down: mx.array) -> None:
        super().__init__()
        self.inner = inner
        self.up = up
        self.down = down

    @property
    def weight(self) -> Any:
        """Return the inner layer's weight."""
        return self.inner.weight


class LowRankLinear(LowRank):
    """A linear layer with a product of low rank."""

    def __call__(self, x: mx.array) -> mx.array:
        """Return the sum of both, [..., out]."""
        y: mx.array = self.inner(x)
        return y + (x @ self.down.T) @ self.up.T


class LowRankSwitchLinear(LowRank):
    """The linear layers of a mixture's experts, each with a product of low rank."""

    def __call__(self, x: mx.array, indices: mx.array, sorted_indices: bool = False) -> mx.array:
        """Multiply x by the matrices of the expert each index names."""
        y: mx.array = self.inner(x, indices, sorted_indices=sorted_indices)
        for factor in (self.down, self.up):
            x = mx.gather_mm(
                x, factor.swapaxes(-1, -2), rhs_indices=indices, sorted_indices=sorted_indices
            )
        return y + x


class LowRankEmbedding(LowRank):
    """An embedding with a product of low rank, [width, tokens]; `tied` where logits have it too."""

    def __init__(self, inner: nn.Module, up: mx.array, down: mx.array, *, tied: bool) -> None:
        super().__init__(inner, up, down.T)
        self._tied = tied

    def __call__(self, ids: mx.array) -> mx.array:
        """Return the rows of ids [...], [..., width]."""
        y: mx.array = self.inner(ids)
        return y + self.down[ids] @ self.up.T

    def as_linear(self, x: mx.array) -> mx.array:
        """Return the product of x [..., width] with every row, [..., rows]."""
        y: mx.array = self.inner.as_linear(x)
        return y + (x @ self.up) @ self.down.T if self._tied else y


class FloatEmbedding(nn.QuantizedEmbedding):  # type: ignore[misc]
    """An embedding of four-bit floats whose rows have the model's type.

    By default MLX expands them to bfloat16, and later activations would be promoted.
    """

    def __init__(self, kind: mx.Dtype, *, group_size: int, bits: int, mode: str) -> None:
        # Small: the file's arrays replace these.
        super().__init__(1, 128, group_size=group_size, bits=bits, mode=mode)
        self._kind = kind

    def __call__(self, ids: mx.array) -> mx.array:
        """Return the rows of ids [...], [..., width]."""
        return mx.dequantize(
            self.weight[ids],
            self.scales[ids],
            group_size=self.group_size,
            bits=self.bits,
            mode=self.mode,
            dtype=self._kind,
        )


class Planes(nn.Module):  # type: ignore[misc]
    """Weights as planes of `bits` bits; `akunu_py.gguf.quants.forms` explains the form.

    There is a plane for each of the p `multipliers`. The shapes are weight, uint32
    [..., rows, p * cols * bits / 32]; scales and biases [..., rows, p * cols / group_size].
    """

    def __init__(
        self,
        weight: mx.array,
        scales: mx.array,
        biases: mx.array,
        *,
        bits: int,
        group_size: int,
        multipliers: Sequence[float],
    ) -> None:
        super().__init__()
        self.weight = weight
        self.scales = scales
        self.biases = biases
        self.bits = bits
        self.group_size = group_size
        self.multipliers = tuple(multipliers)
        self.freeze()

    def dense_weight(self) -> mx.array:
        """Return the weights, float32 [..., rows, cols]."""
        parts = mx.dequantize(
            self.weight,
            self.scales.astype(mx.float32),
            self.biases.astype(mx.float32),
            group_size=self.group_size,
            bits=self.bits,
        )
        return self._join(parts)

    def _widen(self, x: mx.array) -> mx.array:
        """Return the input of all planes: for each group of columns, x times each multiplier."""
        width = self.group_size // len(self.multipliers)
        x = x.reshape(*x.shape[:-1], -1, 1, width) * self._factors(x.dtype)
        return x.reshape(*x.shape[:-3], -1)

    def _join(self, parts: mx.array) -> mx.array:
        """Return the weights, given all of their planes along the last axis of `parts`."""
        count = len(self.multipliers)
        parts = parts.reshape(*parts.shape[:-1], -1, count, self.group_size // count)
        joined = (parts * self._factors(parts.dtype)).sum(axis=-2)
        return joined.reshape(*joined.shape[:-2], -1)

    def _factors(self, kind: mx.Dtype) -> mx.array:
        """Return the multipliers [p, 1], which every type holds exactly."""
        return mx.array(self.multipliers, dtype=kind)[:, None]

    def _product(self, x: mx.array, *, transpose: bool = True) -> mx.array:
        return mx.quantized_matmul(
            x,
            self.weight,
            self.scales,
            self.biases,
            transpose=transpose,
            group_size=self.group_size,
            bits=self.bits,
        )


class PlanesLinear(Planes):
    """A linear layer over planes."""

    def __call__(self, x: mx.array) -> mx.array:
        """Multiply x [..., in]; the result is [..., out]."""
        y = self._product(self._widen(x))
        return y + self["bias"] if "bias" in self else y


class PlanesEmbedding(Planes):
    """An embedding over planes, which can also make the logits."""

    def __call__(self, ids: mx.array) -> mx.array:
        """Return the rows of ids [...], [..., width]."""
        parts = mx.dequantize(
            self.weight[ids],
            self.scales[ids],
            self.biases[ids],
            group_size=self.group_size,
            bits=self.bits,
        )
        return self._join(parts)

    def as_linear(self, x: mx.array) -> mx.array:
        """Return the product of x [..., width] with every row, [..., rows]."""
        return self._product(self._widen(x))


class PlanesMultiLinear(Planes):
    """A matrix per head over planes, like mlx-lm's MultiLinear."""

    def __call__(self, x: mx.array, transpose: bool = True) -> mx.array:
        """Multiply x [..., heads, length, in] by the transposed matrices, or as they are."""
        if transpose:
            return self._product(self._widen(x))
        return self._join(self._product(x, transpose=False))


class PlanesSwitchLinear(Planes):
    """The linear layers of a mixture's experts over planes, like mlx-lm's SwitchLinear."""

    def __call__(self, x: mx.array, indices: mx.array, sorted_indices: bool = False) -> mx.array:
        """Multiply x by the matrix of the expert each index names."""
        y = mx.gather_qmm(
            self._widen(x),
            self.weight,
            self.scales,
            self.biases,
            rhs_indices=indices,
            transpose=True,
            group_size=self.group_size,
            bits=self.bits,
            sorted_indices=sorted_indices,
        )
        return y + mx.expand_dims(self["bias"][indices], -2) if "bias" in self else y
