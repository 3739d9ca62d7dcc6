"""Llama 4, its text part."""

from collections.abc import Mapping

from akunu_py.gguf.architectures import blocks, decoder, experts
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import module, place
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import FREQUENCY_FACTORS, frequency_factors, rope_base, rope_scaling

_BODY = "language_model.model"
_LAYER = f"{_BODY}.layers.{{}}"
_CHUNK = 8192
_MAVERICK_EXPERTS = 128


def read_llama4(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan for `mlx_lm.models.llama4`.

    Rows rotate as neighbours in both programs. Every fourth layer attends to everything, without
    positions; the others in chunks. That, the size of a chunk and that Maverick alone has no norm
    of q and k has no key: llama.cpp knows it, and Maverick by its 128 experts.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    decoder.require_whole_heads(keys, sizes.head_dim)
    if keys.integer("attention.sliding_window", _CHUNK, low=0) == 0:
        raise keys.unsupported("attention.sliding_window", 0, "layers that attend in chunks")
    if sizes.num_layers % 4:
        raise keys.unsupported("block_count", sizes.num_layers, "a multiple of four layers")
    if keys.integer("attention.sliding_window_pattern", 4) != 4:
        raise keys.error("attention.sliding_window_pattern", "not 4", "4")
    mixture = experts.read_mixture(keys)
    if mixture.used != 1:
        raise keys.unsupported("expert_used_count", mixture.used, "one expert a token")
    step = keys.integer("interleave_moe_layer_step", high=sizes.num_layers)
    scaling = rope_scaling(keys, sizes.context_length)

    def routed(layer: int) -> bool:
        return (layer + 1) % step == 0

    target = f"{_LAYER}.feed_forward"
    rules = [
        *decoder.frame_rules(sizes.tied, body=_BODY, head="language_model.lm_head", copied=True),
        module("blk.{}.attn_norm", f"{_LAYER}.input_layernorm"),
        *blocks.attention_rules(tensors, sizes, target=f"{_LAYER}.self_attn"),
        module("blk.{}.ffn_norm", f"{_LAYER}.post_attention_layernorm"),
        module("blk.{}.ffn_gate_inp", f"{target}.router", layers=routed),
        *experts.expert_rules(f"{target}.experts", mixture, tensors, layers=routed),
    ]
    for part in ("gate", "up", "down"):
        shared = f"{target}.shared_expert.{part}_proj"
        rules.append(module(f"blk.{{}}.ffn_{part}_shexp", shared, layers=routed))
        rules.append(
            module(
                f"blk.{{}}.ffn_{part}",
                f"{target}.{part}_proj",
                layers=lambda layer: not routed(layer),
            )
        )
    return ModelPlan(
        architecture=keys.architecture,
        model="llama4",
        arguments={
            "model_type": "llama4",
            "text_config": {
                "model_type": "llama4_text",
                "hidden_size": sizes.hidden_size,
                "num_hidden_layers": sizes.num_layers,
                "num_attention_heads": sizes.num_heads,
                "num_key_value_heads": sizes.num_kv_heads,
                "head_dim": sizes.head_dim,
                "vocab_size": sizes.vocabulary_size,
                "max_position_embeddings": sizes.context_length,
                "intermediate_size": mixture.feed_forward_size,
                "intermediate_size_mlp": sizes.feed_forward_size,
                "num_local_experts": mixture.count,
                "num_experts_per_tok": mixture.used,
                "interleave_moe_layer_step": step,
                "attention_chunk_size": _CHUNK,
                "floor_scale": _CHUNK,
                "attn_scale": 0.1,
                "attention_bias": blocks.has_attention_biases(tensors, sizes),
                "use_qk_norm": mixture.count != _MAVERICK_EXPERTS,
                "rms_norm_eps": decoder.rms_eps(keys),
                "rope_theta": rope_base(keys),
                "rope_scaling": scaling,
            },
        },
        placements=place(rules, tensors, sizes.num_layers, ignored=FREQUENCY_FACTORS),
        num_layers=sizes.num_layers,
        context_length=sizes.context_length,
        vocabulary_size=sizes.vocabulary_size,
        rotary=frequency_factors(
            keys, tensors, dims=sizes.head_dim, scaling=scaling, traditional=True
        ),
    )


READERS = {"llama4": read_llama4}
