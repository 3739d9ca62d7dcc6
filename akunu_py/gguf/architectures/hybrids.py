"""Single models with recurrent layers, or a recurrent part in each layer."""

from dataclasses import replace
from typing import Any

import numpy as np

from akunu_py.gguf.names import (
    ATTENTION,
    FEED_FORWARD,
    LAYER,
    Rule,
    module,
    modules,
    parameter,
    within,
)
from akunu_py.gguf.parts import attention, experts, latent_attention, layers, recurrent, rope
from akunu_py.gguf.parts.decoder import MAX_HEAD_DIM, Decoder
from akunu_py.gguf.parts.experts import Mixture
from akunu_py.gguf.parts.latent_attention import Heads
from akunu_py.gguf.parts.recurrent import Hybrid
from akunu_py.gguf.plan import ModelPlan


def falcon_h1(model: Decoder) -> ModelPlan:
    """Falcon H1 for `variants.falcon_h1`: attention and a Mamba 2 mixer side by side in a layer.

    Converters have multiplied all of the family's multipliers into the weights.
    """
    attention.require_whole_heads(model)
    mixer = recurrent.read_state_space(model.keys)
    normed = "blk.0.ssm_norm.weight" in model.tensors
    # Converters omit ".weight" from this name.
    norm = "blk.{}.ffn_norm" + ("" if "blk.0.ffn_norm" in model.tensors else ".weight")
    return model.plan(
        "variants.falcon_h1",
        [
            *layers.frame(model, norm="model.final_layernorm"),
            *modules(LAYER, {"attn_norm": "input_layernorm"}),
            parameter(norm, f"{LAYER}.pre_ff_layernorm.weight"),
            *attention.rules(model),
            *modules(f"{LAYER}.feed_forward", layers.GATED),
            *recurrent.mamba2_rules(f"{LAYER}.mamba", norm=normed),
        ],
        {
            "attention_bias": attention.has_query_biases(model),
            "mlp_bias": model.has_biases(layers.GATED, "feed-forward"),
            "mamba_conv_bias": model.has_biases(["ssm_conv1d"], "convolution"),
            "mamba_d_conv": mixer.kernel,
            "mamba_d_head": mixer.head_dim,
            "mamba_d_ssm": mixer.inner_size,
            "mamba_d_state": mixer.state_size,
            "mamba_n_groups": mixer.groups,
            "mamba_n_heads": mixer.heads,
            "mamba_rms_norm": normed,
            # The class multiplies the logits of tied embeddings by their ratio.
            "embedding_multiplier": 1.0,
            "lm_head_multiplier": 1.0,
            "rope_scaling": rope.scaling(model),
        },
    )


def jamba(model: Decoder) -> ModelPlan:
    """Jamba for `variants.jamba`: Mamba's mixers and attention in turn, some layers with experts.

    Positions are not rotated.
    """
    hybrid = Hybrid.of(model, "Mamba's layers")
    keys = hybrid.keys
    attention.require_width_of_model(hybrid)
    mixer = recurrent.read_channels(keys)
    if mixer.inner_size % hybrid.hidden_size:
        wanted = f"a multiple of the width {hybrid.hidden_size}"
        raise keys.error("ssm.inner_size", mixer.inner_size, wanted)
    routed = [
        layer
        for layer in range(hybrid.num_layers)
        if f"blk.{layer}.ffn_gate_inp.weight" in hybrid.tensors
    ]
    mixture = experts.read(hybrid, "feed_forward_length", layers=routed)
    norms = {"attn_norm": "input_layernorm", "ffn_norm": "pre_ff_layernorm"}
    mixer_norms = {f"ssm_{part}_norm": f"{part}_layernorm" for part in ("dt", "b", "c")}
    target = f"{LAYER}.feed_forward"
    return hybrid.plan(
        "variants.jamba",
        [
            *layers.frame(hybrid, norm="model.final_layernorm"),
            *modules(LAYER, norms),
            *attention.rules(hybrid),
            *recurrent.mamba_rules(f"{LAYER}.mamba", layers=hybrid.recurs),
            *modules(f"{LAYER}.mamba", mixer_norms, layers=hybrid.recurs),
            *modules(target, {"ffn_gate_inp": "router"}, layers=mixture.routed),
            *experts.rules(hybrid, mixture, target),
        ],
        {
            "layers_block_type": hybrid.layer_types("mamba"),
            # Required, but not used: the lists of layers take precedence.
            "attn_layer_offset": 0,
            "attn_layer_period": 1,
            "expert_layer_offset": 0,
            "expert_layer_period": 1,
            "expert_layers": tuple(routed),
            **mixture.arguments,
            "mamba_d_conv": mixer.kernel,
            "mamba_d_state": mixer.state_size,
            "mamba_expand": mixer.inner_size // hybrid.hidden_size,
            "mamba_dt_rank": mixer.rank,
            # Required, but not used.
            "rope_theta": 10000.0,
        },
    )


