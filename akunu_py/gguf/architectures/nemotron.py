"""Nemotron 4 and Minitron, dense; Nemotron H and 3, hybrids with one part per layer."""

from typing import Any

from akunu_py.gguf.names import FEED_FORWARD, LAYER, Rule, modules, parameter
from akunu_py.gguf.parts import attention, experts, layers, recurrent, rope
from akunu_py.gguf.parts.decoder import Decoder
from akunu_py.gguf.parts.recurrent import Hybrid, Layers
from akunu_py.gguf.plan import ModelPlan

_H_LAYER = "backbone.layers.{}"
_MIXER = f"{_H_LAYER}.mixer"
_STATE, _ATTENTION, _DENSE, _EXPERTS = "M", "*", "-", "E"


def nemotron(model: Decoder) -> ModelPlan:
    """Nemotron, dense, for `mlx_lm.models.nemotron`.

    Half of a head rotates, and the feed-forward part has no gate.
    """
    rotated = rope.rotated_dims(model)
    attention.require_plain_heads(model, partial=True)
    norms = {"output_norm": "model.norm"}
    norms |= {f"blk.{{}}.{norm}": f"{LAYER}.{target}" for norm, target in layers.NORMS.items()}
    rules = []
    for source, target in norms.items():
        # Converters add 1 to the weight, which mlx-lm's class also does.
        weight = parameter(f"{source}.weight", f"{target}.weight", convert=layers.minus_one)
        rules += [weight, parameter(f"{source}.bias", f"{target}.bias")]
    return model.plan(
        "nemotron",
        [
            *layers.frame(model, norm=None),
            *rules,
            *attention.rules(model),
            *modules(FEED_FORWARD, layers.UNGATED),
        ],
        {
            "norm_eps": model.layer_norm_eps,
            "hidden_act": "relu2",
            "partial_rotary_factor": rope.share(rotated, model.head_dim),
            "attention_bias": model.has_biases(attention.ALL, "attention"),
            "mlp_bias": model.has_biases(layers.UNGATED, "feed-forward"),
        },
        rotary=rope.layers(model, dims=rotated),
    )


def nemotron_h(model: Decoder) -> ModelPlan:
    """Nemotron H and 3, dense or a mixture, for `variants.nemotron_h`.

    Positions do not rotate. A layer with a feed-forward width is a feed-forward part, a layer with
    key and value heads is attention, any other is a mixer.
    """
    hybrid = Hybrid.of(model)
    keys = hybrid.keys
    attention.require_equal_widths(hybrid)
    widths = keys.layer_integers("feed_forward_length", hybrid.num_layers)
    part = _EXPERTS if experts.has_experts(hybrid) else _DENSE
    kinds = [
        part if width else (_ATTENTION if hybrid.attends(layer) else _STATE)
        for layer, width in enumerate(widths)
    ]
    for kind, key in ((_STATE, "feed_forward_length"), (_ATTENTION, "attention.head_count_kv")):
        if kind not in kinds:
            raise keys.unsupported(key, widths, "both mixers and attention")
    arguments: dict[str, Any]
    if part == _EXPERTS:
        rules, arguments = _mixture(hybrid, widths)
    else:
        different = sorted(set(widths) - {0})
        if len(different) > 1:
            wanted = "feed-forward parts of one width"
            raise keys.unsupported("feed_forward_length", different, wanted)
        arguments = {"intermediate_size": different[0] if different else 1}
        rules = modules(_MIXER, layers.UNGATED, layers=_of(kinds, _DENSE))
    attending = [layer for layer, kind in enumerate(kinds) if kind == _ATTENTION]
    mixer = recurrent.read_state_space(keys)
    # Older files have the epsilon of RMS norms under the name for layer norms.
    rms_norm = "attention.layer_norm_rms_epsilon" in keys
    return hybrid.plan(
        "variants.nemotron_h",
        [
            # The class has no tied head.
            *layers.frame(hybrid, "backbone.embeddings", "backbone.norm_f", copied=True),
            *modules(_H_LAYER, {"attn_norm": "norm"}),
            *recurrent.mamba2_rules(_MIXER, layers=_of(kinds, _STATE)),
            *attention.rules(hybrid, _MIXER, layers=attending),
            *rules,
        ],
        {
            **arguments,
            "hybrid_override_pattern": kinds,
            "attention_bias": attention.has_query_biases(hybrid),
            # If only some layers have one, a parameter without a tensor is reported.
            "mlp_bias": hybrid.has_any(".ffn_up.bias"),
            "mamba_num_heads": mixer.heads,
            "mamba_head_dim": mixer.head_dim,
            "mamba_proj_bias": False,
            "ssm_state_size": mixer.state_size,
            "conv_kernel": mixer.kernel,
            "n_groups": mixer.groups,
            "use_bias": False,
            "use_conv_bias": hybrid.has_any(".ssm_conv1d.bias"),
            "time_step_limit": recurrent.NO_LIMIT,
            # Required, but not used.
            "rope_theta": 10000.0,
            "layer_norm_epsilon": hybrid.rms_eps if rms_norm else hybrid.layer_norm_eps,
        },
    )


