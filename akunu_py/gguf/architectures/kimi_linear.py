"""Kimi Linear: delta nets that forget each channel by itself, and latent attention."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.architectures import blocks, decoder, experts
from akunu_py.gguf.architectures.deepseek import Heads, latent_attention_rules, read_heads
from akunu_py.gguf.architectures.experts import Gating
from akunu_py.gguf.architectures.recurrent import (
    MAX_KERNEL,
    Hybrid,
    Projections,
    log_of_decay,
    read_hybrid,
)
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, module, parameter, place
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo

_SCORING = {Gating.SOFTMAX: "softmax", Gating.SIGMOID: "sigmoid"}
_NET = f"{blocks.LAYER}.self_attn"


def read_kimi_linear(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a Kimi Linear model for `mlx_lm.models.kimi_linear`.

    Nothing is rotated, not even what the keys call so.
    """
    sizes = read_hybrid(keys, tensors)
    if all(sizes.attends):
        raise keys.unsupported("attention.head_count_kv", sizes.num_kv_heads, "delta nets")
    heads = _read_heads(keys, tensors, sizes)
    dense = keys.integer("leading_dense_block_count", 0, low=0, high=sizes.num_layers)

    def routed(layer: int) -> bool:
        return layer >= dense

    target = blocks.FEED_FORWARD
    mixture = experts.read_mixture(keys)
    head_dim = keys.integer("kda.head_dim", high=1 << 16)
    shared = keys.integer("expert_shared_count", high=1 << 10)
    rules = [
        *decoder.frame_rules(sizes.tied, copied=True),
        module("blk.{}.attn_norm", f"{blocks.LAYER}.input_layernorm"),
        module("blk.{}.ffn_norm", f"{blocks.LAYER}.post_attention_layernorm"),
        *(replace(rule, layers=sizes.attending) for rule in latent_attention_rules(heads)),
        *_delta_net_rules(sizes, head_dim, tensors),
        *blocks.feed_forward_rules(last=dense),
        *blocks.feed_forward_rules(
            f"{target}.shared_experts", sources=blocks.SHARED_EXPERT, first=dense
        ),
        *experts.expert_rules(f"{target}.switch_mlp", mixture, tensors, layers=routed),
        module("blk.{}.ffn_gate_inp", f"{target}.gate", layers=routed),
        parameter(
            "blk.{}.exp_probs_b.bias",
            f"{target}.{experts.ROUTER_BIAS}",
            layers=routed,
            float32=True,
        ),
    ]
    return ModelPlan(
        architecture=keys.architecture,
        model="kimi_linear",
        arguments={
            **_mixture_arguments(keys, mixture),
            **heads.arguments,
            "model_type": "kimi_linear",
            "hidden_size": sizes.hidden_size,
            "num_hidden_layers": sizes.num_layers,
            "intermediate_size": keys.integer("feed_forward_length"),
            "head_dim": heads.value,
            "num_shared_experts": shared,
            "first_k_dense_replace": dense,
            "moe_layer_freq": 1,
            "linear_attn_config": {
                "num_heads": sizes.num_heads,
                "head_dim": head_dim,
                "short_conv_kernel_size": keys.integer("ssm.conv_kernel", low=2, high=MAX_KERNEL),
                # Counted from one.
                "kda_layers": [
                    layer + 1 for layer in range(sizes.num_layers) if sizes.recurrent(layer)
                ],
            },
            "rope_theta": 10000.0,
            "rms_norm_eps": decoder.rms_eps(keys),
            "vocab_size": sizes.vocabulary_size,
            "model_max_length": sizes.context_length,
        },
        placements=place(rules, tensors, sizes.num_layers),
        num_layers=sizes.num_layers,
        context_length=sizes.context_length,
        vocabulary_size=sizes.vocabulary_size,
    )


def _read_heads(keys: Keys, tensors: Mapping[str, TensorInfo], sizes: Hybrid) -> Heads:
    heads = read_heads(keys, tensors, sizes.num_heads)
    if any(name.endswith(".attn_q_a.weight") for name in tensors):
        rank = keys.integer("attention.q_lora_rank", 0, low=0)
        raise keys.unsupported("attention.q_lora_rank", rank, "queries that come from the input")
    # The first files have the one matrix, and the keys of the new ones.
    return replace(heads, split=any(name.endswith(".attn_k_b.weight") for name in tensors))


def _mixture_arguments(keys: Keys, mixture: experts.Mixture) -> dict[str, Any]:
    gating = experts.read_gating(keys, Gating.SIGMOID)
    if gating not in _SCORING:
        raise keys.unsupported("expert_gating_func", int(gating), "softmax (1) or sigmoid (2)")
    groups, _ = experts.read_groups(keys, mixture)
    if groups != 1:
        raise keys.unsupported("expert_group_count", groups, "one group of experts")
    if mixture.used == 1:
        raise keys.unsupported("expert_used_count", 1, "several experts a token")
    return {
        "num_experts": mixture.count,
        "num_experts_per_token": mixture.used,
        "moe_intermediate_size": mixture.feed_forward_size,
        "moe_router_activation_func": _SCORING[gating],
        "moe_renormalize": True,
        "routed_scaling_factor": experts.read_weights_scale(keys),
    }


def _delta_net_rules(sizes: Hybrid, head_dim: int, tensors: Mapping[str, TensorInfo]) -> list[Rule]:
    layers = sizes.recurrent
    size = sizes.num_heads * head_dim
    nets = [layer for layer in range(sizes.num_layers) if layers(layer)]
    names = {
        "attn_output": "o_proj",
        "ssm_f_a": "f_a_proj",
        "ssm_f_b": "f_b_proj",
        "ssm_g_a": "g_a_proj",
        "ssm_g_b": "g_b_proj",
        "ssm_beta": "b_proj",
        "ssm_norm": "o_norm",
    }
    return [
        *Projections((size, size, size)).rules(_NET, tensors, nets),
        *(module(f"blk.{{}}.{a}", f"{_NET}.{b}", layers=layers) for a, b in names.items()),
        *(
            parameter(
                f"blk.{{}}.ssm_conv1d_{part}.weight",
                f"{_NET}.{part}_conv.conv.weight",
                convert=_kernel,
                layers=layers,
            )
            for part in ("q", "k", "v")
        ),
        parameter("blk.{}.ssm_dt.bias", f"{_NET}.dt_bias", layers=layers, float32=True),
        parameter(
            "blk.{}.ssm_a",
            f"{_NET}.A_log",
            convert=lambda rates: log_of_decay(rates).reshape(1, 1, -1, 1),
            layers=layers,
            float32=True,
        ),
    ]


def _kernel(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a kernel [1, channels, 1, taps], or without the ones, as [channels, taps, 1]."""
    return values.reshape(-1, values.shape[-1], 1)


READERS = {"kimi-linear": read_kimi_linear}
