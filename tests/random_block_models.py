"""Whole llama models of random blocks, in every GGML type."""

import gguf
import numpy as np
from gguf_files import CHAT_TEMPLATE, add_vocabulary, finish, raw_type
from quant_blocks import random_blocks

WIDTH, FEED_FORWARD, LAYERS = 256, 512, 2


def write_model(path, kind, *, kv_heads=2, others=None, feed_forward=FEED_FORWARD, layers=LAYERS):
    """A llama whose matrices are random blocks, scaled to what a layer needs by d alone.

    `others` are the types of further kinds of tensors, such as {"ffn_down": "Q6_K"}.
    """
    writer = gguf.GGUFWriter(str(path), "llama")
    rows = add_vocabulary(writer, "bpe", chat_template=CHAT_TEMPLATE)
    writer.add_block_count(layers)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(feed_forward)
    writer.add_head_count(4)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(64)
    shapes = {"token_embd": (rows, WIDTH), "output": (rows, WIDTH)}
    for layer in range(layers):
        block = f"blk.{layer}."
        shapes |= {
            block + "attn_q": (WIDTH, WIDTH), block + "attn_k": (64 * kv_heads, WIDTH),
            block + "attn_v": (64 * kv_heads, WIDTH), block + "attn_output": (WIDTH, WIDTH),
            block + "ffn_gate": (feed_forward, WIDTH), block + "ffn_up": (feed_forward, WIDTH),
            block + "ffn_down": (WIDTH, feed_forward),
        }  # fmt: skip
        for norm in ("attn_norm", "ffn_norm"):
            # Small, since random blocks make matrices of any size.
            writer.add_tensor(f"{block}{norm}.weight", np.full(WIDTH, 0.05, np.float32))
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for seed, (name, (out, into)) in enumerate(shapes.items()):
        taken = (others or {}).get(name.rpartition(".")[2], kind)
        _, raw = random_blocks(taken, out, into, seed)
        writer.add_tensor(f"{name}.weight", raw, raw_dtype=raw_type(taken))
    finish(writer)
    return path
