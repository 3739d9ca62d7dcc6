"""MiniCPM 3."""

import numpy as np

from tiny_architectures.builder import TinyModel, blocks, tiny


def minicpm3_blocks(model: TinyModel) -> None:
    model.sizes(kv_heads=4)
    model.keys(
        attention__q_lora_rank=32, attention__kv_lora_rank=32, attention__key_length=48,
        rope__dimension_count=16,
    )  # fmt: skip
    for block in blocks(3):
        model.norm(block + "attn_norm", 64)
        model.linear(block + "attn_q_a", 32, 64)
        model.norm(block + "attn_q_a_norm", 32)
        model.linear(block + "attn_q_b", 4 * 48, 32, std=2)
        model.linear(block + "attn_kv_a_mqa", 48, 64, std=2)
        model.norm(block + "attn_kv_a_norm", 32)
        model.linear(block + "attn_kv_b", 4 * (32 + 16), 32)
        model.linear(block + "attn_output", 64, 64)
        model.norm(block + "ffn_norm", 64)
        model.gated(block)


@tiny("minicpm3")
def minicpm3(model: TinyModel) -> None:
    """The embedding makes the logits; factors of the rotary frequencies."""
    model.frame(64, tied=True, std=0.02)
    minicpm3_blocks(model)
    model.tensor("rope_factors_short.weight", np.linspace(1, 3, 8))
    model.tensor("rope_factors_long.weight", np.linspace(2, 9, 8))


@tiny("minicpm3-plain", "minicpm3")
def minicpm3_plain(model: TinyModel) -> None:
    model.frame(64, std=0.1)
    minicpm3_blocks(model)
