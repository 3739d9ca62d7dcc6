"""Parts of mixtures of experts and of blocks that draft, and families that are mixtures only."""

import numpy as np

from tiny_architectures.builder import EXPERTS, TinyModel, blocks, tiny, yarn


def expert_stacks(
    model: TinyModel, block, *, experts=8, feed_forward=32, width=64, bias=False, fused=False,
    std=1.0,
):  # fmt: skip
    """Add the stacks of gate, up and down, gate and up as one with `fused`."""
    up = {"gate_up": 2 * feed_forward} if fused else {"gate": feed_forward, "up": feed_forward}
    for part, rows in up.items():
        model.matrix(f"{block}ffn_{part}_exps.weight", experts, rows, width, std=std)
        if bias:
            model.tensor(
                f"{block}ffn_{part}_exps.bias", model.random.normal(0, 0.5, (experts, rows))
            )
    model.matrix(f"{block}ffn_down_exps.weight", experts, width, feed_forward)
    if bias:
        model.tensor(f"{block}ffn_down_exps.bias", model.random.normal(0, 0.5, (experts, width)))


def mixture(
    model: TinyModel, block, *, count=8, feed_forward=32, shared=0, bias=None, fused=False, std=1.0
) -> None:
    """Add a router, with biases around `bias`, the stacks, and an expert `shared` wide for all."""
    # Wide, so that the chosen experts' weights differ.
    model.linear(block + "ffn_gate_inp", count, 64, std=2)
    if bias is not None:
        model.vector(block + "exp_probs_b.bias", count, mean=bias, std=0.5)
    expert_stacks(model, block, experts=count, feed_forward=feed_forward, fused=fused, std=std)
    if shared:
        model.gated(block, "_shexp", feed_forward=shared)


def feed_forward(model: TinyModel, block, dense, **options) -> None:
    """Add a dense part, or a mixture with these options."""
    if dense:
        model.gated(block)
    else:
        mixture(model, block, **options)


def head_norms(model: TinyModel, block, head_dim) -> None:
    model.norm(block + "attn_q_norm", head_dim)
    model.norm(block + "attn_k_norm", head_dim, mean=1.5)


def experts(model: TinyModel, *, first=0, count=8, feed_forward=32, shared=0) -> None:
    """Put a mixture in the place of dense feed-forward parts, from layer `first` on."""
    for block in blocks(first, 3):
        for part in ("gate", "up", "down"):
            model.tensors.pop(f"{block}ffn_{part}.weight", None)
        mixture(model, block, count=count, feed_forward=feed_forward, shared=shared)


def drafting_block(
    model: TinyModel, layer, names=("nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm")
) -> None:
    """Add to the last block what makes it predict a further token; nothing runs it."""
    model.linear(f"blk.{layer}.nextn.eh_proj", 64, 128)
    for name in names:
        model.norm(f"blk.{layer}.{name}", 64)


def attention(model: TinyModel, block, *, head_dim=16, fused=False) -> None:
    model.norm(block + "attn_norm", 64)
    if fused:
        model.linear(block + "attn_qkv", 8 * head_dim, 64, std=2)
        model.linear(block + "attn_output", 64, 4 * head_dim)
    else:
        model.attention(block, head_dim=head_dim)
    model.norm(block + "ffn_norm", 64)


@tiny("hunyuan-moe")
def hunyuan_moe(model: TinyModel) -> None:
    """Norms of q and k after the rotation, a dense part beside the experts."""
    model.sizes(
        feed_forward=32, rope_base=11158839.0, **EXPERTS, expert_shared_count=1,
        expert_shared_feed_forward_length=96, rope__scaling__type="none", rope__scaling__factor=1.0,
    )  # fmt: skip
    model.frame(64, tied=True, std=0.12)
    for block in blocks(3):
        attention(model, block)
        # Of unequal elements, so that norm and rotation do not change places.
        model.vector(block + "attn_q_norm.weight", 16, mean=1.0, std=0.5)
        model.vector(block + "attn_k_norm.weight", 16, mean=1.0, std=0.5)
        mixture(model, block, shared=96)


