"""Gemma 1 to 4, and Gemma 3n."""

import numpy as np

from tiny_architectures.builder import TinyModel, blocks, linear_scaling, tiny, yarn
from tiny_architectures.mixtures import expert_stacks

NORM = 1.4
"""Norms are stored plus one, so that both the one and the rest count."""


def gemma_blocks(
    model: TinyModel, *, layers=3, width=64, heads=4, kv_heads=2, head_dim=32, four_norms=True,
    head_norms=False, feed_forward=96, post=NORM, query=1.2,
):  # fmt: skip
    for block in blocks(layers):
        model.norm(block + "attn_norm", width, mean=NORM)
        if head_norms:
            model.norm(block + "attn_q_norm", head_dim, mean=query)
            model.norm(block + "attn_k_norm", head_dim, mean=query)
        model.attention(block, width, heads=heads, kv_heads=kv_heads, head_dim=head_dim, std=query)
        if four_norms:
            model.norm(block + "post_attention_norm", width, mean=post)
            # llama.cpp's GELU has half precision, so that much of this part hides other errors.
            model.norm(block + "post_ffw_norm", width, mean=post / 3)
        model.norm(block + "ffn_norm", width, mean=NORM)
        model.gated(block, feed_forward=feed_forward, width=width)


def gemma_frame(model: TinyModel, width=64, *, tied=True) -> None:
    """Rows so short that a token does not foretell itself, though its row makes its logit."""
    model.frame(width, tied=tied, std=0.02)


@tiny("gemma")
def gemma(model: TinyModel) -> None:
    model.sizes(kv_heads=1, head_dim=32)
    gemma_frame(model)
    gemma_blocks(model, kv_heads=1, four_norms=False)


@tiny("gemma2")
def gemma2(model: TinyModel) -> None:
    """A window of 8, and caps low enough that scores and logits meet them."""
    model.sizes(layers=4, head_dim=32)
    model.keys(attention__sliding_window=8, attn_logit_softcapping=3.0, final_logit_softcapping=0.3)
    gemma_frame(model)
    gemma_blocks(model, layers=4)


@tiny("gemma2-27b", "gemma2")
def gemma2_27b(model: TinyModel) -> None:
    """As many layers as the size with another scale of the queries; each adds little."""
    model.sizes(
        layers=46, width=32, feed_forward=32, head_dim=32, attention__sliding_window=8,
        attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
    )  # fmt: skip
    gemma_frame(model, 32)
    gemma_blocks(model, layers=46, width=32, feed_forward=32, post=0.2, query=0.7)


@tiny("gemma3")
def gemma3(model: TinyModel) -> None:
    """Two rotary bases, linear scaling of the layers that see everything, six to a period."""
    model.sizes(layers=7, rope_base=1000000.0, head_dim=32)
    model.keys(attention__sliding_window=8, **linear_scaling(8.0))
    gemma_frame(model)
    gemma_blocks(model, layers=7, head_norms=True)


@tiny("gemma3-27b", "gemma3")
def gemma3_27b(model: TinyModel) -> None:
    """As many layers as the size with another scale of the queries; each adds little."""
    model.sizes(layers=62, width=32, feed_forward=32, head_dim=32, attention__sliding_window=8)
    gemma_frame(model, 32)
    gemma_blocks(model, layers=62, width=32, feed_forward=32, head_norms=True, post=0.2, query=0.7)


@tiny("gemma3-capped", "gemma3")
def gemma3_capped(model: TinyModel) -> None:
    """No windows, a cap of the logits, output weights of its own, YaRN: Rnj-1."""
    model.sizes(head_dim=32, final_logit_softcapping=1.0, **yarn(4.0, 32))
    gemma_frame(model, tied=False)
    gemma_blocks(model, head_norms=True)


@tiny("gemma3-pattern", "gemma3")
def gemma3_pattern(model: TinyModel) -> None:
    """The layers' kinds and the base of the windowed ones from the file."""
    model.sizes(
        layers=4, head_dim=32, attention__sliding_window=8,
        attention__sliding_window_pattern=[True, False, True, False], rope__freq_base_swa=500.0,
    )  # fmt: skip
    gemma_frame(model)
    gemma_blocks(model, layers=4, head_norms=True)


