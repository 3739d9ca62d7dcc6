"""Classes that choose or weigh experts differently, all as llama.cpp does for every family."""

from dataclasses import dataclass

import mlx.core as mx
from mlx_lm.models import bailing_moe, deepseek_v3, deepseek_v32, ernie4_5_moe, hunyuan, llama
from mlx_lm.models.mixtral import MixtralSparseMoeBlock


def choose_experts(
    logits: mx.array,
    bias: mx.array | None,
    *,
    used: int,
    scoring: str,
    groups: int = 1,
    used_groups: int = 1,
    normed: bool = True,
    scale: float = 1.0,
) -> tuple[mx.array, mx.array]:
    """Return the experts that each row of logits [..., experts] uses, [..., used], and weights.

    `scoring` is "softmax" or "sigmoid". `bias` affects the choice only, not the weights. With more
    than one group, all of equal size, experts are chosen from the `used_groups` groups whose two
    best experts score highest. Experts of other groups are excluded; mlx-lm's classes give them a
    score of 0, and a biased score can be lower.
    """
    logits = logits.astype(mx.float32)
    scores = mx.softmax(logits, axis=-1) if scoring == "softmax" else mx.sigmoid(logits)
    ranked = scores if bias is None else scores + bias
    if groups > used_groups:
        ranked = _of_best_groups(ranked, groups, used_groups)
    chosen = mx.argpartition(-ranked, kth=used - 1, axis=-1)[..., :used]
    weights = mx.take_along_axis(scores, chosen, axis=-1)
    if normed:
        weights = weights / mx.maximum(weights.sum(axis=-1, keepdims=True), 2.0**-14)
    return chosen, weights * scale


def _of_best_groups(ranked: mx.array, groups: int, used: int) -> mx.array:
    grouped = mx.unflatten(ranked, -1, (groups, -1))
    of_group = mx.topk(grouped, 2, axis=-1).sum(axis=-1)
    left_out = mx.argpartition(of_group, kth=-used, axis=-1)[..., : groups - used, None]
    grouped = mx.put_along_axis(grouped, left_out, mx.array(-mx.inf), axis=-2)
    return mx.flatten(grouped, -2, -1)


def weighted_sum(outputs: mx.array, weights: mx.array) -> mx.array:
    """Return outputs [..., used, width] summed with weights [..., used], in the outputs' type."""
    return (outputs * weights[..., None]).sum(axis=-2).astype(outputs.dtype)


class _BailingRouter(bailing_moe.BailingMoeGate):  # type: ignore[misc]  # mlx_lm has no types
    def __call__(self, x: mx.array) -> tuple[mx.array, mx.array]:
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


class _BailingMixture(bailing_moe.BailingMoeSparseMoeBlock):  # type: ignore[misc]
    def __init__(self, args: bailing_moe.ModelArgs) -> None:
        super().__init__(args)
        self.gate = _BailingRouter(args)

    def __call__(self, x: mx.array) -> mx.array:
        chosen, weights = self.gate(x)
        # mlx-lm's compiled sum writes beyond its memory where a token uses one expert (MLX 0.32 on
        # a CPU: a sum over one element, compiled with `shapeless=True`).
        mixed = weighted_sum(self.switch_mlp(x, chosen), weights)
        return mixed if self.shared_experts is None else mixed + self.shared_experts(x)


class BailingMoe(bailing_moe.Model):  # type: ignore[misc]
    """Ling with its experts chosen as llama.cpp does.

    mlx-lm's class chooses differently where experts form groups.
    """

    def __init__(self, args: bailing_moe.ModelArgs) -> None:
        super().__init__(args)
        for layer in self.layers:
            if isinstance(layer.mlp, bailing_moe.BailingMoeSparseMoeBlock):
                layer.mlp = _BailingMixture(args)


class _DeepSeekRouter(deepseek_v3.MoEGate):  # type: ignore[misc]
    def __call__(self, x: mx.array) -> tuple[mx.array, mx.array]:
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


