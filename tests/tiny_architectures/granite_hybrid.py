"""Granite 4 with state-space layers."""

import numpy as np

from tiny_architectures.builder import TinyModel, tiny
from tiny_architectures.mamba import mamba2_keys, mamba2_mixer
from tiny_architectures.mixtures import mixture


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
    for layer, count in enumerate(kv_heads):
        block = f"blk.{layer}."
        granite_operator(model, block, count, groups=1, bias=False)
        mixture(model, block, shared=64, std=2)


@tiny("granitehybrid-dense", "granitehybrid")
def granite_hybrid_dense(model: TinyModel) -> None:
    """Attention first, with rotated positions and biases; two groups; a head of its own."""
    kv_heads = [2, 0, 2]
    granite_model(model, kv_heads, groups=2, rotates=True, tied=False)
    for layer, count in enumerate(kv_heads):
        block = f"blk.{layer}."
        granite_operator(model, block, count, groups=2, bias=True)
        model.gated(block, feed_forward=32)


@tiny("granitehybrid-fused", "granitehybrid")
def granite_hybrid_fused(model: TinyModel) -> None:
    """Queries, keys and values, and their biases, in one tensor each."""
    granite_hybrid_dense(model)
    for name in [name for name in model.tensors if ".attn_q." in name]:
        parts = [model.tensors.pop(name.replace("attn_q", f"attn_{part}")) for part in "qkv"]
        model.tensor(name.replace("attn_q", "attn_qkv"), np.concatenate(parts))
