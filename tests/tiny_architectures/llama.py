"""The llama family."""

import numpy as np

from tiny_architectures.builder import TinyModel, tiny


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
    for layer in range(layers):
        block = f"blk.{layer}."
        model.norm(block + "attn_norm", width)
        model.linear(block + "attn_q", heads * head_dim, width, bias=bias, std=2)
        model.linear(block + "attn_k", kv_heads * head_dim, width, bias=bias, std=2)
        model.linear(block + "attn_v", kv_heads * head_dim, width, bias=bias)
        model.linear(block + "attn_output", width, heads * head_dim, bias=bias)
        model.norm(block + "ffn_norm", width)
        model.linear(block + "ffn_gate", feed_forward, width, bias=bias)
        model.linear(block + "ffn_up", feed_forward, width, bias=bias)
        model.linear(block + "ffn_down", width, feed_forward, bias=bias)


@tiny("llama")
def llama(model: TinyModel) -> None:
    model.sizes()
    model.key("rope.dimension_count", 16)
    model.frame(64)
    llama_blocks(model)


@tiny("llama-3", "llama")
def llama_3(model: TinyModel) -> None:
    """Rotary factors, wide base, tied embeddings, biases."""
    model.sizes(rope_base=500000.0)
    model.key("rope.dimension_count", 16)
    model.frame(64, tied=True, std=0.3)
    model.tensor("rope_freqs.weight", np.linspace(1, 8, 8))
    llama_blocks(model, bias=True)


@tiny("llama-yarn", "llama")
def llama_yarn(model: TinyModel) -> None:
    model.sizes()
    model.keys(
        rope__dimension_count=16, rope__scaling__type="yarn", rope__scaling__factor=4.0,
        rope__scaling__original_context_length=32,
    )  # fmt: skip
    model.frame(64)
    llama_blocks(model)


@tiny("llama-linear", "llama")
def llama_linear(model: TinyModel) -> None:
    model.sizes()
    model.keys(
        rope__dimension_count=16, rope__scaling__type="linear", rope__scaling__factor=4.0
    )  # fmt: skip
    model.frame(64)
    llama_blocks(model)


@tiny("llama-qkv-biases", "llama")
def llama_qkv_biases(model: TinyModel) -> None:
    """Llamas made of Qwen's weights: no bias at the output of attention."""
    model.sizes()
    model.frame(64)
    llama_blocks(model)
    for layer in range(3):
        for part, size in (("q", 64), ("k", 32), ("v", 32)):
            model.vector(f"blk.{layer}.attn_{part}.bias", size, std=0.5)


def llama_experts(model: TinyModel, *, count=4, feed_forward=96, width=64, layers=3):
    for layer in range(layers):
        block = f"blk.{layer}."
        for part in ("gate", "up", "down"):
            del model.tensors[f"{block}ffn_{part}.weight"]
        model.matrix(block + "ffn_gate_inp.weight", count, width, std=2)
        model.matrix(block + "ffn_gate_exps.weight", count, feed_forward, width)
        model.matrix(block + "ffn_up_exps.weight", count, feed_forward, width)
        model.matrix(block + "ffn_down_exps.weight", count, width, feed_forward)


@tiny("llama-experts", "llama")
def mixtral(model: TinyModel) -> None:
    model.sizes()
    model.keys(rope__dimension_count=16, expert_count=4, expert_used_count=2)
    model.frame(64)
    llama_blocks(model)
    llama_experts(model)


@tiny("llama-experts-wide", "llama")
def mixtral_of_llama_3(model: TinyModel) -> None:
    """A merge of Llama 3.1: rotary factors, and heads wider than the model."""
    model.sizes()
    model.keys(
        attention__key_length=32, attention__value_length=32, rope__dimension_count=32,
        expert_count=4, expert_used_count=3,
    )  # fmt: skip
    model.frame(64)
    model.tensor("rope_freqs.weight", np.linspace(1, 8, 16))
    llama_blocks(model, head_dim=32)
    llama_experts(model)
