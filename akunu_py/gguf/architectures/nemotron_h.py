"""Nemotron H and Nemotron 3: layers of one part each, a mixer, attention or a feed-forward part."""

from collections.abc import Callable, Mapping
from typing import Any

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
from akunu_py.gguf.names import Rule, module, place
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo

_LAYER = "backbone.layers.{}."
_MIXER = _LAYER + "mixer"
_STATE, _ATTENTION, _DENSE, _EXPERTS = "M", "*", "-", "E"


def read_nemotron_h(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a dense or a mixture model for `variants.nemotron_h`.

    Positions are not rotated. A layer with a feed-forward width is a feed-forward part, one with
    key and value heads attention, any other a mixer.
    """
    sizes = read_hybrid(keys, tensors)
    widths = keys.layer_integers("feed_forward_length", sizes.num_layers)
    has_experts = keys.integer("expert_count", 0, low=0, high=experts.MAX_EXPERTS) > 0
    part = _EXPERTS if has_experts else _DENSE
    kinds = [
        part if width else (_ATTENTION if attends else _STATE)
        for width, attends in zip(widths, sizes.attends, strict=True)
    ]
    for kind, key in ((_STATE, "feed_forward_length"), (_ATTENTION, "attention.head_count_kv")):
        if kind not in kinds:
            raise keys.unsupported(key, widths, "both mixers and attention")
    value_size = keys.integer("attention.value_length", sizes.head_dim, high=1 << 16)
    if value_size != sizes.head_dim:
        wanted = f"values as wide as the head, here {sizes.head_dim}"
        raise keys.unsupported("attention.value_length", value_size, wanted)
    arguments = _arguments(keys, sizes, kinds, tensors)
    rules = _rules(sizes, kinds, tensors)
    if has_experts:
        arguments |= _mixture_arguments(keys, _read_experts(keys, widths), tensors)
        rules += _mixture_rules(kinds)
    else:
        arguments["intermediate_size"] = _feed_forward_width(keys, widths)
        rules += [
            module("blk.{}.ffn_up", f"{_MIXER}.up_proj", layers=_of(kinds, _DENSE)),
            module("blk.{}.ffn_down", f"{_MIXER}.down_proj", layers=_of(kinds, _DENSE)),
        ]
    blocks = keys.integer("block_count", high=decoder.MAX_LAYERS)
    return ModelPlan(
        architecture=keys.architecture,
        model="variants.nemotron_h",
        arguments=arguments,
        placements=place(
            rules,
            tensors,
            sizes.num_layers,
            ignored=decoder.extra_blocks(sizes.num_layers, blocks),
        ),
        num_layers=sizes.num_layers,
        context_length=sizes.context_length,
        vocabulary_size=sizes.vocabulary_size,
    )


def _of(kinds: list[str], kind: str) -> Callable[[int], bool]:
    return lambda layer: kinds[layer] == kind


def _feed_forward_width(keys: Keys, widths: list[int]) -> int:
    different = sorted(set(widths) - {0})
    if len(different) > 1:
        raise keys.unsupported("feed_forward_length", different, "feed-forward parts of one width")
    return different[0] if different else 1


def _arguments(
    keys: Keys, sizes: Hybrid, kinds: list[str], tensors: Mapping[str, TensorInfo]
) -> dict[str, Any]:
    mixer = read_state_space(keys)
    # Older files have the RMS norms' epsilon under the name of the other norm's.
    eps_key = "attention.layer_norm_rms_epsilon"
    eps = decoder.rms_eps(keys) if eps_key in keys else decoder.layer_norm_eps(keys)
    return {
        "model_type": "nemotron_h",
        "hybrid_override_pattern": kinds,
        "hidden_size": sizes.hidden_size,
        # Of dense feed-forward parts; a mixture has none.
        "intermediate_size": 1,
        "num_hidden_layers": sizes.num_layers,
        "num_attention_heads": sizes.num_heads,
        "num_key_value_heads": sizes.num_kv_heads,
        "head_dim": sizes.head_dim,
        "attention_bias": has_query_bias(tensors),
        "mlp_bias": _has_bias(tensors, "ffn_up"),
        "mamba_num_heads": mixer.heads,
        "mamba_head_dim": mixer.head_dim,
        "mamba_proj_bias": False,
        "ssm_state_size": mixer.state_size,
        "conv_kernel": mixer.kernel,
        "n_groups": mixer.groups,
        "use_bias": False,
        "use_conv_bias": _has_bias(tensors, "ssm_conv1d"),
        "time_step_limit": NO_LIMIT,
        "layer_norm_epsilon": eps,
        "vocab_size": sizes.vocabulary_size,
        "max_position_embeddings": sizes.context_length,
    }


def _has_bias(tensors: Mapping[str, TensorInfo], part: str) -> bool:
    # Layers without one among others with are found out by the class: a parameter has no tensor.
    return any(name.endswith(f".{part}.bias") for name in tensors)


def _rules(sizes: Hybrid, kinds: list[str], tensors: Mapping[str, TensorInfo]) -> list[Rule]:
    attends = _of(kinds, _ATTENTION)
    attention_layers = [layer for layer in range(sizes.num_layers) if attends(layer)]
    return [
        module(decoder.EMBEDDING, "backbone.embeddings"),
        module("output_norm", "backbone.norm_f"),
        # The class has no tied head, so a tied model's is a second copy.
        module(decoder.EMBEDDING if sizes.tied else decoder.OUTPUT, "lm_head"),
        module("blk.{}.attn_norm", _LAYER + "norm"),
        *mamba2_rules(_MIXER, layers=_of(kinds, _STATE)),
        *Projections.of(sizes).rules(_MIXER, tensors, attention_layers),
        module("blk.{}.attn_output", f"{_MIXER}.o_proj", layers=attends),
    ]


def _read_experts(keys: Keys, widths: list[int]) -> list[tuple[int, int] | None]:
    """Return for each layer the width of an expert and how many a token goes through.

    None for layers without experts. Only the Puzzle models' layers differ.
    """
    layers = len(widths)
    count = keys.integer("expert_count", high=experts.MAX_EXPERTS)
    used = keys.layer_integers("expert_used_count", layers, high=count)
    own = widths
    if (key := "expert_feed_forward_length") in keys:
        own = keys.layer_integers(key, layers)
    elif all(used):
        # Before there was a key, the width of all experts that a token goes through.
        own = [width // number for width, number in zip(widths, used, strict=True)]
    found: list[tuple[int, int] | None] = []
    for width, size, number in zip(widths, own, used, strict=True):
        if width and not (size and number):
            raise keys.error("expert_used_count", number, "above 0 in layers with experts")
        found.append((size, number) if width else None)
    return found


def _mixture_arguments(
    keys: Keys, per_layer: list[tuple[int, int] | None], tensors: Mapping[str, TensorInfo]
) -> dict[str, Any]:
    count = keys.integer("expert_count", high=experts.MAX_EXPERTS)
    sizes = [pair for pair in per_layer if pair]
    size, used = sizes[0] if sizes else (1, 1)
    groups, _ = experts.read_groups(keys, experts.Mixture(count, used, size))
    if groups != 1:
        raise keys.unsupported("expert_group_count", groups, "one group of experts")
    normed = keys.flag("expert_weights_norm", False)
    if normed and 1 in {number for _, number in sizes}:
        raise keys.unsupported("expert_used_count", 1, "several experts a token")
    keys.ignore("expert_shared_count")
    latent = None
    if any(name.endswith(".ffn_latent_down.weight") for name in tensors):
        latent = keys.integer("moe_latent_size")
    return {
        "n_routed_experts": count,
        "num_experts_per_tok": used,
        "moe_intermediate_size": size,
        "moe_per_layer": per_layer if len(set(sizes)) > 1 else None,
        "moe_latent_size": latent,
        # As many as there are, they are one wide part.
        "n_shared_experts": 1,
        "moe_shared_expert_intermediate_size": keys.integer("expert_shared_feed_forward_length"),
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": normed,
        "routed_scaling_factor": experts.read_weights_scale(keys),
    }


def _mixture_rules(kinds: list[str]) -> list[Rule]:
    layers = _of(kinds, _EXPERTS)
    return [
        *experts.router_rules(f"{_MIXER}.gate", layers=layers),
        module("blk.{}.ffn_up_exps", f"{_MIXER}.switch_mlp.fc1", layers=layers),
        module("blk.{}.ffn_down_exps", f"{_MIXER}.switch_mlp.fc2", layers=layers),
        module("blk.{}.ffn_up_shexp", f"{_MIXER}.shared_experts.up_proj", layers=layers),
        module("blk.{}.ffn_down_shexp", f"{_MIXER}.shared_experts.down_proj", layers=layers),
        *(
            module(f"blk.{{}}.{source}", f"{_MIXER}.{target}", layers=layers, required=False)
            for source, target in (
                ("ffn_latent_down", "fc1_latent_proj"),
                ("ffn_latent_up", "fc2_latent_proj"),
            )
        ),
    ]


READERS = {"nemotron_h": read_nemotron_h, "nemotron_h_moe": read_nemotron_h}
