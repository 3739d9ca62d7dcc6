"""Granite 3 and 4, without state-space layers and with them."""

import numpy as np

from tiny_architectures.builder import TinyModel, blocks, each_block, tiny
from tiny_architectures.llama import llama_blocks
from tiny_architectures.mamba import mamba2_keys, mamba2_mixer
from tiny_architectures.mixtures import mixture


def granite_sizes(model: TinyModel, **values) -> None:
    model.sizes(
        **values, rope__dimension_count=16, attention__scale=0.4, embedding_scale=0.6,
        residual_scale=1.6, logit_scale=3.0,
    )  # fmt: skip


def granite_mixture(model: TinyModel, *, shared=False) -> None:
    for block in blocks(3):
        model.norm(block + "attn_norm", 64)
        model.attention(block)
        model.norm(block + "ffn_norm", 64)
        mixture(model, block, shared=96 if shared else 0)


@tiny("granite")
def granite(model: TinyModel) -> None:
    """All four scales, tied embeddings."""
    granite_sizes(model)
    model.frame(64, tied=True, std=0.3)
    llama_blocks(model)


@tiny("granite-plain", "granite")
def granite_plain(model: TinyModel) -> None:
    """No scale but the one that is always there; biases, rotary factors."""
    model.sizes(rope__dimension_count=16, logit_scale=0.5, rope__scaling__finetuned=True)
    model.frame(64)
    model.tensor("rope_freqs.weight", np.linspace(1, 8, 8))
    llama_blocks(model, bias=True)


@tiny("granitemoe")
def granitemoe(model: TinyModel) -> None:
    granite_sizes(model, feed_forward=32)
    model.keys(expert_count=8, expert_used_count=3)
    model.frame(64, tied=True, std=0.3)
    granite_mixture(model)


@tiny("granitemoe-shared", "granitemoe")
def granitemoe_shared(model: TinyModel) -> None:
    """A part that all tokens go through."""
    granite_sizes(model, feed_forward=32)
    model.keys(expert_count=8, expert_used_count=3, expert_shared_feed_forward_length=96)
    model.frame(64)
    granite_mixture(model, shared=True)


def granite_model(model: TinyModel, kv_heads, *, groups, rotates, tied) -> None:
    model.sizes(layers=len(kv_heads), feed_forward=32, rms_eps=0.02)
    model.key("attention.head_count_kv", kv_heads)
    model.key("rope.scaling.finetuned", rotates)
    model.keys(attention__scale=0.1, embedding_scale=2.0, residual_scale=0.6, logit_scale=1.7)
    mamba2_keys(model, groups=groups)
    model.frame(64, tied=tied, std=0.3)


def granite_operator(model: TinyModel, block, kv_heads, *, groups, bias) -> None:
    model.norm(block + "attn_norm", 64)
    if kv_heads:
        model.attention(block, kv_heads=kv_heads, bias=bias)
    else:
        mamba2_mixer(model, block, groups=groups)
        # Time steps below 0.001, the least that mlx-lm's class takes unless told otherwise.
        model.tensor(block + "ssm_dt.bias", model.tensors[block + "ssm_dt.bias"] - 8)
    model.norm(block + "ffn_norm", 64)


@tiny("granitehybrid")
def granite_hybrid(model: TinyModel) -> None:
    """Experts, no positions at all, as the released models."""
    kv_heads = [0, 2, 0, 2]
    granite_model(model, kv_heads, groups=1, rotates=False, tied=True)
    model.keys(expert_count=8, expert_used_count=3, expert_shared_feed_forward_length=64)
    for block, count in each_block(kv_heads):
        granite_operator(model, block, count, groups=1, bias=False)
        mixture(model, block, shared=64, std=2)


@tiny("granitehybrid-dense", "granitehybrid")
def granite_hybrid_dense(model: TinyModel) -> None:
    """Attention first, with rotated positions and biases; two groups; a head of its own."""
    kv_heads = [2, 0, 2]
    granite_model(model, kv_heads, groups=2, rotates=True, tied=False)
    for block, count in each_block(kv_heads):
        granite_operator(model, block, count, groups=2, bias=True)
        model.gated(block, feed_forward=32)


@tiny("granitehybrid-fused", "granitehybrid")
def granite_hybrid_fused(model: TinyModel) -> None:
    """Queries, keys and values, and their biases, in one tensor each."""
    granite_hybrid_dense(model)
    for name in [name for name in model.tensors if ".attn_q." in name]:
        parts = [model.tensors.pop(name.replace("attn_q", f"attn_{part}")) for part in "qkv"]
        model.tensor(name.replace("attn_q", "attn_qkv"), np.concatenate(parts))
