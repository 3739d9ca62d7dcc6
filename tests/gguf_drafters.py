"""EAGLE-3, DFlash, DFlash 2 and DSpark heads as GGUF files, in the layout of llama.cpp's converter.

Names were read in its `gguf-py` and `conversion`; the gguf package on PyPI lacks these architectures.
"""

import numpy as np
from assistants import write_gguf
from dflash_heads import SIZES, tensors_of
from eagle_heads import LLAMA3, eagle_tensors

_LAYER = {
    "input_layernorm": "attn_norm", "hidden_norm": "attn_norm_2", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "attention_conv.base_kernel": "attn_conv_base", "attention_conv.kernel_projection": "attn_conv_proj",
    "mlp_conv.base_kernel": "ffn_conv_base", "mlp_conv.kernel_projection": "ffn_conv_proj",
}  # fmt: skip
_WHOLE = {
    "hidden_norm": "enc.output_norm", "norm": "output_norm", "lm_head": "output", "embed_tokens": "token_embd",
    "candidate_selector.hidden_projection": "selector_hidden",
    "candidate_selector.predecessor_codebook": "selector_predecessor",
    "candidate_selector.successor_codebook": "selector_successor",
    "markov_head.markov_w1": "markov_w1", "markov_head.markov_w2": "markov_w2",
    "confidence_head.proj": "conf_proj",
}  # fmt: skip


def _name(published):
    stem, dot, suffix = published.rpartition(".")
    if suffix not in ("weight", "bias"):
        # Parameters of their own; codebooks become weights.
        stem, dot, suffix = published, "", ""
        if published.endswith("_codebook"):
            dot, suffix = ".", "weight"
    *layer, rest = (
        stem.replace("midlayer.", "layers.0.").split(".", 2) if "layer" in stem[:8] else (stem,)
    )
    name = f"blk.{layer[1]}.{_LAYER[rest]}" if layer else _WHOLE.get(rest, rest)
    return name + dot + suffix


def _permuted(array, heads):
    """Rows of a head in the order in which neighbours rotate, as the converter of llama writes them."""
    return array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def gguf_of_eagle(head):
    args = head.midlayer.args
    arrays = {
        _name(name): np.array(array) for name, array in eagle_tensors(head).items() if name != "t2d"
    }
    for name, heads in (("attn_q", args.num_attention_heads), ("attn_k", args.num_key_value_heads)):
        arrays[f"blk.0.{name}.weight"] = _permuted(arrays[f"blk.0.{name}.weight"], heads)
    if args.rope_scaling == LLAMA3:
        # The factors of the scaling, of which the converter writes a tensor.
        low, high = 32 / LLAMA3["low_freq_factor"], 32 / LLAMA3["high_freq_factor"]
        lengths = 2 * np.pi * args.rope_theta ** (np.arange(0, args.head_dim, 2) / args.head_dim)
        smooth = (32 / lengths - 1) / 3
        between = 1 / ((1 - smooth) / 4 + smooth)
        arrays["rope_freqs.weight"] = np.where(
            lengths < high, 1, np.where(lengths > low, 4, between)
        ).astype(np.float32)
    keys = {
        **_keys(head, args, args.num_attention_heads, args.num_key_value_heads, 1),
        "vocab_size": 97, "rope.dimension_count": args.head_dim,
        "target_layers": list(head.takes), "target_hidden_size": head.width,
        "norm_before_residual": head._norm_before_residual, "norm_before_fc": False,
    }  # fmt: skip
    return _with_ids(arrays), keys


def gguf_of_blocks(head):
    """Tensors and keys of a DFlash, DFlash 2 or DSpark head."""
    attention, args, form = head.layers[0].self_attn, head.layers[0].args, head.form
    arrays = {
        _name(name): np.array(array) for name, array in tensors_of(head).items() if name != "t2d"
    }
    keys = {
        **_keys(head, args, attention.n_heads, attention.n_kv_heads, len(head.layers)),
        "block_size": form.size, "target_layers": list(head.takes),
    }  # fmt: skip
    if any(form.windows):
        keys["attention.sliding_window"] = max(filter(None, form.windows))
        keys["attention.sliding_window_pattern"] = [window is not None for window in form.windows]
    if len(set(form.causal)) == 1 and (form.causal[0] or any(form.windows)):
        keys["attention.causal"] = form.causal[0]
    for key, value in (
        ("logit_scale", form.multiplier), ("final_logit_softcapping", form.cap),
        ("embedding_scale", form.embedding_scale),
    ):  # fmt: skip
        if value not in (None, 1.0):
            keys[key] = value
    if "candidate_selector" in head:
        keys |= {
            "conv_kernel_size": SIZES["taps"], "conv_group_size": SIZES["group"],
            "selector_rank": SIZES["rank"], "selector_top_k": SIZES["candidates"],
        }  # fmt: skip
    if "markov_head" in head:
        keys |= {
            "sample_from_anchor": form.last_guesses,
            "has_confidence_head": "confidence_head" in head,
        }
    return _with_ids(arrays), keys


def _keys(head, args, heads, groups, count):
    return {
        "block_count": count, "context_length": 1000, "embedding_length": args.hidden_size,
        "feed_forward_length": args.intermediate_size, "attention.head_count": heads,
        "attention.head_count_kv": groups, "attention.key_length": args.head_dim,
        "attention.value_length": args.head_dim, "rope.freq_base": float(args.rope_theta),
        "attention.layer_norm_rms_epsilon": args.rms_norm_eps,
    }  # fmt: skip


def _with_ids(arrays):
    """With the ids of a draft vocabulary in place of their offsets."""
    if "d2t" in arrays:
        arrays["d2t"] = arrays["d2t"] + np.arange(arrays["d2t"].size)
    return arrays


def write_drafter(path, tensors, keys, *, kind=None, mask=96):
    """Write the file of a head; `kind` is the type of its matrices."""
    architecture = "dflash" if "block_size" in keys else "eagle3"
    other = {"tokenizer.ggml.mask_token_id": mask} if architecture == "dflash" else {}
    return write_gguf(path, tensors, keys, architecture, kind, other)
