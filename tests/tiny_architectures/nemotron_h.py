"""Nemotron H: one part a layer."""

from tiny_architectures.builder import TinyModel, each_block, tiny
from tiny_architectures.mamba import mamba2_keys, mamba2_mixer

WIDTH, HEADS, KV_HEADS, HEAD_DIM = 64, 4, 2, 32


def nemotron_sizes(model: TinyModel, pattern, *, feed_forward, mixture) -> None:
    """Two epsilons, of which the second counts; `pattern` in the letters of the checkpoints."""
    model.sizes(layers=len(pattern), norm_eps=1e-5, rms_eps=0.02, rope_base=None)
    model.key("attention.head_count_kv", [KV_HEADS if kind in "*N" else 0 for kind in pattern])
    model.key("feed_forward_length", [feed_forward if kind in "-EN" else 0 for kind in pattern])
    model.keys(attention__key_length=HEAD_DIM, attention__value_length=HEAD_DIM)
    model.key("rope.scaling.finetuned", False)
    mamba2_keys(model)
    if mixture:
        model.keys(
            expert_count=8, expert_used_count=3, expert_feed_forward_length=feed_forward,
            expert_shared_count=1, expert_shared_feed_forward_length=96, expert_group_count=1,
            expert_weights_norm=True, expert_weights_scale=2.5,
        )  # fmt: skip


def attention(model: TinyModel, block, *, bias=False) -> None:
    model.attention(block, WIDTH, heads=HEADS, kv_heads=KV_HEADS, head_dim=HEAD_DIM, bias=bias)


def squared(model: TinyModel, block, suffix, *, feed_forward, bias=False) -> None:
    model.linear(f"{block}ffn_up{suffix}", feed_forward, WIDTH, bias=bias)
    model.linear(f"{block}ffn_down{suffix}", WIDTH, feed_forward, bias=bias)


def squared_experts(model: TinyModel, block, *, feed_forward, latent=None) -> None:
    inner = latent or WIDTH
    model.linear(block + "ffn_gate_inp", 8, WIDTH, std=2)
    model.vector(block + "exp_probs_b.bias", 8, std=0.5)
    if latent:
        model.linear(block + "ffn_latent_down", latent, WIDTH)
        model.linear(block + "ffn_latent_up", WIDTH, latent)
    model.matrix(block + "ffn_up_exps.weight", 8, feed_forward, inner)
    model.matrix(block + "ffn_down_exps.weight", 8, inner, feed_forward)
    squared(model, block, "_shexp", feed_forward=96)


@tiny("nemotron_h")
def nemotron_h(model: TinyModel) -> None:
    pattern = "M-M*-*M"
    nemotron_sizes(model, pattern, feed_forward=96, mixture=False)
    model.frame(WIDTH)
    for block, kind in each_block(pattern):
        model.norm(block + "attn_norm", WIDTH)
        if kind == "M":
            mamba2_mixer(model, block)
        elif kind == "*":
            attention(model, block, bias=True)
        else:
            squared(model, block, "", feed_forward=96, bias=True)


def mixture_model(model: TinyModel, pattern, latent) -> None:
    nemotron_sizes(model, pattern, feed_forward=32, mixture=True)
    model.frame(WIDTH, tied=latent is None, std=0.3)
    for block, kind in each_block(pattern):
        model.norm(block + "attn_norm", WIDTH)
        if kind == "M":
            mamba2_mixer(model, block)
        if kind in "*N":
            attention(model, block)
        if kind in "EN":
            squared_experts(model, block, feed_forward=32, latent=latent)
        if kind == "N":
            for name in ("enorm", "hnorm", "shared_head_norm"):
                model.norm(f"{block}nextn.{name}", WIDTH)
            model.linear(block + "nextn.eh_proj", WIDTH, 2 * WIDTH)
            model.norm(block + "post_attention_norm", WIDTH)


@tiny("nemotron_h_moe")
def nemotron_h_moe(model: TinyModel) -> None:
    """Experts of a narrow space of their own; a block for a further token."""
    model.key("nextn_predict_layers", 1)
    model.key("moe_latent_size", 32)
    mixture_model(model, "ME*EMN", 32)


@tiny("nemotron_h_moe-wide", "nemotron_h_moe")
def nemotron_h_moe_wide(model: TinyModel) -> None:
    mixture_model(model, "*EME", None)


@tiny("nemotron_h_moe-puzzle", "nemotron_h_moe")
def nemotron_h_puzzle(model: TinyModel) -> None:
    """Experts that differ in width and in how many are chosen from layer to layer."""
    widths, used = [0, 32, 0, 64, 96], [0, 2, 0, 3, 5]
    nemotron_sizes(model, "ME*EE", feed_forward=32, mixture=True)
    model.keys(
        feed_forward_length=widths, expert_feed_forward_length=widths, expert_used_count=used,
    )  # fmt: skip
    model.frame(WIDTH)
    for layer, kind in enumerate("ME*EE"):
        block = f"blk.{layer}."
        model.norm(block + "attn_norm", WIDTH)
        if kind == "M":
            mamba2_mixer(model, block)
        elif kind == "*":
            attention(model, block)
        else:
            squared_experts(model, block, feed_forward=widths[layer])