@tiny("minimax-m2")
def minimax_m2(model: TinyModel) -> None:
    """Norms over all heads, half of each head rotated."""
    model.sizes(feed_forward=32, rope_base=5000000.0, head_dim=32)
    model.keys(rope__dimension_count=16, **EXPERTS, expert_gating_func=2)
    model.frame(64)
    for block in blocks(3):
        attention(model, block, head_dim=32)
        model.norm(block + "attn_q_norm", 128)
        model.norm(block + "attn_k_norm", 64)
        mixture(model, block, bias=-0.3)


@tiny("bailingmoe")
def ling(model: TinyModel) -> None:
    """Ling 1: softmax, q, k and v apart."""
    model.sizes(
        rope__dimension_count=16, leading_dense_block_count=0, **EXPERTS, expert_shared_count=2,
        expert_weights_scale=1.0, expert_weights_norm=True,
    )  # fmt: skip
    model.frame(64)
    for block in blocks(3):
        attention(model, block)
        mixture(model, block, shared=64)


@tiny("bailingmoe2")
def ling_2(model: TinyModel) -> None:
    """Ling 2: sigmoid with a bias, groups, half of each head rotated, a last block for drafting."""
    model.sizes(
        layers=4, rope__dimension_count=8, leading_dense_block_count=1, **EXPERTS,
        expert_shared_count=1, expert_shared_feed_forward_length=48, expert_weights_scale=2.5,
        expert_weights_norm=True, expert_gating_func=2, expert_group_count=4,
        expert_group_used_count=2, nextn_predict_layers=1,
    )  # fmt: skip
    model.frame(64)
    for layer, block in enumerate(blocks(4)):
        attention(model, block, fused=True)
        head_norms(model, block, 16)
        feed_forward(model, block, layer == 0, shared=48, bias=-0.8)
    drafting_block(model, 3)
    model.norm("blk.3.layer_output_norm", 64)


@tiny("afmoe")
def trinity(model: TinyModel) -> None:
    """Windows, gated attention, norms before and after each part, a wide embedding."""
    model.sizes(
        layers=5, head_dim=32, rope__dimension_count=32, attention__sliding_window=8,
        leading_dense_block_count=2, **EXPERTS, expert_shared_count=1, expert_weights_norm=True,
        expert_weights_scale=2.8,
    )  # fmt: skip
    model.frame(64, std=0.1)
    for layer, block in enumerate(blocks(5)):
        attention(model, block, head_dim=32)
        model.linear(block + "attn_gate", 128, 64, std=2)
        head_norms(model, block, 32)
        model.norm(block + "post_attention_norm", 64)
        model.norm(block + "post_ffw_norm", 64)
        feed_forward(model, block, layer < 2, shared=32, bias=-0.3)


@tiny("minimax-m3")
def minimax_m3(model: TinyModel) -> None:
    """Norms of heads, half of each rotated, a dense layer; indexers choose two blocks of eight."""
    model.sizes(
        rope_base=5000000.0, head_dim=32, rope__dimension_count=16, **EXPERTS, expert_gating_func=2,
        expert_shared_count=2, expert_weights_scale=2.0, expert_weights_norm=True,
        leading_dense_block_count=1, attention__indexer__head_count=2,
        attention__indexer__key_length=32, attention__indexer__top_k=2,
        attention__indexer__block_size=8, attention__indexer__local_blocks=1,
    )  # fmt: skip
    model.frame(64)
    for layer, block in enumerate(blocks(3)):
        attention(model, block, head_dim=32)
        head_norms(model, block, 32)
        if layer == 0:
            model.gated(block)
            continue
        model.linear(block + "indexer.q_proj", 2 * 32, 64)
        model.linear(block + "indexer.k_proj", 32, 64)
        model.norm(block + "indexer.q_norm", 32)
        model.norm(block + "indexer.k_norm", 32)
        mixture(model, block, shared=64, bias=-0.8)


def exaone_moe_blocks(model: TinyModel, *, layers, dense) -> None:
    """Windows, in which alone positions rotate, norms of q and k, a dense layer."""
    model.sizes(
        layers=layers, rope_base=1000000.0, head_dim=16, **EXPERTS, attention__sliding_window=8,
        rope__scaling__type="none",
        attention__sliding_window_pattern=[layer % 4 < 3 for layer in range(5)],
        rope__dimension_count=16, leading_dense_block_count=1, expert_shared_count=1,
        expert_shared_feed_forward_length=32, expert_gating_func=2, expert_weights_norm=True,
        expert_weights_scale=2.5, expert_group_count=1, expert_group_used_count=1,
    )  # fmt: skip
    model.frame(64)
    for layer, block in enumerate(blocks(layers)):
        attention(model, block)
        head_norms(model, block, 16)
        feed_forward(model, block, layer in dense, shared=32, bias=-0.8)


