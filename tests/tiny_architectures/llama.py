"""The llama family."""

from typing import Any

import numpy as np

from tiny_architectures.builder import TinyModel, blocks, linear_scaling, tiny, yarn
from tiny_architectures.mixtures import experts


def llama_blocks(
    model: TinyModel,
    *,
    layers=3,
    width=64,
    heads=4,
    kv_heads=2,
    head_dim=16,
    feed_forward=96,
    bias=False,
):
    """Attention and gated feed-forward part, as most families have them."""
    for block in blocks(layers):
        model.norm(block + "attn_norm", width)
        model.attention(block, width, heads=heads, kv_heads=kv_heads, head_dim=head_dim, bias=bias)
        model.norm(block + "ffn_norm", width)
        model.gated(block, feed_forward=feed_forward, width=width, bias=bias)


def llama_model(
    model: TinyModel,
    *,
    tied: bool = False,
    std: float | None = None,
    bias: bool = False,
    rotary_factors: bool = False,
    layers: int = 3,
    width: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    feed_forward: int = 96,
    rope_base: float = 10000.0,
    **keys: Any,
) -> None:
    """A whole model of such blocks; `keys` as `TinyModel.keys` takes them."""
    shape = {
        "layers": layers, "width": width, "heads": heads, "kv_heads": kv_heads,
        "feed_forward": feed_forward,
    }  # fmt: skip
    stated = None if heads * head_dim == width else head_dim
    model.sizes(**shape, head_dim=stated, rope_base=rope_base)
    model.keys(**keys)
    model.frame(width, tied=tied, std=std or (0.3 if tied else 1.0))
    if rotary_factors:
        model.tensor("rope_freqs.weight", np.linspace(1, 8, head_dim // 2))
    llama_blocks(model, **shape, head_dim=head_dim, bias=bias)


@tiny("llama")
def llama(model: TinyModel) -> None:
    llama_model(model, rope__dimension_count=16)


@tiny("llama-3", "llama")
def llama_3(model: TinyModel) -> None:
    """Rotary factors, wide base, tied embeddings, biases."""
    llama_model(
        model, tied=True, bias=True, rotary_factors=True, rope_base=500000.0,
        rope__dimension_count=16,
    )  # fmt: skip


@tiny("llama-yarn", "llama")
def llama_yarn(model: TinyModel) -> None:
    llama_model(model, rope__dimension_count=16, **yarn(4.0, 32))


@tiny("llama-linear", "llama")
def llama_linear(model: TinyModel) -> None:
    llama_model(model, rope__dimension_count=16, **linear_scaling(4.0))


@tiny("llama-qkv-biases", "llama")
def llama_qkv_biases(model: TinyModel) -> None:
    """Llamas made of Qwen's weights: no bias at the output of attention."""
    llama_model(model)
    qkv_biases(model)


def qkv_biases(model: TinyModel, *, head_dim=16) -> None:
    for layer in range(3):
        for part, heads in (("q", 4), ("k", 2), ("v", 2)):
            model.vector(f"blk.{layer}.attn_{part}.bias", heads * head_dim, std=0.5)


@tiny("llama-experts", "llama")
def mixtral(model: TinyModel) -> None:
    llama_model(model, rope__dimension_count=16, expert_count=4, expert_used_count=2)
    experts(model, count=4, feed_forward=96)


@tiny("llama-experts-wide", "llama")
def mixtral_of_llama_3(model: TinyModel) -> None:
    """A merge of Llama 3.1: rotary factors, and heads wider than the model."""
    llama_model(
        model, head_dim=32, rotary_factors=True, rope__dimension_count=32, expert_count=4,
        expert_used_count=3,
    )  # fmt: skip
    experts(model, count=4, feed_forward=96)
