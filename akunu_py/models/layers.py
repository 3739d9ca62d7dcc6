"""Layers for forms that mlx-lm's modules have no argument for."""

import mlx.core as mx
from mlx import nn


class FrequencyRope(nn.Module):  # type: ignore[misc]  # mlx.nn has no types
    """Rotary embedding with given frequencies, as Llama 3's GGUF files hold them.

    `wavelengths`, float32 [dims / 2], is what positions are divided by: base ** (2 i / dims) times
    the file's factor i.
    """

    def __init__(self, dims: int, wavelengths: mx.array, *, traditional: bool) -> None:
        super().__init__()
        self.dims = dims
        self.traditional = traditional
        # Underscored, so that it does not count as a parameter to load or cast.
        self._wavelengths = wavelengths

    def __call__(self, x: mx.array, offset: int | mx.array = 0) -> mx.array:
        """Rotate x [batch, heads, length, dims], whose first row stands at `offset`."""
        return mx.fast.rope(
            x,
            self.dims,
            traditional=self.traditional,
            base=None,
            scale=1.0,
            offset=offset,
            freqs=self._wavelengths,
        )