@tiny("exaone-moe")
def exaone_moe(model: TinyModel) -> None:
    """With a last block for drafting, which has no experts."""
    exaone_moe_blocks(model, layers=6, dense=(0, 5))
    model.key("nextn_predict_layers", 1)
    drafting_block(model, 5)


@tiny("exaone-moe-factors", "exaone-moe")
def exaone_moe_factors(model: TinyModel) -> None:
    """With factors of the rotary frequencies, beside which llama.cpp takes no block for drafting."""
    exaone_moe_blocks(model, layers=5, dense=(0,))
    model.tensor("rope_freqs.weight", np.linspace(1, 4, 8))


@tiny("mellum")
def mellum(model: TinyModel) -> None:
    """Windows with another base, scaled positions in the layers without one."""
    model.sizes(
        layers=5, rope_base=500000.0, **EXPERTS, **yarn(4.0, 64), attention__sliding_window=8,
        rope__freq_base_swa=500000.0, rope__dimension_count=16,
        attention__sliding_window_pattern=[layer % 4 < 3 for layer in range(5)],
    )  # fmt: skip
    model.frame(64)
    for block in blocks(5):
        attention(model, block)
        head_norms(model, block, 16)
        mixture(model, block)


def mimo_blocks(model: TinyModel, *, layers, fused) -> None:
    for layer, block in enumerate(blocks(layers)):
        windowed = layer in (1, 2)
        key = 64 if windowed else 32
        values = key * 3 // 4
        model.norm(block + "attn_norm", 64)
        if fused:
            model.linear(block + "attn_qkv", 128 + key + values, 64, std=2)
        else:
            model.linear(block + "attn_q", 128, 64, std=2)
            model.linear(block + "attn_k", key, 64, std=2)
            model.linear(block + "attn_v", values, 64)
        model.linear(block + "attn_output", 64, 96)
        if windowed:
            model.vector(block + "attn_sinks.weight", 4, std=2)
        model.norm(block + "ffn_norm", 64)
        feed_forward(model, block, layer == 0, bias=-0.3)


def mimo_sizes(model: TinyModel, *, layers) -> None:
    model.sizes(
        layers=layers, rope_base=5000000.0,
        attention__head_count_kv=[2 if layer in {1, 2} else 1 for layer in range(layers)],
        attention__key_length=32, attention__value_length=24, rope__dimension_count=16,
        attention__sliding_window=8, rope__freq_base_swa=1000.0,
        attention__sliding_window_pattern=[layer in {1, 2} for layer in range(layers)], **EXPERTS,
    )  # fmt: skip


@tiny("mimo2")
def mimo(model: TinyModel) -> None:
    """Heads by the layer's kind, narrow values, sinks of windowed layers, q, k and v apart."""
    mimo_sizes(model, layers=4)
    model.frame(64)
    mimo_blocks(model, layers=4, fused=False)


@tiny("mimo2-fused", "mimo2")
def mimo_fused(model: TinyModel) -> None:
    """q, k and v in one, scaled values, a last block for drafting."""
    mimo_sizes(model, layers=5)
    model.keys(nextn_predict_layers=1, attention__value_scale=0.7)
    model.frame(64)
    mimo_blocks(model, layers=5, fused=True)
    drafting_block(model, 4, ("nextn.enorm", "nextn.hnorm", "layer_output_norm"))


def llama4_blocks(model: TinyModel, *, experts, step) -> None:
    model.sizes(
        layers=4, rope_base=500000.0, head_dim=32, rope__dimension_count=32, expert_count=experts,
        expert_used_count=1, expert_feed_forward_length=32, interleave_moe_layer_step=step,
    )  # fmt: skip
    model.frame(64)
    for layer, block in enumerate(blocks(4)):
        model.norm(block + "attn_norm", 64)
        model.attention(block, head_dim=32)
        model.norm(block + "ffn_norm", 64)
        if (layer + 1) % step:
            model.gated(block)
            continue
        model.linear(block + "ffn_gate_inp", experts, 64)
        expert_stacks(model, block, experts=experts, std=2)
        model.gated(block, "_shexp", feed_forward=32)


