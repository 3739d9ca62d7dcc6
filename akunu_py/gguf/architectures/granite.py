"""Granite 3 and 4 without state-space layers: dense, and as a mixture of experts."""

from collections.abc import Mapping
from typing import Any

from akunu_py.gguf.architectures import blocks, decoder, experts
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, module
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import frequency_factors, rope_scaling

_MIXTURE = f"{blocks.LAYER}.block_sparse_moe"
_SHARED = f"{blocks.LAYER}.shared_mlp"


def read_granite(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a dense model for `mlx_lm.models.granite`.

    Converters reorder the rows of q and k so that neighbours rotate together; the class rotates
    halves.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    arguments = {
        "attention_bias": decoder.has_biases(
            tensors, sizes.num_layers, decoder.ATTENTION, "attention"
        ),
        "mlp_bias": decoder.has_biases(
            tensors, sizes.num_layers, decoder.FEED_FORWARD, "feed-forward"
        ),
    }
    return _plan(
        keys,
        tensors,
        sizes,
        model="granite",
        rules=blocks.feed_forward_rules(),
        arguments=arguments,
    )


def read_granitemoe(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a mixture for `mlx_lm.models.granitemoe`.

    One with a part that all tokens go through is of `granitemoehybrid`, all of whose layers attend.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    mixture = experts.read_mixture(keys, "feed_forward_length")
    rules = [
        module("blk.{}.ffn_gate_inp", f"{_MIXTURE}.router.layer"),
        *experts.expert_rules(f"{_MIXTURE}.switch_mlp", mixture, tensors),
    ]
    arguments: dict[str, Any] = {
        "attention_bias": decoder.has_biases(
            tensors, sizes.num_layers, decoder.ATTENTION, "attention"
        ),
        "num_local_experts": mixture.count,
        "num_experts_per_tok": mixture.used,
    }
    shared = keys.integer("expert_shared_feed_forward_length", 0, low=0)
    if shared == 0:
        return _plan(keys, tensors, sizes, model="granitemoe", rules=rules, arguments=arguments)
    rules += [
        module(
            ("blk.{}.ffn_gate_shexp", "blk.{}.ffn_up_shexp"),
            f"{_SHARED}.input_linear",
        ),
        module("blk.{}.ffn_down_shexp", f"{_SHARED}.output_linear"),
    ]
    arguments |= {
        "shared_intermediate_size": shared,
        "layer_types": ["attention"] * sizes.num_layers,
    }
    return _plan(keys, tensors, sizes, model="granitemoehybrid", rules=rules, arguments=arguments)


def _plan(
    keys: Keys,
    tensors: Mapping[str, TensorInfo],
    sizes: decoder.Dimensions,
    *,
    model: str,
    rules: list[Rule],
    arguments: dict[str, Any],
) -> ModelPlan:
    blocks.require_plain_heads(keys, sizes)
    # llama.cpp takes the flag as whether positions rotate at all.
    if not keys.flag("rope.scaling.finetuned", True):
        raise keys.unsupported("rope.scaling.finetuned", False, "rotary positions")
    scaling = rope_scaling(keys, sizes.context_length)
    if scaling is not None and model == "granitemoehybrid":
        raise keys.unsupported("rope.scaling.type", scaling["type"], "unscaled positions")
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model=model,
        rules=[*blocks.decoder_rules(tensors, sizes, reorder=True), *rules],
        arguments={
            **arguments,
            "rms_norm_eps": decoder.rms_eps(keys),
            "attention_multiplier": _scale(keys, "attention.scale", sizes.head_dim**-0.5),
            "embedding_multiplier": _scale(keys, "embedding_scale", 1.0),
            "residual_multiplier": _scale(keys, "residual_scale", 1.0),
            # The only one that is divided by.
            "logits_scaling": keys.number("logit_scale", low=0, high=1e6),
            "rope_scaling": scaling,
        },
        rotary=frequency_factors(keys, tensors, dims=sizes.head_dim, scaling=scaling),
    )


def _scale(keys: Keys, key: str, default: float) -> float:
    """Return a scale; llama.cpp takes 0 as not there."""
    return keys.number(key, 0.0, low=-1e-30, high=1e6) or default


READERS = {"granite": read_granite, "granitemoe": read_granitemoe}
