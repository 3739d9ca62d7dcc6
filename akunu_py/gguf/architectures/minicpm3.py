"""MiniCPM 3: attention over a latent vector, scales without keys."""

from collections.abc import Mapping

from akunu_py.gguf.architectures import blocks, decoder
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import module
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import LONG_ROPE_TENSORS, long_rope, rope_scaling

_PARTS = {
    "attn_q_a": "q_a_proj",
    "attn_q_a_norm": "q_a_layernorm",
    "attn_q_b": "q_b_proj",
    "attn_kv_a_mqa": "kv_a_proj_with_mqa",
    "attn_kv_a_norm": "kv_a_layernorm",
    "attn_kv_b": "kv_b_proj",
    "attn_output": "o_proj",
}


def read_minicpm3(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan for `variants.minicpm3`.

    llama.cpp has the scales of embedding, depth and head of the one model released as constants.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    value = keys.integer("attention.value_length", sizes.hidden_size // sizes.num_heads)
    if value * sizes.num_heads != sizes.hidden_size:
        raise keys.unsupported(
            "attention.value_length", value, "values of all heads as wide as the model"
        )
    if sizes.num_kv_heads != sizes.num_heads:
        raise keys.unsupported(
            "attention.head_count_kv", sizes.num_kv_heads, f"as many as queries, {sizes.num_heads}"
        )
    rotated = decoder.read_rotated(keys, sizes.head_dim)
    if rotated == sizes.head_dim:
        raise keys.error("rope.dimension_count", rotated, f"less than {sizes.head_dim}")
    context = sizes.context_length
    long = long_rope(keys, tensors, dims=rotated, context_length=context)
    if long is None and (scaling := rope_scaling(keys, context)) is not None:
        raise keys.unsupported("rope.scaling.type", scaling["type"], "unscaled positions")
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="variants.minicpm3",
        rules=[
            *decoder.frame_rules(sizes.tied),
            module("blk.{}.attn_norm", f"{blocks.LAYER}.input_layernorm"),
            *(
                module(f"blk.{{}}.{source}", f"{blocks.ATTENTION}.{target}")
                for source, target in _PARTS.items()
            ),
            module("blk.{}.ffn_norm", f"{blocks.LAYER}.post_attention_layernorm"),
            *blocks.feed_forward_rules(),
        ],
        arguments={
            "rms_norm_eps": decoder.rms_eps(keys),
            "q_lora_rank": keys.integer("attention.q_lora_rank"),
            "kv_lora_rank": keys.integer("attention.kv_lora_rank"),
            "qk_rope_head_dim": rotated,
            "qk_nope_head_dim": sizes.head_dim - rotated,
            "dim_model_base": 256,
            "scale_emb": 12.0,
            "scale_depth": 1.4,
            # Plain positions, unless factors of the file take their place.
            "rope_scaling": {"original_max_position_embeddings": context},
        },
        rotary=long,
        ignored=LONG_ROPE_TENSORS,
    )


READERS = {"minicpm3": read_minicpm3}
