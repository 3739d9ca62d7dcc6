"""Gemma 3n."""

from tiny_architectures.builder import TinyModel, blocks, tiny

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
