"""Qwen 1.5, 2 and 3."""

import numpy as np

from tiny_architectures.builder import TinyModel, tiny
from tiny_architectures.llama import llama_blocks


def qkv_biases(model: TinyModel, *, layers=3, heads=4, kv_heads=2, head_dim=16):
    for layer in range(layers):
        for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            model.vector(f"blk.{layer}.attn_{name}.bias", count * head_dim, std=0.5)


def head_norms(model: TinyModel, *, layers=3, head_dim=16):
    for layer in range(layers):
        model.norm(f"blk.{layer}.attn_q_norm", head_dim, mean=1.5)
        model.norm(f"blk.{layer}.attn_k_norm", head_dim, mean=1.5)


def fuse_attention(model: TinyModel, *, layers=3):
    """Store q, k and v as one tensor, as converters can."""
    for layer in range(layers):
        for suffix in ("weight", "bias"):
            names = [f"blk.{layer}.attn_{part}.{suffix}" for part in "qkv"]
            if names[0] in model.tensors:
                parts = [model.tensors.pop(name) for name in names]
                model.tensor(f"blk.{layer}.attn_qkv.{suffix}", np.concatenate(parts))


def experts(model: TinyModel, *, first=0, layers=3, width=64, count=8, feed_forward=32, shared=0):
    """A router and expert stacks in the place of dense feed-forward parts."""
    for layer in range(first, layers):
        block = f"blk.{layer}."
        for part in ("gate", "up", "down"):
            model.tensors.pop(f"{block}ffn_{part}.weight", None)
        # Wide, so that the chosen experts' weights differ.
        model.matrix(block + "ffn_gate_inp.weight", count, width, std=2)
        model.matrix(block + "ffn_gate_exps.weight", count, feed_forward, width)
        model.matrix(block + "ffn_up_exps.weight", count, feed_forward, width)
        model.matrix(block + "ffn_down_exps.weight", count, width, feed_forward)
        if shared:
            model.linear(block + "ffn_gate_shexp", shared, width)
            model.linear(block + "ffn_up_shexp", shared, width)
            model.linear(block + "ffn_down_shexp", width, shared)


@tiny("qwen2")
def qwen2(model: TinyModel) -> None:
    model.sizes(rope_base=1000000.0)
    model.frame(64)
    llama_blocks(model)
    qkv_biases(model)


@tiny("qwen2-yarn", "qwen2")
def qwen2_yarn(model: TinyModel) -> None:
    """Tied embeddings, extended context, fused q, k and v."""
    model.sizes()
    model.keys(
        rope__scaling__type="yarn", rope__scaling__factor=4.0,
        rope__scaling__original_context_length=64,
    )  # fmt: skip
    model.frame(64, tied=True, std=0.3)
    llama_blocks(model)
    qkv_biases(model)
    fuse_attention(model)


@tiny("qwen2-unbiased", "qwen2")
def qwen2_unbiased(model: TinyModel) -> None:
    model.sizes()
    model.frame(64)
    llama_blocks(model)


@tiny("qwen3")
def qwen3(model: TinyModel) -> None:
    """Heads that are together wider than the model."""
    model.sizes(rope_base=1000000.0)
    model.keys(attention__key_length=32, attention__value_length=32)
    model.frame(64, tied=True, std=0.3)
    llama_blocks(model, head_dim=32)
    head_norms(model, head_dim=32)


@tiny("qwen3-fused", "qwen3")
def qwen3_fused(model: TinyModel) -> None:
    model.sizes()
    model.frame(64)
    llama_blocks(model)
    head_norms(model)
    fuse_attention(model)


@tiny("qwen3moe")
def qwen3moe(model: TinyModel) -> None:
    model.sizes(rope_base=1000000.0)
    model.keys(
        attention__key_length=32, attention__value_length=32, expert_count=8,
        expert_used_count=3, expert_feed_forward_length=32,
    )  # fmt: skip
    model.frame(64)
    llama_blocks(model, head_dim=32)
    head_norms(model, head_dim=32)
    experts(model)


@tiny("qwen3moe-yarn", "qwen3moe")
def qwen3moe_yarn(model: TinyModel) -> None:
    """Extended context; the width of an expert follows from the whole."""
    model.sizes()
    model.keys(
        expert_count=8, expert_used_count=3, rope__scaling__type="yarn",
        rope__scaling__factor=4.0, rope__scaling__original_context_length=64,
    )  # fmt: skip
    model.frame(64)
    llama_blocks(model)
    head_norms(model)
    experts(model)


@tiny("qwen2moe")
def qwen2moe(model: TinyModel) -> None:
    model.sizes(rope_base=1000000.0)
    model.keys(
        expert_count=8, expert_used_count=3, expert_feed_forward_length=32,
        expert_shared_feed_forward_length=48,
    )  # fmt: skip
    model.frame(64)
    llama_blocks(model)
    qkv_biases(model)
    experts(model, shared=48)
    for layer in range(3):
        model.vector(f"blk.{layer}.ffn_gate_inp_shexp.weight", 64)


@tiny("qwen2moe-linear", "qwen2moe")
def qwen2moe_linear(model: TinyModel) -> None:
    """Linear positions; widths of experts follow from the whole."""
    model.sizes()
    model.keys(
        expert_count=8, expert_used_count=3, rope__scaling__type="linear",
        rope__scaling__factor=4.0,
    )  # fmt: skip
    model.frame(64)
    llama_blocks(model)
    qkv_biases(model)
    experts(model, shared=96)
    for layer in range(3):
        # A matrix of one row, as the released models have it.
        model.matrix(f"blk.{layer}.ffn_gate_inp_shexp.weight", 1, 64)


@tiny("qwen2vl")
def qwen2vl(model: TinyModel) -> None:
    """Parts of a head rotate by coordinates of a patch, which are equal in a text."""
    model.sizes(rope_base=1000000.0)
    model.key("rope.dimension_sections", [2, 3, 3, 0])
    model.frame(64)
    llama_blocks(model)
    qkv_biases(model)


@tiny("qwen3vl")
def qwen3vl(model: TinyModel) -> None:
    model.sizes(rope_base=5000000.0)
    model.keys(rope__dimension_sections=[3, 3, 2, 0], n_deepstack_layers=2)
    model.frame(64, tied=True, std=0.3)
    llama_blocks(model)
    head_norms(model)


@tiny("qwen3vlmoe")
def qwen3vlmoe(model: TinyModel) -> None:
    model.sizes(rope_base=5000000.0)
    model.keys(
        rope__dimension_sections=[3, 3, 2, 0], n_deepstack_layers=2, expert_count=8,
        expert_used_count=3, expert_feed_forward_length=32,
    )  # fmt: skip
    model.frame(64)
    llama_blocks(model)
    head_norms(model)
    experts(model)
