"""DeepSeek 2 and 3."""

from tiny_architectures.builder import TinyModel, tiny
from tiny_architectures.mixtures import expert_stacks, gated

HEADS, PLAIN, ROTATED, VALUE, LATENT = 4, 32, 16, 32, 32


def latent_sizes(model: TinyModel, *, split=True, query_latent=32, **values) -> None:
    """Keys of attention over a latent vector; old files have them for whole heads."""
    model.sizes(kv_heads=1 if split else HEADS, **values)
    model.keys(
        attention__kv_lora_rank=LATENT, rope__dimension_count=ROTATED,
        attention__key_length=LATENT + ROTATED if split else PLAIN + ROTATED,
        attention__value_length=LATENT if split else VALUE,
    )  # fmt: skip
    if split:
        model.keys(attention__key_length_mla=PLAIN + ROTATED, attention__value_length_mla=VALUE)
    if query_latent:
        model.key("attention.q_lora_rank", query_latent)


def latent_attention(model: TinyModel, block, *, width=64, split=True, query_latent=32) -> None:
    model.norm(block + "attn_norm", width)
    rows = HEADS * (PLAIN + ROTATED)
    if query_latent:
        model.linear(block + "attn_q_a", query_latent, width)
        model.norm(block + "attn_q_a_norm", query_latent)
        model.linear(block + "attn_q_b", rows, query_latent, std=2)
    else:
        model.linear(block + "attn_q", rows, width, std=2)
    model.linear(block + "attn_kv_a_mqa", LATENT + ROTATED, width, std=2)
    model.norm(block + "attn_kv_a_norm", LATENT)
    if split:
        model.matrix(block + "attn_k_b.weight", HEADS, LATENT, PLAIN)
        model.matrix(block + "attn_v_b.weight", HEADS, VALUE, LATENT)
    else:
        model.linear(block + "attn_kv_b", HEADS * (PLAIN + VALUE), LATENT)
    model.linear(block + "attn_output", width, HEADS * VALUE)
    model.norm(block + "ffn_norm", width)


def mixture(model: TinyModel, block, *, bias=False, shared=32, fused=False) -> None:
    model.linear(block + "ffn_gate_inp", 8, 64, std=2)
    if bias:
        model.vector(block + "exp_probs_b.bias", 8, mean=-0.8, std=0.5)
    expert_stacks(model, block, experts=8, feed_forward=32, width=64, fused=fused)
    if shared:
        gated(model, block, "_shexp", feed_forward=shared, width=64)


@tiny("deepseek2")
def deepseek_v3(model: TinyModel) -> None:
    """V3: sigmoid with a bias, groups, normed and scaled weights, yarn, a block for drafting."""
    latent_sizes(model, layers=4)
    model.keys(
        leading_dense_block_count=1, expert_count=8, expert_used_count=3, expert_shared_count=1,
        expert_feed_forward_length=32, expert_gating_func=2, expert_weights_norm=True,
        expert_weights_scale=2.5, expert_group_count=4, expert_group_used_count=2,
        rope__scaling__type="yarn", rope__scaling__factor=8.0,
        rope__scaling__original_context_length=16, rope__scaling__yarn_log_multiplier=0.1,
        nextn_predict_layers=1,
    )  # fmt: skip
    model.frame(64)
    for layer in range(4):
        block = f"blk.{layer}."
        latent_attention(model, block)
        if layer == 0:
            gated(model, block, "", feed_forward=96, width=64)
        else:
            mixture(model, block, bias=True)
    # Not run: the last block drafts.
    model.linear("blk.3.nextn.eh_proj", 64, 128)
    for name in ("enorm", "hnorm", "shared_head_norm"):
        model.norm(f"blk.3.nextn.{name}", 64)


@tiny("deepseek2-v2", "deepseek2")
def deepseek_v2(model: TinyModel) -> None:
    """V2: softmax, weights as they are and scaled, groups, yarn of another strength."""
    latent_sizes(model)
    model.keys(
        leading_dense_block_count=1, expert_count=8, expert_used_count=3, expert_shared_count=2,
        expert_feed_forward_length=32, expert_weights_scale=4.0, expert_group_count=4,
        expert_group_used_count=2, rope__scaling__type="yarn", rope__scaling__factor=40.0,
        rope__scaling__original_context_length=16, rope__scaling__yarn_log_multiplier=0.0707,
    )  # fmt: skip
    model.frame(64)
    for layer in range(3):
        block = f"blk.{layer}."
        latent_attention(model, block)
        if layer == 0:
            gated(model, block, "", feed_forward=96, width=64)
        else:
            mixture(model, block, shared=64, fused=True)


@tiny("deepseek2-lite", "deepseek2")
def deepseek_v2_lite(model: TinyModel) -> None:
    """V2-Lite in an old file: no latent queries, keys and values from one matrix.

    llama.cpp knows such models by the number of their layers.
    """
    latent_sizes(model, layers=26, split=False, query_latent=0)
    model.keys(
        leading_dense_block_count=24, expert_count=8, expert_used_count=3, expert_shared_count=2,
        expert_feed_forward_length=32, expert_weights_scale=1.0,
    )  # fmt: skip
    model.frame(64)
    for layer in range(26):
        block = f"blk.{layer}."
        latent_attention(model, block, split=False, query_latent=0)
        if layer < 24:
            gated(model, block, "", feed_forward=96, width=64)
        else:
            mixture(model, block, shared=64)


@tiny("deepseek2-dense", "deepseek2")
def deepseek_dense(model: TinyModel) -> None:
    """No mixture, the embedding makes the logits: Youtu."""
    latent_sizes(model)
    model.keys(
        leading_dense_block_count=3, expert_feed_forward_length=96, expert_shared_count=0
    )  # fmt: skip
    model.frame(64, tied=True, std=0.3)
    for layer in range(3):
        block = f"blk.{layer}."
        latent_attention(model, block)
        gated(model, block, "", feed_forward=96, width=64)