def kimi_linear(model: Decoder) -> ModelPlan:
    """Kimi Linear for `mlx_lm.models.kimi_linear`: delta nets and latent attention.

    The nets have a separate decay for each channel. Nothing rotates, despite the keys for it.
    """
    hybrid, heads, mixture, arguments = _kimi(model)
    keys = hybrid.keys
    if hybrid.has_any(".attn_q_a.weight"):
        rank = keys.integer("attention.q_lora_rank", 0, low=0)
        raise keys.unsupported("attention.q_lora_rank", rank, "queries that come from the input")
    # The first files have one fused matrix, but the keys of new files.
    heads = replace(heads, split=hybrid.has_any(".attn_k_b.weight"))
    linear = arguments["linear_attn_config"]
    bias = f"{FEED_FORWARD}.e_score_correction_bias"
    return hybrid.plan(
        "kimi_linear",
        [
            *layers.llama(hybrid, latent=heads, feed_forward={}, copied=True),
            *recurrent.delta_net_rules(
                hybrid,
                ATTENTION,
                linear["head_dim"],
                {f"ssm_{net}_{half}": f"{net}_{half}_proj" for net in "fg" for half in "ab"},
                kernel="{}_conv.conv.weight",
                rates=lambda rates: recurrent.log_of_decay(rates).reshape(1, 1, -1, 1),
            ),
            *experts.rules(hybrid, mixture, shared="shared_experts"),
            *modules(FEED_FORWARD, {"ffn_gate_inp": "gate"}, layers=mixture.routed),
            parameter("blk.{}.exp_probs_b.bias", bias, layers=mixture.routed, float32=True),
        ],
        {
            **arguments,
            "moe_router_activation_func": arguments["scoring_func"],
            "moe_renormalize": True,
            "moe_layer_freq": 1,
            # Required, but not used.
            "rope_theta": 10000.0,
            "model_max_length": hybrid.context_length,
        },
    )


def _kimi(model: Decoder) -> tuple[Hybrid, Heads, Mixture, dict[str, Any]]:
    """Return what both models have: delta nets, latent attention and experts in one group."""
    hybrid = Hybrid.of(model, "delta nets")
    heads = latent_attention.read_heads(hybrid)
    mixture = experts.read_behind_dense(hybrid)
    experts.require_one_group(hybrid, mixture)
    experts.require_several(hybrid, mixture.used)
    arguments = {
        **heads.arguments,
        **experts.arguments(hybrid, mixture, shared=1),
        "num_experts_per_token": mixture.used,
        "linear_attn_config": {
            "num_heads": hybrid.num_heads,
            "head_dim": hybrid.keys.integer("kda.head_dim", high=MAX_HEAD_DIM),
            "short_conv_kernel_size": recurrent.read_kernel(hybrid.keys),
            # Numbered from 1.
            "kda_layers": [layer + 1 for layer in range(hybrid.num_layers) if hybrid.recurs(layer)],
        },
        # The classes always have a head, which may be a copy of the embedding.
        "tie_word_embeddings": False,
    }
    return hybrid, heads, mixture, arguments