def gemma4_sizes(model: TinyModel, windowed, **more) -> None:
    model.sizes(
        layers=len(windowed), rope_base=1000000.0, head_dim=64, attention__key_length_swa=32,
        attention__value_length_swa=32, attention__sliding_window=8,
        attention__sliding_window_pattern=windowed, rope__dimension_count=64,
        rope__dimension_count_swa=32, rope__freq_base_swa=10000.0, final_logit_softcapping=0.3,
        attention__shared_kv_layers=0, embedding_length_per_layer_input=0,
    )  # fmt: skip
    model.keys(**more)


def gemma4_blocks(
    model: TinyModel, windowed, *, width=64, heads=4, kv_heads=(2, 2), values=True,
    feed_forward=(96,) * 10, mixture=False, embedding=0, fused=False,
):  # fmt: skip
    """Norms without the one; `kv_heads` of windowed layers and of others."""
    model.tensor("rope_freqs.weight", np.array([1.0] * 8 + [1e30] * 24))
    if embedding:
        layers = len(windowed)
        rows = len(model.tensors["token_embd.weight"])
        model.matrix("per_layer_token_embd.weight", rows, embedding * layers, std=2)
        model.matrix("per_layer_model_proj.weight", embedding * layers, width, std=8)
        model.norm("per_layer_proj_norm", embedding)
    for layer, window in enumerate(windowed):
        block = f"blk.{layer}."
        head_dim = 32 if window else 64
        keys = (kv_heads[0] if window else kv_heads[1]) * head_dim
        model.norm(block + "attn_norm", width)
        # Queries are not scaled: the norms are what makes scores small.
        model.norm(block + "attn_q_norm", head_dim, mean=0.5)
        model.norm(block + "attn_k_norm", head_dim, mean=0.5)
        model.linear(block + "attn_q", heads * head_dim, width)
        model.linear(block + "attn_k", keys, width)
        if values or window:
            model.linear(block + "attn_v", keys, width)
        model.linear(block + "attn_output", width, heads * head_dim)
        model.norm(block + "post_attention_norm", width)
        model.norm(block + "ffn_norm", width)
        model.norm(block + "post_ffw_norm", width, mean=0.4)
        model.tensor(block + "layer_output_scale.weight", np.array([0.6 + 0.1 * layer]))
        model.gated(block, feed_forward=feed_forward[layer], width=width)
        if mixture:
            for name in ("post_ffw_norm_1", "post_ffw_norm_2", "pre_ffw_norm_2"):
                model.norm(block + name, width)
            model.linear(block + "ffn_gate_inp", 8, width, std=8)
            model.vector(block + "ffn_gate_inp.scale", width, mean=1, std=0.3)
            expert_stacks(model, block, fused=fused)
            model.vector(block + "ffn_down_exps.scale", 8, mean=1, std=0.4)
        if embedding:
            model.linear(block + "inp_gate", embedding, width)
            model.linear(block + "proj", width, embedding)
            model.norm(block + "post_norm", width, mean=0.4)


@tiny("gemma4")
def gemma4(model: TinyModel) -> None:
    """Dense, as the size of 31B: keys are values where everything is seen."""
    windowed = [True, True, False, True, False]
    gemma4_sizes(model, windowed, attention__head_count_kv=[2, 2, 1, 2, 1])
    gemma_frame(model)
    gemma4_blocks(model, windowed, kv_heads=(2, 1), values=False)


@tiny("gemma4-moe", "gemma4")
def gemma4_moe(model: TinyModel) -> None:
    """A mixture, as the size of 26B."""
    windowed = [True, True, False]
    gemma4_sizes(
        model, windowed, attention__head_count_kv=[2, 2, 1], expert_count=8, expert_used_count=2,
        expert_feed_forward_length=32,
    )  # fmt: skip
    gemma_frame(model)
    gemma4_blocks(model, windowed, kv_heads=(2, 1), values=False, mixture=True, fused=True)


