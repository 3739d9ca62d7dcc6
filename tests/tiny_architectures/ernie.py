"""ERNIE 4.5."""

from tiny_architectures.builder import EXPERTS, TinyModel, linear_scaling, tiny
from tiny_architectures.llama import llama_model
from tiny_architectures.mixtures import experts


@tiny("ernie4_5")
def ernie(model: TinyModel) -> None:
    llama_model(model, tied=True, head_dim=32, rope_base=500000.0)


@tiny("ernie4_5-moe")
def ernie_moe(model: TinyModel) -> None:
    """The first layer is dense; a shared expert; biases that change the choice of experts."""
    llama_model(
        model, rope_base=500000.0, **EXPERTS, interleave_moe_layer_step=1,
        leading_dense_block_count=1, expert_shared_count=2, expert_shared_feed_forward_length=48,
    )  # fmt: skip
    experts(model, first=1, shared=48)
    # As the released models have it, and as a vector.
    model.tensor("blk.1.exp_probs_b.bias", model.random.normal(0, 0.5, (1, 8)))
    model.vector("blk.2.exp_probs_b.bias", 8, std=0.5)


@tiny("ernie4_5-moe-plain", "ernie4_5-moe")
def ernie_moe_plain(model: TinyModel) -> None:
    """Neither shared experts nor biases; linear positions."""
    llama_model(model, **EXPERTS, interleave_moe_layer_step=1, **linear_scaling(2.0))
    experts(model)
