"""ERNIE 4.5's mixture with the biases of its router.

The released models add a bias to each expert's probability when experts are chosen, though not to
the chosen ones' weights; mlx-lm's class drops it. Shared experts have a width of their own.
"""

from dataclasses import dataclass

import mlx.core as mx
from mlx_lm.models import ernie4_5_moe


@dataclass
class ModelArgs(ernie4_5_moe.ModelArgs):  # type: ignore[misc]  # mlx-lm has no types
    """The class's arguments; the width of the shared experts together, 0 without any."""

    shared_intermediate_size: int = 0


class _Mixture(ernie4_5_moe.Ernie4_5_MoeMLP):  # type: ignore[misc]
    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        self.e_score_correction_bias = mx.zeros(args.moe_num_experts)
        if args.shared_intermediate_size:
            self.shared_experts = ernie4_5_moe.Ernie4_5_MLP(
                args.hidden_size, args.shared_intermediate_size, args.use_bias
            )

    def __call__(self, x: mx.array) -> mx.array:
        weights = self.gate_act(self.gate(x).astype(mx.float32))
        biased = weights + self.e_score_correction_bias
        chosen = mx.argpartition(-biased, kth=self.k - 1, axis=-1)[..., : self.k]
        weights = mx.take_along_axis(weights, chosen, axis=-1)
        weights = weights / mx.maximum(weights.sum(axis=-1, keepdims=True), 1e-12)
        y: mx.array = self.switch_mlp(x, chosen)
        y = (y * weights[..., None]).sum(axis=-2).astype(y.dtype)
        if self.shared_experts is not None:
            y = y + self.shared_experts(x)
        return y


class Model(ernie4_5_moe.Model):  # type: ignore[misc]
    """The model; only its mixtures differ."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        for layer in self.layers:
            if isinstance(layer.mlp, ernie4_5_moe.Ernie4_5_MoeMLP):
                layer.mlp = _Mixture(args)
