"""Granite 3 and 4: dense, mixtures of experts, and hybrids with state-space layers.

Embeddings, residual sums and attention are multiplied by scales; logits are divided by one.
Converters reorder the rows of q and k so that neighbours rotate together; the classes rotate
halves.
"""

from collections.abc import Mapping
from typing import Any

from akunu_py.gguf.names import FEED_FORWARD, LAYER, Rule, module, modules
from akunu_py.gguf.parts import attention, experts, layers, recurrent, rope
from akunu_py.gguf.parts.decoder import Decoder
from akunu_py.gguf.parts.recurrent import Hybrid
from akunu_py.gguf.plan import ModelPlan

_MIXTURE = f"{LAYER}.block_sparse_moe"
_SHARED = f"{LAYER}.shared_mlp"
_SHARED_SIZE = "expert_shared_feed_forward_length"


def granite(model: Decoder) -> ModelPlan:
    """Granite, dense, for `mlx_lm.models.granite`."""
    arguments = {
        "attention_bias": model.has_biases(attention.ALL, "attention"),
        "mlp_bias": model.has_biases(layers.GATED, "feed-forward"),
    }
    return _plan(model, "granite", modules(FEED_FORWARD, layers.GATED), arguments)


def granitemoe(model: Decoder) -> ModelPlan:
    """Granite, mixtures, for `mlx_lm.models.granitemoe`.

    Models with shared experts use `granitemoehybrid` with attention in all layers.
    """
    rules, arguments = _mixture(model)
    arguments["attention_bias"] = model.has_biases(attention.ALL, "attention")
    if "shared_intermediate_size" not in arguments:
        return _plan(model, "granitemoe", rules, arguments)
    arguments["layer_types"] = ["attention"] * model.num_layers
    return _plan(model, "granitemoehybrid", rules, arguments)


def _plan(
    model: Decoder, name: str, feed_forward: list[Rule], arguments: Mapping[str, Any]
) -> ModelPlan:
    attention.require_plain_heads(model)
    # In llama.cpp the flag says whether positions rotate at all.
    if not model.keys.flag("rope.scaling.finetuned", True):
        raise model.keys.unsupported("rope.scaling.finetuned", False, "rotary positions")
    if name == "granitemoehybrid":
        rope.require_unscaled(model)
    return model.plan(
        name,
        [*layers.llama(model, feed_forward={}, reorder=True), *feed_forward],
        {
            **arguments,
            **_scales(model),
            # The only scale that divides.
            "logits_scaling": model.keys.number("logit_scale", low=0, high=1e6),
            "rope_scaling": rope.scaling(model),
        },
        rotary=rope.factors(model),
    )


def granitehybrid(model: Decoder) -> ModelPlan:
    """Granite 4 with state-space layers, dense or a mixture, for `variants.granite_hybrid`."""
    hybrid = Hybrid.of(model, "state-space layers")
    keys = hybrid.keys
    attention.require_width_of_model(hybrid)
    mixer = recurrent.read_state_space(keys)
    # In llama.cpp this flag says whether positions rotate at all.
    rotates = keys.flag("rope.scaling.finetuned", True)
    if rotates:
        attention.require_whole_heads(hybrid)
    if experts.has_experts(hybrid):
        feed_forward, arguments = _mixture(hybrid)
        if "shared_intermediate_size" not in arguments:
            raise keys.unsupported(_SHARED_SIZE, 0, "shared experts")
    else:
        keys.ignore("expert_used_count", _SHARED_SIZE)
        feed_forward = modules(FEED_FORWARD, layers.GATED)
        arguments = {"num_local_experts": 0}
    return hybrid.plan(
        "variants.granite_hybrid",
        [
            *layers.llama(hybrid, feed_forward={}, reorder=True),
            *recurrent.mamba2_rules(f"{LAYER}.mamba", layers=hybrid.recurs),
            *feed_forward,
        ],
        {
            **arguments,
            **_scales(hybrid),
            "model_type": "granitemoehybrid",
            "logits_scaling": _scale(hybrid, "logit_scale", 1.0),
            "layer_types": hybrid.layer_types("mamba"),
            "position_embedding_type": "rope" if rotates else "nope",
            "attention_bias": attention.has_query_biases(hybrid),
            "mlp_bias": "blk.0.ffn_up.bias" in hybrid.tensors,
            "mamba_n_heads": mixer.heads,
            "mamba_d_head": mixer.head_dim,
            "mamba_d_state": mixer.state_size,
            "mamba_d_conv": mixer.kernel,
            "mamba_n_groups": mixer.groups,
            "mamba_proj_bias": False,
            "mamba_conv_bias": hybrid.has_any(".ssm_conv1d.bias"),
            "time_step_limit": recurrent.NO_LIMIT,
        },
    )


def _mixture(model: Decoder) -> tuple[list[Rule], dict[str, Any]]:
    """Return rules and arguments of the experts, including shared ones if any."""
    mixture = experts.read(model, "feed_forward_length")
    rules = [
        *modules(_MIXTURE, {"ffn_gate_inp": "router.layer"}),
        *experts.rules(model, mixture, _MIXTURE),
    ]
    arguments: dict[str, Any] = dict(mixture.arguments)
    if shared := model.keys.integer(_SHARED_SIZE, 0, low=0):
        halves = ("blk.{}.ffn_gate_shexp", "blk.{}.ffn_up_shexp")
        rules.append(module(halves, f"{_SHARED}.input_linear"))
        rules += modules(_SHARED, {"ffn_down_shexp": "output_linear"})
        arguments["shared_intermediate_size"] = shared
    return rules, arguments


def _scales(model: Decoder) -> dict[str, float]:
    return {
        "attention_multiplier": _scale(model, "attention.scale", model.head_dim**-0.5),
        "embedding_multiplier": _scale(model, "embedding_scale", 1.0),
        "residual_multiplier": _scale(model, "residual_scale", 1.0),
    }


def _scale(model: Decoder, key: str, default: float) -> float:
    """Return a scale; 0 stands for a missing one, as in llama.cpp."""
    return model.keys.number(key, 0.0, low=-1e-30, high=1e6) or default
