"""ERNIE 4.5."""

from tiny_architectures.builder import TinyModel, tiny
from tiny_architectures.llama import llama_blocks
from tiny_architectures.qwen import experts


@tiny("ernie4_5")
def ernie(model: TinyModel) -> None:
    model.sizes(rope_base=500000.0)
    model.keys(attention__key_length=32, attention__value_length=32)
    model.frame(64, tied=True, std=0.3)
    llama_blocks(model, head_dim=32)


@tiny("ernie4_5-moe")
def ernie_moe(model: TinyModel) -> None:
    """The first layer is dense; a shared expert; biases that change the choice of experts."""
    model.sizes(rope_base=500000.0)
    model.keys(
        expert_count=8, expert_used_count=3, expert_feed_forward_length=32,
        interleave_moe_layer_step=1, leading_dense_block_count=1, expert_shared_count=2,
        expert_shared_feed_forward_length=48,
    )  # fmt: skip
    model.frame(64)
    llama_blocks(model)
    experts(model, first=1, shared=48)
    # As the released models have it, and as a vector.
    model.tensor("blk.1.exp_probs_b.bias", model.random.normal(0, 0.5, (1, 8)))
    model.vector("blk.2.exp_probs_b.bias", 8, std=0.5)


@tiny("ernie4_5-moe-plain", "ernie4_5-moe")
def ernie_moe_plain(model: TinyModel) -> None:
    """Neither shared experts nor biases; linear positions."""
    model.sizes()
    model.keys(
        expert_count=8, expert_used_count=3, expert_feed_forward_length=32,
        interleave_moe_layer_step=1, rope__scaling__type="linear", rope__scaling__factor=2.0,
    )  # fmt: skip
    model.frame(64)
    llama_blocks(model)
    experts(model)
