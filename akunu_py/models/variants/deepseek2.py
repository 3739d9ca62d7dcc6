"""DeepSeek V3 for all of GGUF's `deepseek2`: V2's router as well, and groups as llama.cpp has."""

from dataclasses import dataclass

import mlx.core as mx
from mlx_lm.models import deepseek_v3
from mlx_lm.models.deepseek_v3 import DeepseekV3MoE, MoEGate

from akunu_py.models.variants.routing import choose_experts


@dataclass
class ModelArgs(deepseek_v3.ModelArgs):  # type: ignore[misc]  # mlx_lm has no types
    """DeepSeek V3's, where `scoring_func` may also be "softmax"."""


class Router(MoEGate):  # type: ignore[misc]
    """Chooses experts; the class of V3 knows the sigmoid only."""

    def __call__(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """Return the experts of each row of x, [..., used], and their weights."""
        return choose_experts(
            x @ self.weight.T,
            self.e_score_correction_bias,
            used=self.top_k,
            scoring=self.config.scoring_func,
            groups=self.n_group,
            used_groups=self.topk_group,
            normed=self.norm_topk_prob,
            scale=self.routed_scaling_factor,
        )


class Model(deepseek_v3.Model):  # type: ignore[misc]
    """DeepSeek V3's with this router."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        for layer in self.model.layers:
            if isinstance(layer.mlp, DeepseekV3MoE):
                layer.mlp.gate = Router(args)
