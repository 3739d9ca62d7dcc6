"""Command R and R7B, OLMo 2 and 3, LFM 2 (short convolutions, attention where head_count_kv is not 0)."""

from tiny_architectures.builder import (
    EXPERTS,
    VOCABULARY_SIZE,
    TinyModel,
    blocks,
    each_block,
    tiny,
    yarn,
)
from tiny_architectures.mixtures import mixture


def cohere_blocks(
    model: TinyModel, *, layers, width=64, heads=4, kv_heads=2, feed_forward=96, norms=False,
    std=1.5, out=1.0,
):  # fmt: skip
    """One norm a block, without a bias."""
    head_dim = width // heads
    for block in blocks(layers):
        model.norm(block + "attn_norm", width)
        if norms:
            for part, count in (("q", heads), ("k", kv_heads)):
                weight = model.random.normal(1, 0.5, (count, head_dim))
                model.tensor(f"{block}attn_{part}_norm.weight", weight)
        model.attention(
            block, width, heads=heads, kv_heads=kv_heads, head_dim=head_dim, std=std, out_std=out
        )
        model.gated(block, feed_forward=feed_forward, width=width, out_std=out)


@tiny("command-r")
def command_r(model: TinyModel) -> None:
    model.sizes(rms_eps=None, norm_eps=1e-5, rope_base=8000000.0)
    model.keys(logit_scale=0.25, rope__scaling__type="none")
    model.frame(64, tied=True, std=0.1)
    cohere_blocks(model, layers=3)


@tiny("command-r-plus", "command-r")
def command_r_plus(model: TinyModel) -> None:
    """Norms of q and k, which llama.cpp expects in models of 64 layers or more."""
    model.sizes(layers=64, width=32, feed_forward=32, rms_eps=None, norm_eps=1e-5)
    model.keys(logit_scale=0.25, rope__scaling__type="none")
    model.frame(32, tied=True, std=0.1)
    cohere_blocks(model, layers=64, width=32, feed_forward=32, norms=True, out=0.2)


@tiny("cohere2")
def cohere2(model: TinyModel) -> None:
    """Every fourth layer sees everything, without positions."""
    model.sizes(
        layers=5, rms_eps=None, norm_eps=1e-5, logit_scale=0.25, attention__sliding_window=8,
        rope__dimension_count=16, rope__scaling__type="none",
    )  # fmt: skip
    model.frame(64, tied=True, std=0.1)
    cohere_blocks(model, layers=5)


def olmo2_blocks(model: TinyModel, *, layers) -> None:
    model.frame(64)
    for block in blocks(layers):
        model.attention(block, std=1)
        # Over all heads together.
        model.norm(block + "attn_q_norm", 64, mean=1.5)
        model.norm(block + "attn_k_norm", 32, mean=1.5)
        model.norm(block + "post_attention_norm", 64)
        model.gated(block)
        model.norm(block + "post_ffw_norm", 64)


@tiny("olmo2")
def olmo2(model: TinyModel) -> None:
    model.sizes(rms_eps=1e-6, rope_base=500000.0, rope__dimension_count=16)
    olmo2_blocks(model, layers=3)


@tiny("olmo3", "olmo2")
def olmo3(model: TinyModel) -> None:
    """Windowed layers and others, of which the others alone have YaRN."""
    pattern = [True, False, True]
    model.sizes(
        rope_base=500000.0, rope__dimension_count=16, attention__sliding_window=8,
        attention__sliding_window_pattern=pattern, **yarn(8.0, 32),
        rope__scaling__yarn_attn_factor=1.2, rope__scaling__yarn_beta_fast=32.0,
        rope__scaling__yarn_beta_slow=1.0,
    )  # fmt: skip
    olmo2_blocks(model, layers=3)


@tiny("olmo3-default", "olmo2")
def olmo3_default(model: TinyModel) -> None:
    """Every fourth layer without a window, where the file does not say which."""
    model.sizes(layers=5, rope__dimension_count=16, attention__sliding_window=8)
    olmo2_blocks(model, layers=5)


def lfm2_frame(model: TinyModel, kv_heads, **keys):
    model.sizes(layers=len(kv_heads), kv_heads=kv_heads, rope_base=1000000.0, shortconv__l_cache=3)
    model.keys(**keys)
    model.matrix("token_embd.weight", VOCABULARY_SIZE, 64, std=3.0)
    model.norm("token_embd_norm", 64)


def lfm2_operator(model: TinyModel, block, kv_heads):
    model.norm(block + "attn_norm", 64)
    if kv_heads:
        model.attention(block, kv_heads=kv_heads, std=1)
        # The norms set how sharply a head attends.
        model.norm(block + "attn_q_norm", 16, mean=2.0)
        model.norm(block + "attn_k_norm", 16)
    else:
        model.linear(block + "shortconv.in_proj", 3 * 64, 64)
        model.tensor(block + "shortconv.conv.weight", model.random.normal(0, 0.6, (64, 3)))
        model.linear(block + "shortconv.out_proj", 64, 64)
    model.norm(block + "ffn_norm", 64)


@tiny("lfm2")
def lfm2(model: TinyModel) -> None:
    kv_heads = [0, 2, 0, 2]
    lfm2_frame(model, kv_heads)
    for block, count in each_block(kv_heads):
        lfm2_operator(model, block, count)
        model.gated(block)


@tiny("lfm2moe")
def lfm2_moe(model: TinyModel) -> None:
    """One dense layer, then experts, chosen with a bias that changes the choice only."""
    kv_heads = [0, 2, 0]
    lfm2_frame(model, kv_heads, **EXPERTS, expert_gating_func=2, leading_dense_block_count=1)
    for layer, count in enumerate(kv_heads):
        block = f"blk.{layer}."
        lfm2_operator(model, block, count)
        if layer == 0:
            model.gated(block)
            continue
        mixture(model, block, bias=0.0, std=2)
