"""Families whose layers have biases: GPT-2, GPT-NeoX, StarCoder 2, StableLM, Phi, Nemotron 4, gpt-oss."""

import gguf
import numpy as np

from tiny_architectures.builder import TinyModel, blocks, linear_scaling, tiny, yarn
from tiny_architectures.mixtures import expert_stacks


def gpt_blocks(model: TinyModel, *, layers=3, width=64, feed_forward=256) -> None:
    for block in blocks(layers):
        model.norm(block + "attn_norm", width, bias=True)
        model.linear(block + "attn_qkv", 3 * width, width, bias=True, std=1.5)
        model.linear(block + "attn_output", width, width, bias=True)
        model.norm(block + "ffn_norm", width, bias=True)
        model.linear(block + "ffn_up", feed_forward, width, bias=True)
        # Little, since llama.cpp's GELU has half precision.
        model.linear(block + "ffn_down", width, feed_forward, bias=True, std=0.5)


def gpt2_model(model: TinyModel, *, tied) -> None:
    model.sizes(kv_heads=4, feed_forward=256, rms_eps=None, norm_eps=1e-5, rope_base=None)
    model.frame(64, norm_bias=True, tied=tied, std=0.1 if tied else 1.0)
    model.matrix("position_embd.weight", 256, 64, std=4)
    gpt_blocks(model)


@tiny("gpt2")
def gpt2(model: TinyModel) -> None:
    gpt2_model(model, tied=True)


@tiny("gpt2-head", "gpt2")
def gpt2_head(model: TinyModel) -> None:
    """Output weights of its own."""
    gpt2_model(model, tied=False)


def gptneox_model(model: TinyModel, *, parallel) -> None:
    model.sizes(kv_heads=4, feed_forward=256, rms_eps=None, norm_eps=1e-5)
    model.keys(rope__dimension_count=4, use_parallel_residual=parallel)
    model.frame(64, norm_bias=True)
    gpt_blocks(model)


@tiny("gptneox")
def gptneox(model: TinyModel) -> None:
    """A quarter of a head rotates; attention and feed-forward part side by side."""
    gptneox_model(model, parallel=True)


@tiny("gptneox-sequential", "gptneox")
def gptneox_sequential(model: TinyModel) -> None:
    gptneox_model(model, parallel=False)


def starcoder2_blocks(model: TinyModel, *, layers=3):
    for block in blocks(layers):
        model.norm(block + "attn_norm", 64, bias=True)
        model.attention(block, bias=True)
        model.norm(block + "ffn_norm", 64, bias=True)
        model.linear(block + "ffn_up", 128, 64, bias=True, std=2)
        model.linear(block + "ffn_down", 64, 128, bias=True)


@tiny("starcoder2")
def starcoder2(model: TinyModel) -> None:
    model.sizes(feed_forward=128, rms_eps=None, norm_eps=1e-3, rope_base=100000.0)
    model.frame(64, tied=True, norm_bias=True, std=0.3)
    starcoder2_blocks(model)


@tiny("starcoder2-linear", "starcoder2")
def starcoder2_linear(model: TinyModel) -> None:
    model.sizes(feed_forward=128, rms_eps=None, norm_eps=1e-5, **linear_scaling(2.0))
    model.frame(64, norm_bias=True)
    starcoder2_blocks(model)


def stablelm_blocks(model: TinyModel, *, layers=3, heads=4, kv_heads=2, bias=False, norms=False):
    width, head_dim = 64, 64 // heads
    for block in blocks(layers):
        model.norm(block + "attn_norm", width, bias=True)
        model.linear(block + "attn_q", width, width, bias=bias, std=2)
        model.linear(block + "attn_k", kv_heads * head_dim, width, bias=bias, std=2)
        model.linear(block + "attn_v", kv_heads * head_dim, width, bias=bias)
        model.linear(block + "attn_output", width, width)
        if norms:
            for part, count in (("q", heads), ("k", kv_heads)):
                values = model.random.normal(1.5, 0.3, (count, head_dim))
                model.tensor(f"{block}attn_{part}_norm.weight", values)
        else:
            model.norm(block + "ffn_norm", width, bias=True)
        model.gated(block, feed_forward=96, width=width)


@tiny("stablelm")
def stablelm(model: TinyModel) -> None:
    """StableLM 2 1.6B: biases, a quarter of each head rotates; the key of the residual misleads."""
    model.sizes(kv_heads=4, rms_eps=None, norm_eps=1e-5)
    model.keys(rope__dimension_count=4, use_parallel_residual=True)
    model.frame(64, norm_bias=True)
    stablelm_blocks(model, kv_heads=4, bias=True)


