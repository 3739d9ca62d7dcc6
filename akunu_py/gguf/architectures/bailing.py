"""Ling and Ring: Bailing's mixtures of experts, 1 to 3."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from akunu_py.gguf.names import LAYER, Rule, halves_from_neighbours, module, modules
from akunu_py.gguf.parts import attention, experts, latent_attention, layers, recurrent, rope
from akunu_py.gguf.parts.decoder import MAX_HEAD_DIM, Decoder
from akunu_py.gguf.parts.experts import Gating, Mixture
from akunu_py.gguf.parts.recurrent import Hybrid
from akunu_py.gguf.plan import ModelPlan

_ATTENTION = f"{LAYER}.attention"


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
    return _plan(model, experts.read(model), rules, {})


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
    mixture = experts.read_behind_dense(model)
    return _plan(model, mixture, modules(_ATTENTION, names), arguments)


def bailingmoe3(model: Decoder) -> ModelPlan:
    """Ling 3 for `mlx_lm.models.bailing_moe_v3`: delta nets and latent attention, both with gates.

    The last layer of each group has attention, and so have layers behind the last whole group.
    """
    hybrid = Hybrid.of(model, "delta nets")
    keys, count = hybrid.keys, hybrid.num_layers
    heads = latent_attention.read_heads(hybrid)
    group = hybrid.attention_layers[0] + 1
    whole = count // group * group
    attends = [(layer + 1) % group == 0 or layer >= whole for layer in range(count)]
    if attends != [hybrid.attends(layer) for layer in range(count)]:
        wanted = "attention in the last layer of each group"
        raise keys.unsupported("attention.head_count_kv", "irregular", wanted)
    if not keys.flag("kda.safe_gate", True):
        raise keys.unsupported("kda.safe_gate", False, "decay rates with a lower bound")
    for key in ("swiglu_clamp_exp", "swiglu_clamp_shexp"):
        if any(keys.layer_numbers(key, count, 0.0)):
            raise keys.unsupported(key, "set", "activations that are not clamped")
    if "rope.dimension_sections" in keys:
        sections = keys.integers("rope.dimension_sections")
        raise keys.unsupported("rope.dimension_sections", sections, "positions of text")
    rope.require_unscaled(hybrid)
    head_dim = keys.integer("kda.head_dim", high=MAX_HEAD_DIM)
    mixture = experts.read_behind_dense(hybrid)
    experts.require_sigmoid(hybrid)
    experts.require_normalized(hybrid)
    shared = mixture.feed_forward_size * max(1, experts.shared_count(hybrid))
    return hybrid.plan(
        "bailing_moe_v3",
        [
            *layers.frame(hybrid, "model.word_embeddings"),
            *modules(LAYER, layers.NORMS),
            *latent_attention.rules(hybrid, heads, _ATTENTION, output="dense"),
            *modules(_ATTENTION, {"attn_gate": "g_proj"}, layers=hybrid.attends),
            *recurrent.delta_net_rules(
                hybrid,
                _ATTENTION,
                head_dim,
                {"ssm_f_a": "f_proj", "ssm_g_a": "g_proj"},
                kernel="{}_conv1d.weight",
                # Unlike those of other families, the rates in the file are positive.
                rates=lambda rates: recurrent.log_of_decay(-rates),
            ),
            *experts.rules(hybrid, mixture, shared="shared_experts"),
            *experts.router(mixture, "gate.expert_bias"),
        ],
        {
            **heads.arguments,
            **experts.arguments(hybrid, mixture),
            "head_dim": head_dim,
            "layer_group_size": group,
            "short_conv_kernel_size": recurrent.read_kernel(keys),
            "kda_lower_bound": keys.number("kda.gate_lower_bound", low=-1e3, high=-1e-6),
            "num_shared_experts": 1,
            "moe_shared_expert_intermediate_size": (
                keys.integer("expert_shared_feed_forward_length", 0, low=0) or shared
            ),
        },
    )


def _plan(
    model: Decoder, mixture: Mixture, attention_rules: list[Rule], arguments: Mapping[str, Any]
) -> ModelPlan:
    shared_size = model.keys.integer("expert_shared_feed_forward_length", 0, low=0)
    router = experts.router(mixture, "gate.expert_bias", "gate.gate_proj.weight")
    return model.plan(
        "variants.bailing_moe",
        [
            *layers.frame(model, "model.word_embeddings"),
            *modules(LAYER, layers.NORMS),
            *attention_rules,
            *modules(_ATTENTION, {"attn_output": "dense"}),
            *experts.rules(model, mixture, shared=experts.shared_name(model)),
            *router[: 2 if "moe_router_enable_expert_bias" in arguments else 1],
        ],
        {
            **experts.arguments(model, mixture),
            **arguments,
            "rope_scaling": rope.scaling(model),
            "moe_shared_expert_intermediate_size": shared_size or None,
        },
        rotary=rope.factors(model, dims=arguments.get("rotary_dim")),
    )
