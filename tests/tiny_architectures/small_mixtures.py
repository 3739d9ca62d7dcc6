"""Mixtures with little of their own: OLMoE, dots.llm1, DeepSeek's first."""

from tiny_architectures.builder import EXPERTS, TinyModel, linear_scaling, tiny
from tiny_architectures.llama import llama_model
from tiny_architectures.mixtures import experts
from tiny_architectures.qwen import head_norms


@tiny("olmoe")
def olmoe(model: TinyModel) -> None:
    """Norms of q and k over all heads; the experts are as wide as `feed_forward_length`."""
    llama_model(model, kv_heads=4, feed_forward_length=32, expert_count=8, expert_used_count=3)
    head_norms(model, head_dim=64)
    experts(model)


@tiny("dots1")
def dots1(model: TinyModel) -> None:
    """The first layer is dense; a sigmoid makes weights, biases count in the choice alone."""
    llama_model(
        model, kv_heads=4, **EXPERTS, expert_shared_count=2, expert_weights_scale=2.5,
        expert_weights_norm=True, expert_gating_func=2, leading_dense_block_count=1,
    )  # fmt: skip
    head_norms(model)
    experts(model, first=1, shared=64)
    for layer in (1, 2):
        model.vector(f"blk.{layer}.exp_probs_b.bias", 8, std=0.5)


@tiny("deepseek")
def deepseek(model: TinyModel) -> None:
    """The first layer is dense; two shared experts."""
    llama_model(
        model, kv_heads=4, rope__dimension_count=16, rope__scaling__type="none", **EXPERTS,
        expert_shared_count=2, expert_weights_scale=1.0, leading_dense_block_count=1,
    )  # fmt: skip
    experts(model, first=1, shared=64)


@tiny("deepseek-linear", "deepseek")
def deepseek_linear(model: TinyModel) -> None:
    """Tied embeddings, linear positions."""
    llama_model(
        model, tied=True, kv_heads=4, rope__dimension_count=16, **linear_scaling(4.0), **EXPERTS,
        expert_shared_count=1, leading_dense_block_count=1,
    )  # fmt: skip
    experts(model, first=1, shared=32)