@tiny("stablelm-12b", "stablelm")
def stablelm_12b(model: TinyModel) -> None:
    """Norms of q and k for each head, feed-forward part beside attention."""
    model.sizes(rms_eps=None, norm_eps=1e-5, rope__dimension_count=4, use_parallel_residual=True)
    model.frame(64, norm_bias=True)
    stablelm_blocks(model, norms=True)


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


def phi3_blocks(model: TinyModel, *, fused=True) -> None:
    for block in blocks(3):
        model.norm(block + "attn_norm", 64)
        if fused:
            model.linear(block + "attn_qkv", 128, 64, std=1.5)
            model.linear(block + "attn_output", 64, 64)
        else:
            model.attention(block, std=1.5)
        model.norm(block + "ffn_norm", 64)
        model.linear(block + "ffn_up", 2 * 96, 64)
        model.linear(block + "ffn_down", 64, 96)


@tiny("phi3")
def phi3(model: TinyModel) -> None:
    """Fused as files are; a window as wide as the context, which shuts nothing out."""
    model.sizes(
        rope__dimension_count=16, rope__scaling__original_context_length=256,
        attention__sliding_window=256,
    )  # fmt: skip
    model.frame(64)
    phi3_blocks(model)


@tiny("phi3-split", "phi3")
def phi3_split(model: TinyModel) -> None:
    """Apart, tied, no window."""
    model.sizes(rope__dimension_count=16, attention__sliding_window=0)
    model.frame(64, tied=True, std=0.3)
    phi3_blocks(model, fused=False)


def long_rope(model: TinyModel, original_context: int) -> None:
    """Two sets of factors of the frequencies, for 12 rotating dimensions of 16."""
    model.sizes(
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


def nemotron_blocks(model: TinyModel, *, bias=False) -> None:
    """Norms are stored plus one."""
    for block in blocks(3):
        model.norm(block + "attn_norm", 64, mean=1.4, bias=True)
        model.attention(block, bias=bias, std=1)
        model.norm(block + "ffn_norm", 64, mean=1.4, bias=True)
        model.linear(block + "ffn_up", 96, 64, bias=bias)
        model.linear(block + "ffn_down", 64, 96, bias=bias, std=0.5)


@tiny("nemotron")
def nemotron(model: TinyModel) -> None:
    model.sizes(rms_eps=None, norm_eps=1e-5, rope__dimension_count=8, rope__scaling__type="none")
    model.frame(64, norm_bias=True)
    nemotron_blocks(model)


@tiny("nemotron-bias", "nemotron")
def nemotron_bias(model: TinyModel) -> None:
    """Biases, and scaled positions."""
    model.sizes(rms_eps=None, norm_eps=1e-5, rope__dimension_count=8, **linear_scaling(4.0))
    model.frame(64, norm_bias=True)
    nemotron_blocks(model, bias=True)


def gpt_oss_blocks(model: TinyModel, *, layers):
    for block in blocks(layers):
        model.norm(block + "attn_norm", 64)
        model.attention(block, head_dim=32, bias=True)
        model.vector(block + "attn_sinks.weight", 4, std=2)
        model.norm(block + "post_attention_norm", 64)
        model.linear(block + "ffn_gate_inp", 8, 64, bias=True, std=2)
        # So wide that the limit of the activation is often reached.
        expert_stacks(model, block, feed_forward=64, bias=True, std=4)


def gpt_oss_sizes(model: TinyModel, layers=4) -> None:
    model.sizes(
        layers=layers, rope_base=150000.0, head_dim=32, attention__sliding_window=8, expert_count=8,
        expert_used_count=4, expert_feed_forward_length=64, **yarn(32.0, 16),
    )  # fmt: skip


@tiny("gpt-oss")
def gpt_oss(model: TinyModel) -> None:
    """Layers of a window and of all in turn, sinks, biases; experts of numbers that MXFP4 holds.

    They are recorded in float32: llama.cpp rounds activations to eight bits beside MXFP4.
    """
    gpt_oss_sizes(model)
    model.frame(64)
    gpt_oss_blocks(model, layers=4)
    kind = gguf.GGMLQuantizationType.MXFP4
    for name, values in model.tensors.items():
        if name.endswith("_exps.weight"):
            model.tensor(name, gguf.dequantize(gguf.quantize(values, kind), kind))


@tiny("gpt-oss-pattern", "gpt-oss")
def gpt_oss_pattern(model: TinyModel) -> None:
    """The layers' kinds from the file, an odd number of them."""
    gpt_oss_sizes(model, layers=3)
    model.key("attention.sliding_window_pattern", [False, True, True])
    model.frame(64)
    gpt_oss_blocks(model, layers=3)
