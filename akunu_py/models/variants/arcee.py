"""Llama's class with a feed-forward part of two matrices and the square of a ReLU: Arcee's models.

mlx-lm has no class for them.
"""

import mlx.core as mx
from mlx import nn
from mlx_lm.models import llama
from mlx_lm.models.llama import ModelArgs

__all__ = ["Model", "ModelArgs"]


class _FeedForward(nn.Module):  # type: ignore[misc]  # mlx has no types
    def __init__(self, args: ModelArgs) -> None:
        super().__init__()
        self.up_proj = nn.Linear(args.hidden_size, args.intermediate_size, bias=False)
        self.down_proj = nn.Linear(args.intermediate_size, args.hidden_size, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        y: mx.array = self.down_proj(nn.relu2(self.up_proj(x)))
        return y


class Model(llama.Model):  # type: ignore[misc]
    """The model; only its feed-forward parts differ."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        for layer in self.layers:
            layer.mlp = _FeedForward(args)
