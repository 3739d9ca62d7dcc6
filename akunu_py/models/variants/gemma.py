"""Gemma 1 with the activation it was trained with.

mlx-lm's class has the exact GELU; Google's models, and llama.cpp, the approximation by tanh.
"""

import mlx.core as mx
from mlx import nn
from mlx_lm.models import gemma


class ModelArgs(gemma.ModelArgs):  # type: ignore[misc]  # mlx-lm has no types
    """The arguments of mlx-lm's class."""


class MLP(gemma.MLP):  # type: ignore[misc]
    """The gated feed-forward part."""

    def __call__(self, x: mx.array) -> mx.array:
        """Map x [..., width] to the same shape."""
        y: mx.array = self.down_proj(nn.gelu_approx(self.gate_proj(x)) * self.up_proj(x))
        return y


class Model(gemma.Model):  # type: ignore[misc]
    """mlx-lm's model, its feed-forward parts replaced."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        for layer in self.model.layers:
            layer.mlp = MLP(args.hidden_size, args.intermediate_size)