nemotron_h_moe = nemotron_h


def _of(kinds: list[str], kind: str) -> Layers:
    return lambda layer: kinds[layer] == kind


def _mixture(model: Decoder, widths: list[int]) -> tuple[list[Rule], dict[str, Any]]:
    keys = model.keys
    per_layer = _read_experts(model, widths)
    sizes = [pair for pair in per_layer if pair]
    size, used = sizes[0] if sizes else (1, 1)
    count = keys.integer("expert_count", high=experts.MAX_EXPERTS)
    routed = frozenset(layer for layer, width in enumerate(widths) if width)
    mixture = experts.Mixture(count, used, size, routed)
    experts.require_one_group(model, mixture)
    normed = experts.normalizes_weights(model)
    experts.require_several(model, *(number for _, number in sizes), normed=normed)
    keys.ignore("expert_shared_count")
    latent = model.has_any(".ffn_latent_down.weight")
    names = {
        "ffn_up_exps": "switch_mlp.fc1",
        "ffn_down_exps": "switch_mlp.fc2",
        "ffn_up_shexp": "shared_experts.up_proj",
        "ffn_down_shexp": "shared_experts.down_proj",
    }
    if latent:
        names |= {"ffn_latent_down": "fc1_latent_proj", "ffn_latent_up": "fc2_latent_proj"}
    rules = [
        *experts.router(mixture, at=_MIXER, required=True),
        *modules(_MIXER, names, layers=mixture.routed),
    ]
    arguments = {
        # The width of dense feed-forward parts, which a mixture does not have.
        "intermediate_size": 1,
        **mixture.arguments,
        "moe_per_layer": per_layer if len(set(sizes)) > 1 else None,
        "moe_latent_size": keys.integer("moe_latent_size") if latent else None,
        # However many there are, the file fuses them.
        "n_shared_experts": 1,
        "moe_shared_expert_intermediate_size": keys.integer("expert_shared_feed_forward_length"),
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": normed,
        "routed_scaling_factor": experts.weights_scale(model),
    }
    return rules, arguments


def _read_experts(model: Decoder, widths: list[int]) -> list[tuple[int, int] | None]:
    """Return for each layer the width of an expert and the number of experts a token uses.

    None for layers without experts. Layers differ only in the Puzzle models.
    """
    keys, layers = model.keys, len(widths)
    count = keys.integer("expert_count", high=experts.MAX_EXPERTS)
    used = keys.layer_integers("expert_used_count", layers, high=count)
    own = widths
    if (key := "expert_feed_forward_length") in keys:
        own = keys.layer_integers(key, layers)
    elif all(used):
        # Older files state the total width of the experts that a token uses.
        own = [width // number for width, number in zip(widths, used, strict=True)]
    found: list[tuple[int, int] | None] = []
    for width, size, number in zip(widths, own, used, strict=True):
        if width and not (size and number):
            raise keys.error("expert_used_count", number, "above 0 in layers with experts")
        found.append((size, number) if width else None)
    return found
