"""Ling with its experts chosen as llama.cpp does, from which mlx-lm's class differs with groups."""

import mlx.core as mx
from mlx_lm.models import bailing_moe
from mlx_lm.models.bailing_moe import BailingMoeGate, BailingMoeSparseMoeBlock, ModelArgs

from akunu_py.models.variants.routing import choose_experts

__all__ = ["Model", "ModelArgs"]


class Router(BailingMoeGate):  # type: ignore[misc]  # mlx_lm has no types
    """Chooses experts."""

    def __call__(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """Return the experts of each row of x, [..., used], and their weights."""
        return choose_experts(
            self.gate_proj(x),
            self.expert_bias,
            used=self.top_k,
            scoring=self.score_function,
            groups=self.n_group,
            used_groups=self.topk_group,
            normed=self.norm_topk_prob,
            scale=self.routed_scaling_factor,
        )


class Mixture(BailingMoeSparseMoeBlock):  # type: ignore[misc]
    """Adds its experts up uncompiled.

    mlx-lm's compiled sum writes beyond its memory where one expert a token is used (MLX 0.32 on a
    CPU: a sum over one element, compiled with `shapeless=True`).
    """

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        self.gate = Router(args)

    def __call__(self, x: mx.array) -> mx.array:
        """Return the experts' weighted sum, and the shared experts', for x [..., hidden]."""
        chosen, weights = self.gate(x)
        outputs = self.switch_mlp(x, chosen)
        mixed: mx.array = (outputs * weights[..., None]).sum(axis=-2).astype(outputs.dtype)
        return mixed if self.shared_experts is None else mixed + self.shared_experts(x)


class Model(bailing_moe.Model):  # type: ignore[misc]
    """Ling's with these mixtures."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        for layer in self.model.layers:
            if isinstance(layer.mlp, BailingMoeSparseMoeBlock):
                layer.mlp = Mixture(args)
