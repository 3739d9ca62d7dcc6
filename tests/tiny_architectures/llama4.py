"""Llama 4."""

import numpy as np

from tiny_architectures.builder import TinyModel, blocks, tiny
from tiny_architectures.mixtures import expert_stacks


def llama4_blocks(model: TinyModel, *, experts, step) -> None:
    model.sizes(layers=4, rope_base=500000.0, head_dim=32)
    model.keys(
        rope__dimension_count=32, expert_count=experts, expert_used_count=1,
        expert_feed_forward_length=32, interleave_moe_layer_step=step,
    )  # fmt: skip
    model.frame(64)
    for layer, block in enumerate(blocks(4)):
        model.norm(block + "attn_norm", 64)
        model.attention(block, head_dim=32)
        model.norm(block + "ffn_norm", 64)
        if (layer + 1) % step:
            model.gated(block)
            continue
        model.linear(block + "ffn_gate_inp", experts, 64)
        expert_stacks(model, block, experts=experts, std=2)
        model.gated(block, "_shexp", feed_forward=32)


@tiny("llama4")
def scout(model: TinyModel) -> None:
    """Scout: experts in each layer, norms of q and k, rotary factors."""
    llama4_blocks(model, experts=16, step=1)
    model.tensor("rope_freqs.weight", np.linspace(1, 8, 16))


@tiny("llama4-maverick", "llama4")
def maverick(model: TinyModel) -> None:
    """Maverick: experts in every second layer, no norms."""
    llama4_blocks(model, experts=128, step=2)