class DeepSeek2(deepseek_v3.Model):  # type: ignore[misc]
    """DeepSeek V3 with V2's router as well: all models that GGUF calls `deepseek2`.

    `scoring_func` may also be "softmax"; mlx-lm's class knows the sigmoid only. Groups of experts
    are chosen as llama.cpp does.
    """

    def __init__(self, args: deepseek_v3.ModelArgs) -> None:
        super().__init__(args)
        for layer in self.model.layers:
            if isinstance(layer.mlp, deepseek_v3.DeepseekV3MoE):
                layer.mlp.gate = _DeepSeekRouter(args)


class DeepSeek32(deepseek_v32.Model):  # type: ignore[misc]
    """DeepSeek V3.2, and GLM 5, with groups of experts chosen as llama.cpp does."""

    def __init__(self, args: deepseek_v32.ModelArgs) -> None:
        super().__init__(args)
        for layer in self.model.layers:
            if isinstance(layer.mlp, deepseek_v32.DeepseekV32MoE):
                layer.mlp.gate = _DeepSeekRouter(args)


@dataclass
class ErnieMoeArgs(ernie4_5_moe.ModelArgs):  # type: ignore[misc]
    """Arguments of mlx-lm's class, and the total width of the shared experts, 0 without any."""

    shared_intermediate_size: int = 0


class _ErnieMixture(ernie4_5_moe.Ernie4_5_MoeMLP):  # type: ignore[misc]
    def __init__(self, args: ErnieMoeArgs) -> None:
        super().__init__(args)
        self.e_score_correction_bias = mx.zeros(args.moe_num_experts)
        if args.shared_intermediate_size:
            self.shared_experts = ernie4_5_moe.Ernie4_5_MLP(
                args.hidden_size, args.shared_intermediate_size, args.use_bias
            )

    def __call__(self, x: mx.array) -> mx.array:
        bias = self.e_score_correction_bias
        chosen, weights = choose_experts(self.gate(x), bias, used=self.k, scoring="softmax")
        mixed = weighted_sum(self.switch_mlp(x, chosen), weights)
        return mixed if self.shared_experts is None else mixed + self.shared_experts(x)


class ErnieMoe(ernie4_5_moe.Model):  # type: ignore[misc]
    """ERNIE 4.5 with the biases of its router, and shared experts of any width.

    The released models add a bias to each expert's probability when they choose experts, but not
    to the weights of the chosen ones. mlx-lm's class drops the biases.
    """

    def __init__(self, args: ErnieMoeArgs) -> None:
        super().__init__(args)
        for layer in self.layers:
            if isinstance(layer.mlp, ernie4_5_moe.Ernie4_5_MoeMLP):
                layer.mlp = _ErnieMixture(args)


class _HunyuanMixture(hunyuan.MoeBlock):  # type: ignore[misc]
    def __call__(self, x: mx.array) -> mx.array:
        chosen, weights = choose_experts(self.gate(x), None, used=self.top_k, scoring="softmax")
        mixed: mx.array = weighted_sum(self.switch_mlp(x, chosen), weights) + self.shared_mlp(x)
        return mixed


class HunyuanMoe(hunyuan.Model):  # type: ignore[misc]
    """Hunyuan A13B with weights of a token's experts that sum to one, as the model was trained."""

    def __init__(self, args: hunyuan.ModelArgs) -> None:
        super().__init__(args)
        for number, layer in enumerate(self.layers):
            layer.mlp = _HunyuanMixture(args, number)


@dataclass
class LlamaExpertsArgs(llama.ModelArgs):  # type: ignore[misc]
    """Llama's arguments, and the numbers of experts."""

    num_local_experts: int = 8
    num_experts_per_tok: int = 2


class LlamaExperts(llama.Model):  # type: ignore[misc]
    """Llama with a mixture of experts in each layer: Mixtral, and models merged like it.

    mlx-lm's `mixtral` derives the width of a head from the model's width and knows plain positions
    only.
    """

    def __init__(self, args: LlamaExpertsArgs) -> None:
        super().__init__(args)
        for layer in self.layers:
            layer.mlp = MixtralSparseMoeBlock(args)
