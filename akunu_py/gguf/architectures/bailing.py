"""Ling and Ring: Bailing's mixtures of experts, 1 and 2."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from akunu_py.gguf.names import FEED_FORWARD, LAYER, Rule, halves_from_neighbours, module, modules
from akunu_py.gguf.parts import attention, experts, layers, rope
from akunu_py.gguf.parts.decoder import Decoder
from akunu_py.gguf.parts.experts import Gating
from akunu_py.gguf.plan import ModelPlan

_ATTENTION = f"{LAYER}.attention"
_ROUTER = f"{FEED_FORWARD}.gate.gate_proj.weight"
_ROUTER_BIAS = f"{FEED_FORWARD}.gate.expert_bias"


def bailingmoe(model: Decoder) -> ModelPlan:
    """Ling 1 for `variants.bailing_moe`.

    Converters split q, k and v, which the class fuses, and reorder the rows of q and k so that
    neighbours rotate together; the class rotates halves.
    """
    attention.require_plain_heads(model)
    # llama.cpp reads the number of dense layers, but treats none as dense.
    model.keys.ignore("leading_dense_block_count")
    query, key = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    rows = np.concatenate(
        [
            np.asarray(halves_from_neighbours(model.num_heads, model.head_dim)),
            query + np.asarray(halves_from_neighbours(model.num_kv_heads, model.head_dim)),
            query + key + np.arange(key),
        ]
    )
    parts = [f"blk.{{}}.{part}" for part in attention.INPUTS]
    rules = [module(parts, f"{_ATTENTION}.query_key_value", rows=rows)]
    return _plan(model, rules, {}, dense=0)


def bailingmoe2(model: Decoder) -> ModelPlan:
    """Ling 2 for `variants.bailing_moe`.

    q, k and v are one tensor, as in the class, and part of each head rotates, by halves.
    """
    attention.require_plain_heads(model, partial=True)
    names = {
        "attn_qkv": "query_key_value",
        "attn_q_norm": "query_layernorm",
        "attn_k_norm": "key_layernorm",
    }
    arguments = {
        "use_qk_norm": True,
        "rotary_dim": rope.rotated_dims(model),
        "score_function": experts.scoring(model, Gating.NONE),
        "moe_router_enable_expert_bias": True,
    }
    dense = experts.leading_dense(model)
    return _plan(model, modules(_ATTENTION, names), arguments, dense=dense)


def _plan(
    model: Decoder, attention_rules: list[Rule], arguments: Mapping[str, Any], *, dense: int
) -> ModelPlan:
    mixture = experts.read(model, dense=dense)
    groups, chosen = experts.groups(model, mixture)
    shared = experts.shared_count(model)
    shared_size = model.keys.integer("expert_shared_feed_forward_length", 0, low=0)
    biased = "moe_router_enable_expert_bias" in arguments
    weight, bias = experts.router(mixture.routed, _ROUTER, _ROUTER_BIAS)
    return model.plan(
        "variants.bailing_moe",
        [
            *layers.frame(model, "model.word_embeddings"),
            *modules(LAYER, layers.NORMS),
            *attention_rules,
            *modules(_ATTENTION, {"attn_output": "dense"}),
            *experts.rules(model, mixture, shared="shared_experts" if shared else None),
            weight,
            *([bias] if biased else []),
        ],
        {
            **arguments,
            "rope_scaling": rope.scaling(model),
            "first_k_dense_replace": dense,
            **mixture.arguments(),
            "num_shared_experts": shared,
            "moe_shared_expert_intermediate_size": shared_size or None,
            "n_group": groups,
            "topk_group": chosen,
            "norm_topk_prob": experts.normalizes_weights(model),
            "routed_scaling_factor": experts.weights_scale(model),
        },
        rotary=rope.factors(model, dims=arguments.get("rotary_dim")),
        constants=experts.zero_biases(model, mixture, _ROUTER_BIAS) if biased else None,
        predicts_further=True,
    )
