"""Phi 2 and 3."""

import numpy as np

from tiny_architectures.builder import TinyModel, blocks, tiny


def phi2_blocks(model: TinyModel, *, fused, layers=3, width=64, feed_forward=96) -> None:
    for block in blocks(layers):
        model.norm(block + "attn_norm", width, bias=True)
        if fused:
            model.linear(block + "attn_qkv", 3 * width, width, bias=True, std=1.5)
        else:
            for part in "qkv":
                model.linear(f"{block}attn_{part}", width, width, bias=True, std=1.5)
        model.linear(block + "attn_output", width, width, bias=True)
        model.linear(block + "ffn_up", feed_forward, width, bias=True)
        # Little, since llama.cpp's GELU has half precision.
        model.linear(block + "ffn_down", width, feed_forward, bias=True, std=0.5)


def phi2_frame(model: TinyModel) -> None:
    model.sizes(kv_heads=4, rms_eps=None, norm_eps=1e-5)
    model.key("rope.dimension_count", 6)
    model.frame(64, norm_bias=True)
    model.vector("output.bias", len(model.tensors["token_embd.weight"]), std=0.5)


@tiny("phi2")
def phi2(model: TinyModel) -> None:
    """A part of a head rotates; attention and feed-forward part side by side; biases."""
    phi2_frame(model)
    phi2_blocks(model, fused=False)


@tiny("phi2-fused", "phi2")
def phi2_fused(model: TinyModel) -> None:
    phi2_frame(model)
    phi2_blocks(model, fused=True)


def phi3_blocks(
    model: TinyModel, *, layers=3, width=64, heads=4, kv_heads=2, feed_forward=96, fused=True
) -> None:
    head_dim = width // heads
    for block in blocks(layers):
        model.norm(block + "attn_norm", width)
        if fused:
            model.linear(block + "attn_qkv", (heads + 2 * kv_heads) * head_dim, width, std=1.5)
        else:
            model.linear(block + "attn_q", heads * head_dim, width, std=1.5)
            model.linear(block + "attn_k", kv_heads * head_dim, width, std=1.5)
            model.linear(block + "attn_v", kv_heads * head_dim, width)
        model.linear(block + "attn_output", width, heads * head_dim)
        model.norm(block + "ffn_norm", width)
        model.linear(block + "ffn_up", 2 * feed_forward, width)
        model.linear(block + "ffn_down", width, feed_forward)


@tiny("phi3")
def phi3(model: TinyModel) -> None:
    """Fused as files are; a window as wide as the context, which shuts nothing out."""
    model.sizes()
    model.keys(
        rope__dimension_count=16, rope__scaling__original_context_length=256,
        attention__sliding_window=256,
    )  # fmt: skip
    model.frame(64)
    phi3_blocks(model)


@tiny("phi3-split", "phi3")
def phi3_split(model: TinyModel) -> None:
    """Apart, tied, no window."""
    model.sizes()
    model.keys(rope__dimension_count=16, attention__sliding_window=0)
    model.frame(64, tied=True, std=0.3)
    phi3_blocks(model, fused=False)


def long_rope(model: TinyModel, original_context: int) -> None:
    """Two sets of factors of the frequencies, for 12 rotating dimensions of 16."""
    model.sizes()
    model.keys(
        rope__dimension_count=12, rope__scaling__original_context_length=original_context,
        rope__scaling__attn_factor=1.19, attention__sliding_window=256,
    )  # fmt: skip
    model.frame(64)
    model.tensor("rope_factors_short.weight", np.linspace(1, 2, 6))
    model.tensor("rope_factors_long.weight", np.linspace(1, 30, 6))
    phi3_blocks(model)


@tiny("phi3-long", "phi3")
def phi3_long(model: TinyModel) -> None:
    long_rope(model, 32)


@tiny("phi3-short", "phi3")
def phi3_short(model: TinyModel) -> None:
    long_rope(model, 256)
