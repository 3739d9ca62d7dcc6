"""Mixtures with little of their own: OLMoE, dots.llm1, DeepSeek's first."""

from tiny_architectures.builder import TinyModel, tiny
from tiny_architectures.llama import llama_blocks
from tiny_architectures.qwen import experts, head_norms


@tiny("olmoe")
def olmoe(model: TinyModel) -> None:
    """Norms of q and k over all heads; the experts are as wide as `feed_forward_length`."""
    model.sizes(kv_heads=4, feed_forward=32)
    model.keys(expert_count=8, expert_used_count=3)
    model.frame(64)
    llama_blocks(model, kv_heads=4)
    for layer in range(3):
        model.norm(f"blk.{layer}.attn_q_norm", 64, mean=1.5)
        model.norm(f"blk.{layer}.attn_k_norm", 64, mean=1.5)
    experts(model)


@tiny("dots1")
def dots1(model: TinyModel) -> None:
    """The first layer is dense; a sigmoid makes weights, biases count in the choice alone."""
    model.sizes(kv_heads=4)
    model.keys(
        expert_count=8, expert_used_count=3, expert_feed_forward_length=32, expert_shared_count=2,
        expert_weights_scale=2.5, expert_weights_norm=True, expert_gating_func=2,
        leading_dense_block_count=1,
    )  # fmt: skip
    model.frame(64)
    llama_blocks(model, kv_heads=4)
    head_norms(model)
    experts(model, first=1, shared=64)
    for layer in (1, 2):
        model.vector(f"blk.{layer}.exp_probs_b.bias", 8, std=0.5)


@tiny("deepseek")
def deepseek(model: TinyModel) -> None:
    """The first layer is dense; two shared experts."""
    model.sizes(kv_heads=4)
    model.keys(
        rope__dimension_count=16, rope__scaling__type="none", expert_count=8, expert_used_count=3,
        expert_feed_forward_length=32, expert_shared_count=2, expert_weights_scale=1.0,
        leading_dense_block_count=1,
    )  # fmt: skip
    model.frame(64)
    llama_blocks(model, kv_heads=4)
    experts(model, first=1, shared=64)


@tiny("deepseek-linear", "deepseek")
def deepseek_linear(model: TinyModel) -> None:
    """Tied embeddings, linear positions."""
    model.sizes(kv_heads=4)
    model.keys(
        rope__dimension_count=16, rope__scaling__type="linear", rope__scaling__factor=4.0,
        expert_count=8, expert_used_count=3, expert_feed_forward_length=32,
        expert_shared_count=1, leading_dense_block_count=1,
    )  # fmt: skip
    model.frame(64, tied=True, std=0.3)
    llama_blocks(model, kv_heads=4)
    experts(model, first=1, shared=32)
