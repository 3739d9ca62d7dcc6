"""Ling and Ring: Bailing's mixtures of experts, 1 and 2."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from akunu_py.gguf.architectures import blocks, decoder, experts
from akunu_py.gguf.architectures.experts import Gating
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, halves_from_neighbours, module, parameter
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import frequency_factors, rope_scaling

_ATTENTION = f"{blocks.LAYER}.attention"
_SCORING = {Gating.SOFTMAX: "softmax", Gating.SIGMOID: "sigmoid"}


def read_bailingmoe(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of Ling 1 for `variants.bailing_moe`.

    Converters split q, k and v, which the class has in one, and reorder the rows of q and k so that
    neighbours rotate together; the class rotates halves.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    blocks.require_plain_heads(keys, sizes)
    # llama.cpp reads the number of dense layers, and has none.
    keys.ignore("leading_dense_block_count")
    query, key = sizes.num_heads * sizes.head_dim, sizes.num_kv_heads * sizes.head_dim
    rows = np.concatenate(
        [
            np.asarray(halves_from_neighbours(sizes.num_heads, sizes.head_dim)),
            query + np.asarray(halves_from_neighbours(sizes.num_kv_heads, sizes.head_dim)),
            query + key + np.arange(key),
        ]
    )
    parts = ("blk.{}.attn_q", "blk.{}.attn_k", "blk.{}.attn_v")
    rules = [module(parts, f"{_ATTENTION}.query_key_value", rows=rows)]
    return _plan(keys, tensors, sizes, attention=rules, arguments={}, dense=0)


def read_bailingmoe2(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of Ling 2 for `variants.bailing_moe`.

    q, k and v are one tensor, as in the class, and halves of a part of each head rotate.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    if (width := sizes.head_dim * sizes.num_heads) != sizes.hidden_size:
        raise keys.unsupported(
            "attention.key_length", sizes.head_dim, f"heads together as wide as {width}"
        )
    if (width := keys.integer("attention.value_length", sizes.head_dim)) != sizes.head_dim:
        raise keys.unsupported("attention.value_length", width, "values as wide as keys")
    gating = experts.read_gating(keys, Gating.NONE)
    if gating not in _SCORING:
        raise keys.unsupported("expert_gating_func", int(gating), "softmax (1) or sigmoid (2)")
    rules = [
        module("blk.{}.attn_qkv", f"{_ATTENTION}.query_key_value"),
        module("blk.{}.attn_q_norm", f"{_ATTENTION}.query_layernorm"),
        module("blk.{}.attn_k_norm", f"{_ATTENTION}.key_layernorm"),
    ]
    arguments = {
        "use_qk_norm": True,
        "rotary_dim": decoder.read_rotated(keys, sizes.head_dim),
        "score_function": _SCORING[gating],
        "moe_router_enable_expert_bias": True,
    }
    dense = keys.integer("leading_dense_block_count", 0, low=0, high=sizes.num_layers)
    return _plan(keys, tensors, sizes, attention=rules, arguments=arguments, dense=dense)


def _plan(
    keys: Keys,
    tensors: Mapping[str, TensorInfo],
    sizes: decoder.Dimensions,
    *,
    attention: list[Rule],
    arguments: dict[str, Any],
    dense: int,
) -> ModelPlan:
    layers = sizes.num_layers
    mixture = experts.read_mixture(keys)
    groups, chosen = experts.read_groups(keys, mixture)
    shared = keys.integer("expert_shared_count", low=0, high=1 << 10)
    target = blocks.FEED_FORWARD
    biased = "moe_router_enable_expert_bias" in arguments

    def routed(layer: int) -> bool:
        return layer >= dense

    embedding, *frame = decoder.frame_rules(sizes.tied)
    rules = [
        module(embedding.sources, "model.word_embeddings"),
        *frame,
        module("blk.{}.attn_norm", f"{blocks.LAYER}.input_layernorm"),
        *attention,
        module("blk.{}.attn_output", f"{_ATTENTION}.dense"),
        module("blk.{}.ffn_norm", f"{blocks.LAYER}.post_attention_layernorm"),
        *blocks.feed_forward_rules(last=dense),
        parameter(
            "blk.{}.ffn_gate_inp.weight",
            f"{target}.gate.gate_proj.weight",
            layers=routed,
            float32=True,
        ),
        *experts.expert_rules(f"{target}.switch_mlp", mixture, tensors, layers=routed),
    ]
    constants = {}
    rotated = arguments.get("rotary_dim", sizes.head_dim)
    if biased:
        path = f"{target}.gate.expert_bias"
        rules.append(
            parameter("blk.{}.exp_probs_b.bias", path, layers=routed, required=False, float32=True)
        )
        constants = {
            path.format(layer): np.zeros(mixture.count, np.float32)
            for layer in range(dense, layers)
            if f"blk.{layer}.exp_probs_b.bias" not in tensors
        }
    if shared:
        rules += blocks.feed_forward_rules(
            f"{target}.shared_experts", sources=blocks.SHARED_EXPERT, first=dense
        )
    scaling = rope_scaling(keys, sizes.context_length)
    shared_size = keys.integer("expert_shared_feed_forward_length", 0, low=0)
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="variants.bailing_moe",
        rules=rules,
        arguments={
            **arguments,
            "rms_norm_eps": decoder.rms_eps(keys),
            "rope_scaling": scaling,
            "first_k_dense_replace": dense,
            "num_experts": mixture.count,
            "num_experts_per_tok": mixture.used,
            "moe_intermediate_size": mixture.feed_forward_size,
            "num_shared_experts": shared,
            "moe_shared_expert_intermediate_size": shared_size or None,
            "n_group": groups,
            "topk_group": chosen,
            "norm_topk_prob": keys.flag("expert_weights_norm", False),
            "routed_scaling_factor": experts.read_weights_scale(keys),
        },
        rotary=frequency_factors(keys, tensors, dims=rotated, scaling=scaling),
        ignored=decoder.extra_blocks(layers, keys.integer("block_count")),
        constants=constants,
    )


READERS = {"bailingmoe": read_bailingmoe, "bailingmoe2": read_bailingmoe2}