def kimi_k3(model: Decoder) -> ModelPlan:
    """Kimi K3, its text model, for `mlx_lm.models.kimi_k3`.

    Like Kimi Linear it has delta nets and latent attention without positions. Layers also weigh the
    inputs of earlier layers, and experts work in a narrower space.
    """
    hybrid, heads, mixture, arguments = _kimi(model)
    keys = hybrid.keys
    experts.require_sigmoid(hybrid)
    linear_beta = keys.number("activation.situ_linear_beta", low=-1e6, high=1e6)
    rules = [
        *layers.llama(hybrid, latent=heads, feed_forward={}, tied=False),
        *modules(ATTENTION, {"attn_gate": "g_proj"}, layers=hybrid.attends),
        *_k3_nets(hybrid),
        *experts.rules(hybrid, mixture, shared="shared_experts"),
        *modules(FEED_FORWARD, _K3_LATENT, layers=mixture.routed),
        *experts.router(mixture, "e_score_correction_bias", required=True),
        *(
            parameter(
                f"{source}.weight",
                f"{target}_proj.weight",
                convert=lambda scores: scores.reshape(1, -1),
                float32=True,
            )
            for source, target in _K3_RESIDUALS.items()
        ),
    ]
    # The file has products of these and the projections.
    ones = np.ones(hybrid.hidden_size, np.float32)
    return hybrid.plan(
        "kimi_k3",
        within("language_model", rules),
        {
            **arguments,
            "moe_renormalize": experts.normalizes_weights(hybrid),
            "routed_expert_hidden_size": keys.integer("expert_latent_length"),
            "latent_moe_use_norm": True,
            "attn_res_block_size": keys.integer("attn_res.block_size"),
            "activation_situ_beta": keys.number("activation.situ_beta", low=0, high=1e6),
            "activation_situ_linear_beta": linear_beta if linear_beta > 0 else None,
            "mla_use_output_gate": True,
            "linear_attn_config": {
                **arguments["linear_attn_config"],
                "gate_lower_bound": keys.number("kda.gate_lower_bound", low=-1e3, high=-1e-6),
                "use_full_rank_gate": True,
            },
        },
        constants={
            f"language_model.{target.format(layer)}_norm.weight": ones
            for layer in range(hybrid.num_layers)
            for target in _K3_RESIDUALS.values()
        },
    )


_K3_LATENT = {
    f"ffn_routed_{part}": f"routed_expert_{target}"
    for part, target in (("down", "down_proj"), ("up", "up_proj"), ("norm", "norm"))
}
_K3_RESIDUALS = {
    "blk.{}.attn_res_score": f"{LAYER}.self_attention_res",
    "blk.{}.ffn_res_score": f"{LAYER}.mlp_res",
    "output_res_score": "model.output_attn_res",
}
"""Scores by which layers, and the head, weigh the inputs of earlier layers."""


def _k3_nets(model: Hybrid) -> list[Rule]:
    """Return the rules for delta nets, in which q, k and v are one."""
    fused = model.has_any(f".{attention.FUSED}.weight")
    parts = [attention.FUSED] if fused else attention.INPUTS
    names = {
        "attn_output": "o_proj",
        "ssm_f_a": "f_a_proj",
        "ssm_f_b": "f_b_proj",
        "ssm_g": "g_proj",
        "ssm_beta": "b_proj",
        "ssm_norm": "o_norm",
    }
    sources = [f"blk.{{}}.{part}" for part in parts]
    kernels = [f"blk.{{}}.ssm_conv1d_{part}.weight" for part in "qkv"]
    kernel = f"{ATTENTION}.qkv_conv.conv.weight"
    return [
        module(sources, f"{ATTENTION}.qkv_proj", layers=model.recurs),
        *modules(ATTENTION, names, layers=model.recurs),
        parameter(kernels, kernel, layers=model.recurs),
        *recurrent.decay_rules(ATTENTION, layers=model.recurs),
    ]
