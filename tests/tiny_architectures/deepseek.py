"""DeepSeek 2 and 3, and MiniCPM 3: attention over a latent vector."""

import numpy as np

from tiny_architectures.builder import EXPERTS, TinyModel, blocks, tiny, yarn
from tiny_architectures.mixtures import drafting_block, feed_forward

HEADS, PLAIN, ROTATED, VALUE, LATENT = 4, 32, 16, 32, 32


def latent_sizes(model: TinyModel, *, split=True, query_latent=32, **values) -> None:
    """Keys of attention over a latent vector; old files have them for whole heads."""
    model.sizes(
        kv_heads=1 if split else HEADS, **values, attention__kv_lora_rank=LATENT,
        rope__dimension_count=ROTATED,
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


@tiny("deepseek2")
def deepseek_v3(model: TinyModel) -> None:
    """V3: sigmoid with a bias, groups, normed and scaled weights, yarn, a block for drafting."""
    latent_sizes(model, layers=4)
    model.keys(
        leading_dense_block_count=1, **EXPERTS, expert_shared_count=1, expert_gating_func=2,
        expert_weights_norm=True, expert_weights_scale=2.5, expert_group_count=4,
        expert_group_used_count=2, **yarn(8.0, 16), rope__scaling__yarn_log_multiplier=0.1,
        nextn_predict_layers=1,
    )  # fmt: skip
    model.frame(64)
    for layer, block in enumerate(blocks(4)):
        latent_attention(model, block)
        feed_forward(model, block, layer == 0, shared=32, bias=-0.8)
    # Not run: the last block drafts.
    drafting_block(model, 3)


@tiny("deepseek2-v2", "deepseek2")
def deepseek_v2(model: TinyModel) -> None:
    """V2: softmax, weights as they are and scaled, groups, yarn of another strength."""
    latent_sizes(model)
    model.keys(
        leading_dense_block_count=1, **EXPERTS, expert_shared_count=2, expert_weights_scale=4.0,
        expert_group_count=4, expert_group_used_count=2, **yarn(40.0, 16),
        rope__scaling__yarn_log_multiplier=0.0707,
    )  # fmt: skip
    model.frame(64)
    for layer, block in enumerate(blocks(3)):
        latent_attention(model, block)
        feed_forward(model, block, layer == 0, shared=64, fused=True)


@tiny("deepseek2-lite", "deepseek2")
def deepseek_v2_lite(model: TinyModel) -> None:
    """V2-Lite in an old file: no latent queries, keys and values from one matrix.

    llama.cpp knows such models by the number of their layers.
    """
    latent_sizes(model, layers=26, split=False, query_latent=0)
    model.keys(
        leading_dense_block_count=24, **EXPERTS, expert_shared_count=2, expert_weights_scale=1.0,
    )  # fmt: skip
    model.frame(64)
    for layer, block in enumerate(blocks(26)):
        latent_attention(model, block, split=False, query_latent=0)
        feed_forward(model, block, layer < 24, shared=64)


@tiny("deepseek2-dense", "deepseek2")
def deepseek_dense(model: TinyModel) -> None:
    """No mixture, the embedding makes the logits: Youtu."""
    latent_sizes(model)
    model.keys(leading_dense_block_count=3, expert_feed_forward_length=96, expert_shared_count=0)
    model.frame(64, tied=True, std=0.3)
    for block in blocks(3):
        latent_attention(model, block)
        model.gated(block)


def sparse_blocks(model: TinyModel, *, layers=3, **keys) -> None:
    """Blocks whose indexers choose eight rows, the last one for drafting."""
    latent_sizes(model, layers=layers + 1)
    model.keys(
        leading_dense_block_count=1, **EXPERTS, expert_shared_count=1, expert_gating_func=2,
        expert_weights_norm=True, expert_weights_scale=2.5, attention__indexer__head_count=8,
        attention__indexer__key_length=64, attention__indexer__top_k=8, nextn_predict_layers=1,
        **keys,
    )  # fmt: skip
    model.frame(64)
    for layer, block in enumerate(blocks(layers + 1)):
        latent_attention(model, block)
        model.linear(block + "indexer.attn_q_b", 8 * 64, 32, std=2)
        model.linear(block + "indexer.attn_k", 64, 64)
        model.norm(block + "indexer.k_norm", 64, bias=True)
        model.linear(block + "indexer.proj", 8, 64)
        feed_forward(model, block, layer == 0, shared=32, bias=-0.8)
    drafting_block(model, layers)


@tiny("deepseek32")
def deepseek32(model: TinyModel) -> None:
    """V3.2: groups of experts, yarn."""
    sparse_blocks(
        model, expert_group_count=4, expert_group_used_count=2, **yarn(8.0, 16),
        rope__scaling__yarn_log_multiplier=0.1,
    )  # fmt: skip


@tiny("glm-dsa")
def glm_dsa(model: TinyModel) -> None:
    """GLM 5."""
    sparse_blocks(model)


@tiny("mistral4")
def mistral4(model: TinyModel) -> None:
    """Queries that grow with the position, extended context, softmax, fused experts."""
    latent_sizes(model)
    model.keys(
        leading_dense_block_count=1, **EXPERTS, expert_shared_count=1, expert_weights_norm=True,
        expert_weights_scale=1.5, **yarn(8.0, 16), rope__scaling__yarn_log_multiplier=0.1,
        attention__temperature_scale=0.3, attention__temperature_length=16,
    )  # fmt: skip
    model.frame(64)
    for layer, block in enumerate(blocks(3)):
        latent_attention(model, block)
        feed_forward(model, block, layer == 0, shared=32, fused=True)


def minicpm3_blocks(model: TinyModel) -> None:
    model.sizes(
        kv_heads=4, attention__q_lora_rank=32, attention__kv_lora_rank=32, attention__key_length=48,
        rope__dimension_count=16,
    )  # fmt: skip
    for block in blocks(3):
        model.norm(block + "attn_norm", 64)
        model.linear(block + "attn_q_a", 32, 64)
        model.norm(block + "attn_q_a_norm", 32)
        model.linear(block + "attn_q_b", 4 * 48, 32, std=2)
        model.linear(block + "attn_kv_a_mqa", 48, 64, std=2)
        model.norm(block + "attn_kv_a_norm", 32)
        model.linear(block + "attn_kv_b", 4 * (32 + 16), 32)
        model.linear(block + "attn_output", 64, 64)
        model.norm(block + "ffn_norm", 64)
        model.gated(block)


@tiny("minicpm3")
def minicpm3(model: TinyModel) -> None:
    """The embedding makes the logits; factors of the rotary frequencies."""
    model.frame(64, tied=True, std=0.02)
    minicpm3_blocks(model)
    model.tensor("rope_factors_short.weight", np.linspace(1, 3, 8))
    model.tensor("rope_factors_long.weight", np.linspace(2, 9, 8))


@tiny("minicpm3-plain", "minicpm3")
def minicpm3_plain(model: TinyModel) -> None:
    model.frame(64, std=0.1)
    minicpm3_blocks(model)
