"""Phi 2, 3 and 4."""

from collections.abc import Mapping

from akunu_py.gguf.architectures import blocks, decoder, windows
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import module
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import LONG_ROPE_TENSORS, long_rope, rotary_layers


def read_phi2(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a Phi 1, 1.5 or 2 model for `mlx_lm.models.phi`."""
    sizes = decoder.read_dimensions(keys, tensors)
    rotated = decoder.read_rotated(keys, sizes.head_dim)
    blocks.require_plain_heads(keys, sizes, rotated=rotated)
    rules = [
        module(decoder.EMBEDDING, "model.embed_tokens"),
        module("output_norm", "model.final_layernorm"),
        module(decoder.OUTPUT, "lm_head"),
        module("blk.{}.attn_norm", f"{blocks.LAYER}.input_layernorm"),
        *blocks.attention_rules(tensors, sizes, output="dense"),
        module("blk.{}.ffn_up", f"{blocks.FEED_FORWARD}.fc1"),
        module("blk.{}.ffn_down", f"{blocks.FEED_FORWARD}.fc2"),
    ]
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="phi",
        rules=rules,
        arguments={
            "layer_norm_eps": decoder.layer_norm_eps(keys),
            # Half a dimension more, against what division loses.
            "partial_rotary_factor": (rotated + 0.5) / sizes.head_dim,
        },
        rotary=rotary_layers(keys, tensors, dims=rotated, context_length=sizes.context_length),
    )


def read_phi3(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a Phi 3, 3.5 or 4 model for `variants.phi3`.

    Files have q, k and v in one tensor, as the class does, or apart; gate and up are always one,
    of the name of up.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    rotated = decoder.read_rotated(keys, sizes.head_dim)
    blocks.require_plain_heads(keys, sizes, rotated=rotated)
    fused = f"blk.0.{blocks.FUSED_ATTENTION}.weight" in tensors
    parts = [blocks.FUSED_ATTENTION] if fused else ["attn_q", "attn_k", "attn_v"]
    # Files of models that were trained without a window can name one that nothing reaches.
    window = windows.read_window(keys, 0)
    rules = [
        *decoder.frame_rules(sizes.tied),
        module("blk.{}.attn_norm", f"{blocks.LAYER}.input_layernorm"),
        module([f"blk.{{}}.{part}" for part in parts], f"{blocks.ATTENTION}.qkv_proj"),
        module("blk.{}.attn_output", f"{blocks.ATTENTION}.o_proj"),
        module("blk.{}.ffn_norm", f"{blocks.LAYER}.post_attention_layernorm"),
        module("blk.{}.ffn_up", f"{blocks.FEED_FORWARD}.gate_up_proj"),
        module("blk.{}.ffn_down", f"{blocks.FEED_FORWARD}.down_proj"),
    ]
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="variants.phi3",
        rules=rules,
        arguments={
            "rms_norm_eps": decoder.rms_eps(keys),
            # Half a dimension more, against what division loses.
            "partial_rotary_factor": (rotated + 0.5) / sizes.head_dim,
            "sliding_window": window if 0 < window < sizes.context_length else None,
        },
        rotary=long_rope(keys, tensors, dims=rotated, context_length=sizes.context_length)
        or rotary_layers(keys, tensors, dims=rotated, context_length=sizes.context_length),
        ignored=LONG_ROPE_TENSORS,
    )


READERS = {"phi2": read_phi2, "phi3": read_phi3}
