"""The llama family: Llama, Qwen 1.5 to 3, and families that are llama with few changes.

The last ones have tensors with scales of their own, as NVFP4 files have them: the weights are
numbers that NVFP4 holds, in float32, since beside NVFP4 llama.cpp rounds activations.
"""

from functools import partial
from typing import Any

import numpy as np

from tiny_architectures.builder import (
    EXPERTS,
    Builder,
    TinyModel,
    blocks,
    linear_scaling,
    tiny,
    yarn,
)
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
    model.sizes(**shape, head_dim=stated, rope_base=rope_base, **keys)
    model.frame(width, tied=tied, std=std or (0.3 if tied else 1.0))
    if rotary_factors:
        model.tensor("rope_freqs.weight", np.linspace(1, 8, head_dim // 2))
    llama_blocks(model, **shape, head_dim=head_dim, bias=bias)


def qkv_biases(model: TinyModel, *, head_dim=16) -> None:
    for layer in range(3):
        for part, heads in (("q", 4), ("k", 2), ("v", 2)):
            model.vector(f"blk.{layer}.attn_{part}.bias", heads * head_dim, std=0.5)


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


def post_norms(model: TinyModel, *, layers=3, width=64, mean=1.0):
    """Norms after attention and feed-forward part in the place of those before."""
    for block in blocks(layers):
        del model.tensors[block + "attn_norm.weight"], model.tensors[block + "ffn_norm.weight"]
        model.norm(block + "post_attention_norm", width, mean=mean)
        model.norm(block + "post_ffw_norm", width, mean=mean)


def without_gates(model: TinyModel, *, layers=3):
    for layer in range(layers):
        del model.tensors[f"blk.{layer}.ffn_gate.weight"]


def llama_like(
    name: str, architecture: str | None = None, *changes: Builder, **options: Any
) -> None:
    """Register what `llama_model` makes with these options, changed afterwards."""

    @tiny(name, architecture)
    def build(model: TinyModel) -> None:
        llama_model(model, **options)
        for change in changes:
            change(model)


llama_like("llama", rope__dimension_count=16)
# Rotary factors, wide base, tied embeddings, biases.
llama_like(
    "llama-3", "llama", tied=True, bias=True, rotary_factors=True, rope_base=500000.0,
    rope__dimension_count=16,
)  # fmt: skip
llama_like("llama-yarn", "llama", rope__dimension_count=16, **yarn(4.0, 32))
llama_like("llama-linear", "llama", rope__dimension_count=16, **linear_scaling(4.0))
# Llamas made of Qwen's weights: no bias at the output of attention.
llama_like("llama-qkv-biases", "llama", qkv_biases)
llama_like(
    "llama-experts", "llama", partial(experts, count=4, feed_forward=96), rope__dimension_count=16,
    expert_count=4, expert_used_count=2,
)  # fmt: skip
# A merge of Llama 3.1: rotary factors, and heads wider than the model.
llama_like(
    "llama-experts-wide", "llama", partial(experts, count=4, feed_forward=96), head_dim=32,
    rotary_factors=True, rope__dimension_count=32, expert_count=4, expert_used_count=3,
)  # fmt: skip
llama_like("qwen2", "qwen2", qkv_biases, rope_base=1000000.0)
# Tied embeddings, extended context, fused q, k and v.
llama_like("qwen2-yarn", "qwen2", qkv_biases, fuse_attention, tied=True, **yarn(4.0, 64))
llama_like("qwen2-unbiased", "qwen2")
# Heads that are together wider than the model.
llama_like(
    "qwen3", "qwen3", partial(head_norms, head_dim=32), tied=True, head_dim=32, rope_base=1000000.0,
)  # fmt: skip
llama_like("qwen3-fused", "qwen3", head_norms, fuse_attention)
llama_like(
    "qwen3moe", "qwen3moe", partial(head_norms, head_dim=32), experts, head_dim=32,
    rope_base=1000000.0, **EXPERTS,
)  # fmt: skip
# Extended context; the width of an expert follows from the whole.
llama_like(
    "qwen3moe-yarn", "qwen3moe", head_norms, experts, expert_count=8, expert_used_count=3,
    **yarn(4.0, 64),
)  # fmt: skip


@tiny("qwen2moe")
def qwen2moe(model: TinyModel) -> None:
    llama_model(model, rope_base=1000000.0, **EXPERTS, expert_shared_feed_forward_length=48)
    qkv_biases(model)
    experts(model, shared=48)
    for layer in range(3):
        model.vector(f"blk.{layer}.ffn_gate_inp_shexp.weight", 64)


@tiny("qwen2moe-linear", "qwen2moe")
def qwen2moe_linear(model: TinyModel) -> None:
    """Linear positions; widths of experts follow from the whole."""
    llama_model(model, expert_count=8, expert_used_count=3, **linear_scaling(4.0))
    qkv_biases(model)
    experts(model, shared=96)
    for layer in range(3):
        # A matrix of one row, as the released models have it.
        model.matrix(f"blk.{layer}.ffn_gate_inp_shexp.weight", 1, 64)


# Parts of a head rotate by coordinates of a patch, which are equal in a text.
llama_like(
    "qwen2vl", "qwen2vl", qkv_biases, rope_base=1000000.0, rope__dimension_sections=[2, 3, 3, 0],
)  # fmt: skip


VISION = {
    "rope_base": 5000000.0, "rope__dimension_sections": [3, 3, 2, 0], "n_deepstack_layers": 2,
}  # fmt: skip


llama_like("qwen3vl", "qwen3vl", head_norms, tied=True, **VISION)
llama_like("qwen3vlmoe", "qwen3vlmoe", head_norms, experts, **VISION, **EXPERTS)
llama_like("internlm2", rope_base=1000000.0, rope__dimension_count=16)
llama_like(
    "minicpm", tied=True, std=0.03, embedding_scale=12.0, residual_scale=0.7, logit_scale=1.5,
)  # fmt: skip


@tiny("minicpm-long", "minicpm")
def minicpm_long(model: TinyModel) -> None:
    """MiniCPM 4: factors of the rotary frequencies for short and for long contexts."""
    llama_model(
        model, context_length=128, embedding_scale=4.0, residual_scale=0.5, logit_scale=2.0,
        rope__scaling__type="longrope", rope__scaling__original_context_length=256,
    )  # fmt: skip
    model.tensor("rope_factors_short.weight", np.linspace(1, 3, 8))
    model.tensor("rope_factors_long.weight", np.linspace(2, 9, 8))


llama_like("arcee", "arcee", without_gates, head_dim=32, **yarn(4.0, 64))


@tiny("olmo")
def olmo(model: TinyModel) -> None:
    """Norms without weights; q, k and v are clipped."""
    model.sizes(rms_eps=None, norm_eps=1e-5)
    model.key("attention.clamp_kqv", 1.5)
    model.frame(64, tied=True, std=0.3)
    llama_blocks(model)
    for name in [name for name in model.tensors if name.endswith("_norm.weight")]:
        del model.tensors[name]


llama_like(
    "hunyuan-dense", "hunyuan-dense", partial(head_norms, head_dim=32), fuse_attention, tied=True,
    head_dim=32, rope_base=11158840.0, rope__scaling__type="none", rope__scaling__factor=1.0,
    rope__scaling__original_context_length=256,
)  # fmt: skip


@tiny("apertus")
def apertus(model: TinyModel) -> None:
    """Rotary factors; the numbers of the activation differ from layer to layer."""
    llama_model(model, rotary_factors=True)
    # Without the architecture's name before them.
    model.metadata["xielu.alpha_n"] = [0.3, -0.5, 1.2]
    model.metadata["xielu.alpha_p"] = [0.8, 0.1, -0.4]
    model.metadata["xielu.beta"] = [0.5, 0.4, 0.6]
    model.metadata["xielu.eps"] = [-1e-6, -1e-6, -1e-6]
    head_norms(model)
    without_gates(model)


# The prompt is longer than the original context: queries grow three times within it.
llama_like(
    "mistral3", tied=True, head_dim=32, rope_base=1000000.0, rope__dimension_count=32,
    attention__temperature_scale=0.4, **yarn(16.0, 8), rope__scaling__yarn_beta_fast=4.0,
    rope__scaling__yarn_beta_slow=0.5, rope__scaling__yarn_log_multiplier=1.0,
)  # fmt: skip
# The rotation scales the heads: no log multiplier.
llama_like(
    "mistral3-scaled", "mistral3", attention__temperature_scale=0.1, **yarn(16.0, 16),
    rope__scaling__attn_factor=1.2,
)  # fmt: skip
# Mistral Small 3: neither temperature nor scaled positions.
llama_like("mistral3-plain", "mistral3", head_dim=32, rope_base=1000000.0, rope__dimension_count=32)
# A temperature over plain positions; fused q, k and v.
llama_like(
    "mistral3-unscaled", "mistral3", fuse_attention, attention__temperature_scale=0.5,
    rope__scaling__type="none", rope__scaling__original_context_length=16,
)  # fmt: skip
# Extended context without a temperature.
llama_like(
    "mistral3-untempered", "mistral3", attention__temperature_scale=0.0, **yarn(16.0, 16),
    rope__scaling__yarn_log_multiplier=0.7,
)  # fmt: skip
# Five layers, of which the fourth does not rotate.
llama_like("smollm3", tied=True, layers=5, rope_base=5000000.0, rope__dimension_count=16)
llama_like("smollm3-yarn", "smollm3", layers=4, rope__dimension_count=16, **yarn(4.0, 64))


@tiny("seed_oss")
def seed_oss(model: TinyModel) -> None:
    """Heads that are together wider than the model; biases of q, k and v."""
    llama_model(model, head_dim=32, rope_base=10000000.0)
    qkv_biases(model, head_dim=32)
    for layer in range(3):
        norm = model.tensors.pop(f"blk.{layer}.ffn_norm.weight")
        model.tensor(f"blk.{layer}.post_attention_norm.weight", norm)


llama_like("ernie4_5", tied=True, head_dim=32, rope_base=500000.0)


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


# Neither shared experts nor biases; linear positions.
llama_like(
    "ernie4_5-moe-plain", "ernie4_5-moe", experts, **EXPERTS, interleave_moe_layer_step=1,
    **linear_scaling(2.0),
)  # fmt: skip
# EXAONE 3.5: rotary factors.
llama_like("exaone", rotary_factors=True, rope_base=1000000.0, rope__dimension_count=16)
llama_like("exaone-tied", "exaone", tied=True, rope__dimension_count=16)
# The 1.2B model: every layer sees and rotates everything.
llama_like(
    "exaone4", "exaone4", head_norms, post_norms, tied=True, rotary_factors=True,
    rope_base=1000000.0,
)  # fmt: skip
# The 32B model, which llama.cpp knows by its 64 layers; here the windows are stated.
llama_like(
    "exaone4-windowed", "exaone4", partial(head_norms, layers=64),
    partial(post_norms, layers=64, width=32, mean=0.3), rotary_factors=True, layers=64, width=32,
    heads=2, kv_heads=1, feed_forward=32, attention__sliding_window=6,
    attention__sliding_window_pattern=[layer % 4 < 3 for layer in range(64)],
)  # fmt: skip
# Norms of q and k over all heads; the experts are as wide as `feed_forward_length`.
llama_like(
    "olmoe", "olmoe", partial(head_norms, head_dim=64), experts, kv_heads=4, feed_forward_length=32,
    expert_count=8, expert_used_count=3,
)  # fmt: skip


# Two rounds through the layers, with a norm in between, or none.
llama_like(
    "nanbeige", "nanbeige", rotary_factors=True, rope__dimension_count=16, num_loops=2,
    skip_loop_final_norm=False,
)  # fmt: skip
llama_like(
    "nanbeige-three", "nanbeige", tied=True, rope__dimension_count=16, num_loops=3,
    skip_loop_final_norm=True, layers=2, **linear_scaling(4.0),
)  # fmt: skip


def gated_windows(model: TinyModel, *, gates, layers=5) -> None:
    """Windows with another base, in all but every fourth layer, and gates `gates` wide."""
    model.keys(
        attention__sliding_window=8, rope__freq_base_swa=5000.0,
        attention__sliding_window_pattern=[layer % 4 < 3 for layer in range(layers)],
    )  # fmt: skip
    for block in blocks(layers):
        model.linear(block + "attn_gate", gates, 64, std=2)


@tiny("spark2_5")
def spark2_5(model: TinyModel) -> None:
    """q, k and v as one, a part of a head rotates outside of windows."""
    llama_model(
        model, tied=True, layers=5, head_dim=32, rope__dimension_count=8,
        rope__dimension_count_swa=32,
    )  # fmt: skip
    gated_windows(model, gates=4)
    fuse_attention(model, layers=5)
    for block in blocks(5):
        # Less of the activation, which llama.cpp reads from a table.
        model.tensors[block + "ffn_down.weight"] *= 0.2


@tiny("spark2_5-plain", "spark2_5")
def spark2_5_plain(model: TinyModel) -> None:
    llama_model(model, layers=5, head_dim=32)
    gated_windows(model, gates=4)


@tiny("muse-glimmer")
def muse_glimmer(model: TinyModel) -> None:
    """Only windowed layers rotate; queries have one factor, logits are scaled and capped."""
    llama_model(
        model, layers=5, head_dim=32, logit_scale=0.4, final_logit_softcapping=8.0,
        rope__dimension_count=32,
    )  # fmt: skip
    gated_windows(model, gates=4 * 32)
    post_norms(model, layers=5)
    for block in blocks(5):
        model.norm(block + "attn_norm", 64)
        model.norm(block + "ffn_norm", 64)
        model.tensor(block + "attn_q_norm.weight", np.full(32, 2.5))
        model.tensor(block + "attn_k_norm.weight", np.ones(32))


@tiny("talkie")
def talkie(model: TinyModel) -> None:
    """Norms without weights, gains of query heads, the embedding added behind each layer."""
    llama_model(model, kv_heads=4, rope__dimension_count=16, logit_scale=0.7)
    for name in [name for name in model.tensors if "norm" in name]:
        del model.tensors[name]
    for block in blocks(3):
        model.tensor(block + "attn_q_norm.weight", model.random.uniform(0.5, 3, (4, 1)))
        model.vector(block + "layer_output_scale.weight", 1, std=0.5)
        model.vector(block + "attn_output.scale", 1, mean=0.7)
        model.vector(block + "ffn_down.scale", 1, mean=0.7)


@tiny("dots1")
def dots1(model: TinyModel) -> None:
    """The first layer is dense; a sigmoid makes weights, biases count in the choice alone."""
    llama_model(
        model, kv_heads=4, **EXPERTS, expert_shared_count=2, expert_weights_scale=2.5,
        expert_weights_norm=True, expert_gating_func=2, leading_dense_block_count=1,
    )  # fmt: skip
    head_norms(model)
    experts(model, first=1, shared=64)
    for layer in (1, 2):
        model.vector(f"blk.{layer}.exp_probs_b.bias", 8, std=0.5)


# The first layer is dense; two shared experts.
llama_like(
    "deepseek", "deepseek", partial(experts, first=1, shared=64), kv_heads=4,
    rope__dimension_count=16, rope__scaling__type="none", **EXPERTS, expert_shared_count=2,
    expert_weights_scale=1.0, leading_dense_block_count=1,
)  # fmt: skip
# Tied embeddings, linear positions.
llama_like(
    "deepseek-linear", "deepseek", partial(experts, first=1, shared=32), tied=True, kv_heads=4,
    rope__dimension_count=16, **linear_scaling(4.0), **EXPERTS, expert_shared_count=1,
    leading_dense_block_count=1,
)  # fmt: skip


ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output")
FEED_FORWARD = ("ffn_gate", "ffn_up", "ffn_down")
LEVELS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def nvfp4(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Round to four bits, 16 numbers sharing a scale; return them and GGUF's blocks."""
    parts = weight.reshape(-1, 16)
    exponent = np.round(np.log2(np.abs(parts).max(axis=1, keepdims=True) / 6))
    scaled = parts / np.exp2(exponent)
    level = np.abs(np.abs(scaled)[..., None] - LEVELS).argmin(-1)
    values = np.where(scaled < 0, -1, 1) * LEVELS[level] * np.exp2(exponent)
    codes = (level + 8 * (scaled < 0)).astype(np.uint8)
    # A block: four scales with four bits of exponent and three of fraction, then the codes.
    scales = ((exponent + 7) * 8).astype(np.uint8).reshape(-1, 4)
    packed = (codes[:, :8] | codes[:, 8:] << 4).reshape(-1, 32)
    blocks = np.concatenate([scales, packed], axis=1)
    return values.reshape(weight.shape), blocks.reshape(*weight.shape[:-1], -1)


def add_scales(model: TinyModel, parts) -> None:
    """Give each part of each layer a scale, or one for each expert, and one for its inputs."""
    for name in [f"blk.{layer}.{part}" for layer in range(3) for part in parts]:
        weight = model.tensors[f"{name}.weight"]
        count = len(weight) if weight.ndim > 2 else 1
        scale = model.random.uniform(0.002, 0.006, count)
        whole = weight / scale.reshape(-1, *(1,) * (weight.ndim - 1))
        values, model.blocks[f"{name}.weight"] = nvfp4(whole)
        model.tensor(f"{name}.weight", values)
        model.tensor(f"{name}.scale", scale)
        model.tensor(f"{name}.input_scale", np.full(count, 0.01))


@tiny("llama-scales", "llama")
def llama_scales(model: TinyModel) -> None:
    llama_model(model, feed_forward=128, rope__dimension_count=16)
    for layer in range(3):
        for part, size in zip(ATTENTION, (64, 32, 32, 64), strict=True):
            model.vector(f"blk.{layer}.{part}.bias", size)
    add_scales(model, (*ATTENTION, *FEED_FORWARD))


@tiny("qwen3moe-scales", "qwen3moe")
def qwen3moe_scales(model: TinyModel) -> None:
    keys = {**EXPERTS, "expert_feed_forward_length": 64}
    llama_model(model, head_dim=32, rope_base=1000000.0, **keys)
    head_norms(model, head_dim=32)
    experts(model, feed_forward=64)
    add_scales(model, (*ATTENTION, *(f"{part}_exps" for part in FEED_FORWARD)))
