"""StarCoder 2's class with the activation it was trained with.

The released models' configurations name GELU's approximation by a hyperbolic tangent, which
llama.cpp computes too; mlx-lm's class computes it by the error function.
"""

import mlx.core as mx
from mlx import nn
from mlx_lm.models import starcoder2
from mlx_lm.models.starcoder2 import ModelArgs

__all__ = ["Model", "ModelArgs"]


class _FeedForward(starcoder2.MLP):  # type: ignore[misc]  # mlx-lm has no types
    def __call__(self, x: mx.array) -> mx.array:
        y: mx.array = self.c_proj(nn.gelu_approx(self.c_fc(x)))
        return y


class Model(starcoder2.Model):  # type: ignore[misc]
    """The model; only its feed-forward parts differ."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        for layer in self.layers:
            layer.mlp = _FeedForward(args.hidden_size, args.intermediate_size)