@tiny("gemma4-embeddings", "gemma4")
def gemma4_embeddings(model: TinyModel) -> None:
    """Embeddings for every layer, and layers with the keys of others, as the sizes E2B and E4B.

    The last layers' own keys are in the file, and not used; their feed-forward part is twice as
    wide.
    """
    windowed = [True, True, False, True, False]
    sizes = (96, 96, 96, 192, 192)
    gemma4_sizes(
        model, windowed, attention__head_count_kv=1, attention__shared_kv_layers=2,
        embedding_length_per_layer_input=32, feed_forward_length=list(sizes),
    )  # fmt: skip
    gemma_frame(model)
    gemma4_blocks(model, windowed, kv_heads=(1, 1), feed_forward=sizes, embedding=32)


# llama.cpp has these fixed, the cap of the logits too, and that layers from the 21st on have no keys
# of their own.
EMBEDDING, RANK, STREAMS, LAYERS, SPARSE = 256, 64, 4, 22, 10


@tiny("gemma3n")
def gemma3n(model: TinyModel, width=64, heads=4, kv_heads=2, head_dim=32) -> None:
    """The last layers' own keys are in the file, and not used.

    The feed-forward part is wide: llama.cpp's standard deviation of it is that of a sample, the
    class's and Google's that of all, which differ by a part in twice the width.
    """
    feed_forward = 1024
    model.sizes(layers=LAYERS, feed_forward=feed_forward, rope_base=1000000.0)
    pattern = [layer % 5 != 4 for layer in range(LAYERS)]
    sparse = [1.6448533535003662 if layer < SPARSE else float("-inf") for layer in range(LAYERS)]
    model.keys(
        attention__key_length=head_dim, attention__value_length=head_dim,
        attention__sliding_window=8, attention__sliding_window_pattern=pattern,
        attention__shared_kv_layers=LAYERS - 20, embedding_length_per_layer_input=EMBEDDING,
        altup__num_inputs=STREAMS, altup__active_idx=0, activation_sparsity_scale=sparse,
        final_logit_softcapping=30.0,
    )  # fmt: skip
    model.frame(width, tied=True, std=0.02)
    rows = len(model.tensors["token_embd.weight"])
    model.matrix("per_layer_token_embd.weight", rows, EMBEDDING * LAYERS, std=2)
    model.matrix("per_layer_model_proj.weight", EMBEDDING * LAYERS, width, std=8)
    model.norm("per_layer_proj_norm", EMBEDDING)
    for name in ("altup_proj", "altup_unembd_proj"):
        model.matrix(f"{name}.weight", STREAMS - 1, width, width)
    for block in blocks(LAYERS):
        model.norm(block + "attn_norm", width)
        model.norm(block + "attn_q_norm", head_dim, mean=0.3)
        model.norm(block + "attn_k_norm", head_dim, mean=0.3)
        model.attention(block, width, heads=heads, kv_heads=kv_heads, head_dim=head_dim, std=1)
        model.norm(block + "post_attention_norm", width, mean=0.5)
        model.norm(block + "ffn_norm", width)
        model.vector(block + "post_ffw_norm.weight", width, mean=0.02, std=0.01)
        model.gated(block, feed_forward=feed_forward, width=width)
        model.linear(block + "inp_gate", EMBEDDING, width)
        model.linear(block + "proj", width, EMBEDDING)
        model.vector(block + "post_norm.weight", width, mean=0.04, std=0.01)
        model.linear(block + "altup_correct_coef", STREAMS, STREAMS, std=0.3)
        model.norm(block + "altup_correct_scale", width)
        model.linear(block + "altup_predict_coef", STREAMS * STREAMS, STREAMS, std=0.2)
        model.linear(block + "altup_router", STREAMS, width, std=width)
        model.norm(block + "altup_router_norm", width)
        model.linear(block + "laurel_l", RANK, width)
        model.linear(block + "laurel_r", width, RANK)
        model.norm(block + "laurel_post_norm", width, mean=0.3)