@tiny("llama4")
def scout(model: TinyModel) -> None:
    """Scout: experts in each layer, norms of q and k, rotary factors."""
    llama4_blocks(model, experts=16, step=1)
    model.tensor("rope_freqs.weight", np.linspace(1, 8, 16))


@tiny("llama4-maverick", "llama4")
def maverick(model: TinyModel) -> None:
    """Maverick: experts in every second layer, no norms."""
    llama4_blocks(model, experts=128, step=2)


def step35_blocks(model: TinyModel, *, layers, fused=False, drafting=0) -> None:
    """Windows with other heads, another base and whole rotation, gates of heads, clamped layers."""
    count = layers + drafting
    model.sizes(
        layers=count, head_dim=32,
        attention__head_count=[2 if layer % 4 == 0 else 4 for layer in range(count)],
        attention__head_count_kv=[1 if layer % 4 == 0 else 2 for layer in range(count)],
        attention__sliding_window=8, rope__freq_base=500000.0, rope__freq_base_swa=10000.0,
        attention__sliding_window_pattern=[layer % 4 > 0 for layer in range(count)],
        rope__dimension_count=32, leading_dense_block_count=1, **EXPERTS,
        expert_shared_feed_forward_length=48, expert_weights_scale=3.0, expert_weights_norm=True,
        swiglu_clamp_exp=[0.0, 0.0, 0.5, 0.0, 0.0, 0.0][:count],
        swiglu_clamp_shexp=[0.4, 0.0, 0.3, 0.0, 0.0, 0.0][:count],
    )  # fmt: skip
    model.frame(64)
    for layer, block in enumerate(blocks(count)):
        heads = 2 if layer % 4 == 0 else 4
        model.norm(block + "attn_norm", 64)
        if fused:
            model.linear(block + "attn_qkv", 2 * heads * 32, 64, std=2)
            model.linear(block + "attn_output", 64, heads * 32)
        else:
            model.attention(block, heads=heads, kv_heads=heads // 2, head_dim=32)
        model.linear(block + "attn_gate", heads, 64, std=2)
        head_norms(model, block, 32)
        model.norm(block + "ffn_norm", 64)
        feed_forward(model, block, layer == 0, shared=48, bias=-0.8)


@tiny("step35")
def step35(model: TinyModel) -> None:
    """With a last block for drafting."""
    step35_blocks(model, layers=5, drafting=1)
    model.key("nextn_predict_layers", 1)
    drafting_block(model, 5)


@tiny("step35-fused", "step35")
def step35_fused(model: TinyModel) -> None:
    step35_blocks(model, layers=4, fused=True)


def laguna_blocks(model: TinyModel, *, heads) -> None:
    """Norms and gates of heads, of which each layer has its own number; a dense layer."""
    model.sizes(
        layers=len(heads), head_dim=32, attention__head_count=list(heads), rope__dimension_count=16,
        leading_dense_block_count=1, **EXPERTS, expert_shared_feed_forward_length=48,
        expert_weights_scale=2.5, expert_weights_norm=True, **yarn(4.0, 64),
    )  # fmt: skip
    model.frame(64)
    for layer, (block, count) in enumerate(zip(blocks(len(heads)), heads, strict=True)):
        model.norm(block + "attn_norm", 64)
        model.attention(block, heads=count, head_dim=32)
        model.linear(block + "attn_gate", count, 64, std=2)
        head_norms(model, block, 32)
        model.norm(block + "ffn_norm", 64)
        feed_forward(model, block, layer == 0, shared=48, bias=-0.8)


@tiny("laguna")
def laguna(model: TinyModel) -> None:
    """Windows in which whole heads rotate by another base."""
    laguna_blocks(model, heads=(2, 4, 4, 4, 2, 4))
    model.keys(
        attention__sliding_window=8, rope__freq_base=500000.0, rope__freq_base_swa=10000.0,
        rope__dimension_count_swa=32,
    )  # fmt: skip


@tiny("laguna-full", "laguna")
def laguna_full(model: TinyModel) -> None:
    laguna_blocks(model, heads=(4, 4, 4))
