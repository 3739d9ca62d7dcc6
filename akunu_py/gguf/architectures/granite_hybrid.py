"""Granite 4 with state-space layers, dense and as mixtures of experts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from akunu_py.gguf.architectures import decoder, experts
from akunu_py.gguf.architectures.recurrent import (
    NO_LIMIT,
    Hybrid,
    Projections,
    has_query_bias,
    mamba2_rules,
    read_hybrid,
    read_state_space,
)
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, halves_from_neighbours, module, place
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rope_base

_LAYER = "model.layers.{}."


def read_granite_hybrid(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a Granite 4 model of which some layers attend.

    The embeddings, residual sums and attention have scales of their own, and the logits are divided
    by theirs.
    """
    sizes = read_hybrid(keys, tensors)
    if sizes.head_dim * sizes.num_heads != sizes.hidden_size:
        wanted = f"heads of {sizes.hidden_size // sizes.num_heads}"
        raise keys.unsupported("attention.key_length", sizes.head_dim, wanted)
    if all(sizes.attends):
        raise keys.unsupported("attention.head_count_kv", sizes.num_kv_heads, "state-space layers")
    mixer = read_state_space(keys)
    # llama.cpp takes this flag as whether positions rotate at all.
    rotates = keys.flag("rope.scaling.finetuned", True)
    if rotates:
        decoder.require_whole_heads(keys, sizes.head_dim)
    arguments, feed_forward = _feed_forward(keys, tensors)
    rules = [
        *decoder.frame_rules(sizes.tied),
        module("blk.{}.attn_norm", _LAYER + "input_layernorm"),
        module("blk.{}.ffn_norm", _LAYER + "post_attention_layernorm"),
        *mamba2_rules(_LAYER + "mamba", layers=sizes.recurrent),
        *_attention_rules(sizes, tensors),
        *feed_forward,
    ]
    return ModelPlan(
        architecture=keys.architecture,
        model="variants.granite_hybrid",
        arguments={
            **arguments,
            "model_type": "granitemoehybrid",
            "hidden_size": sizes.hidden_size,
            "intermediate_size": keys.integer("feed_forward_length"),
            "num_hidden_layers": sizes.num_layers,
            "num_attention_heads": sizes.num_heads,
            "num_key_value_heads": sizes.num_kv_heads,
            "layer_types": ["attention" if attends else "mamba" for attends in sizes.attends],
            "position_embedding_type": "rope" if rotates else "nope",
            "attention_bias": has_query_bias(tensors),
            "mlp_bias": "blk.0.ffn_up.bias" in tensors,
            "attention_multiplier": _scale(keys, "attention.scale", sizes.head_dim**-0.5),
            "embedding_multiplier": _scale(keys, "embedding_scale", 1.0),
            "residual_multiplier": _scale(keys, "residual_scale", 1.0),
            "logits_scaling": _scale(keys, "logit_scale", 1.0),
            "mamba_n_heads": mixer.heads,
            "mamba_d_head": mixer.head_dim,
            "mamba_d_state": mixer.state_size,
            "mamba_d_conv": mixer.kernel,
            "mamba_n_groups": mixer.groups,
            "mamba_proj_bias": False,
            "mamba_conv_bias": any(name.endswith(".ssm_conv1d.bias") for name in tensors),
            "time_step_limit": NO_LIMIT,
            "rms_norm_eps": decoder.rms_eps(keys),
            "rope_theta": rope_base(keys),
            "vocab_size": sizes.vocabulary_size,
            "max_position_embeddings": sizes.context_length,
            "tie_word_embeddings": sizes.tied,
        },
        placements=place(rules, tensors, sizes.num_layers),
        num_layers=sizes.num_layers,
        context_length=sizes.context_length,
        vocabulary_size=sizes.vocabulary_size,
    )


def _attention_rules(sizes: Hybrid, tensors: Mapping[str, TensorInfo]) -> list[Rule]:
    """Return the rules for attention; the class rotates halves where the file has neighbours."""
    attention = _LAYER + "self_attn"
    orders = tuple(
        np.asarray(halves_from_neighbours(heads, sizes.head_dim))
        for heads in (sizes.num_heads, sizes.num_kv_heads)
    )
    inputs = replace(Projections.of(sizes), orders=(*orders, None))
    return [
        *inputs.rules(attention, tensors, sizes.attention_layers),
        module("blk.{}.attn_output", attention + ".o_proj", layers=sizes.attending),
    ]


def _feed_forward(
    keys: Keys, tensors: Mapping[str, TensorInfo]
) -> tuple[dict[str, Any], list[Rule]]:
    if keys.integer("expert_count", 0, low=0, high=experts.MAX_EXPERTS) == 0:
        keys.ignore("expert_used_count", "expert_shared_feed_forward_length")
        names = {"ffn_gate": "gate_proj", "ffn_up": "up_proj", "ffn_down": "down_proj"}
        return {"num_local_experts": 0}, [
            module(f"blk.{{}}.{source}", f"{_LAYER}mlp.{target}")
            for source, target in names.items()
        ]
    mixture = experts.read_mixture(keys, "feed_forward_length")
    shared = keys.integer("expert_shared_feed_forward_length", 0, low=0)
    if shared == 0:
        wanted = "a part that all tokens go through"
        raise keys.unsupported("expert_shared_feed_forward_length", shared, wanted)
    arguments = {
        "num_local_experts": mixture.count,
        "num_experts_per_tok": mixture.used,
        "shared_intermediate_size": shared,
    }
    halves = ("blk.{}.ffn_gate_shexp", "blk.{}.ffn_up_shexp")
    return arguments, [
        module("blk.{}.ffn_gate_inp", _LAYER + "block_sparse_moe.router.layer"),
        *experts.expert_rules(_LAYER + "block_sparse_moe.switch_mlp", mixture, tensors),
        module(halves, _LAYER + "shared_mlp.input_linear"),
        module("blk.{}.ffn_down_shexp", _LAYER + "shared_mlp.output_linear"),
    ]


def _scale(keys: Keys, key: str, default: float) -> float:
    """Return a scale; llama.cpp takes 0 as none."""
    value = keys.number(key, default, low=-1e-30, high=1e6)
    return value or default


READERS = {"granitehybrid": read_granite_hybrid}
