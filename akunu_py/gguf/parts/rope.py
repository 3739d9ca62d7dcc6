"""Rotary positions: how much of a head rotates, and how positions are scaled.

Classes of mlx-lm differ in their arguments. A class that reads `rope_scaling` gets `scaling`, and
`factors` if the file has factors. For other classes `layers` replaces the rotary layers.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from akunu_py.gguf.keys import Keys
from akunu_py.gguf.parts.decoder import FREQUENCY_FACTORS, MAX_CONTEXT, Decoder
from akunu_py.gguf.plan import RotaryFactors, RotaryScaling
from akunu_py.system.errors import ModelFormatError, UnsupportedArchitectureError

_SHORT_FACTORS = "rope_factors_short.weight"
_LONG_FACTORS = "rope_factors_long.weight"
LONG_TENSORS = f"{_SHORT_FACTORS}|{_LONG_FACTORS}"
"""A regular expression for the names of the tensors of LongRoPE."""

_DIMENSIONS = "rope.dimension_count"
_ORIGINAL = "rope.scaling.original_context_length"
_LOG_MULTIPLIER = "rope.scaling.yarn_log_multiplier"


def rotated_dims(
    model: Decoder, head_dim: int | None = None, key: str = _DIMENSIONS, default: int | None = None
) -> int:
    """Return the number of rotating dimensions of a head, an even number, by default all."""
    head_dim = head_dim or model.head_dim
    count = model.keys.integer(key, default or head_dim, low=2, high=head_dim)
    if count % 2:
        raise model.keys.error(key, count, "even")
    return count


def share(rotated: int, head_dim: int) -> float:
    """Return the rotating share of a head, for a class that multiplies and rounds down."""
    # Half a dimension more, to offset rounding errors.
    return (rotated + 0.5) / head_dim


def window_base(model: Decoder, default: float = 10000.0) -> float:
    """Return the base of the rotary frequencies in windowed layers."""
    return model.keys.number("rope.freq_base_swa", default, low=1, high=1e12)


def of_both_kinds(model: Decoder, head_dim: int | None = None) -> dict[str, dict[str, Any]]:
    """Return mlx-lm's `rope_parameters` of layers that see everything, and of windowed ones.

    Only the former scale positions. Each kind may rotate a part of its own of a head.
    """
    head_dim = head_dim or model.head_dim
    rotated = rotated_dims(model, head_dim)
    narrow = rotated_dims(model, head_dim, "rope.dimension_count_swa", rotated)
    found = scaling(model) or {"type": "default"}
    return {
        "full_attention": {
            **found,
            "rope_type": found["type"],
            "rope_theta": model.rope_base,
            "partial_rotary_factor": share(rotated, head_dim),
        },
        "sliding_attention": {
            "rope_theta": window_base(model, model.rope_base),
            "partial_rotary_factor": share(narrow, head_dim),
        },
    }


def require_one_base(model: Decoder) -> None:
    """Raise UnsupportedArchitectureError if windowed layers have another base."""
    base = model.rope_base
    if (own := window_base(model, base)) != base:
        raise model.keys.unsupported("rope.freq_base_swa", own, f"the base of all layers, {base}")


def require_unscaled(model: Decoder) -> None:
    """Raise UnsupportedArchitectureError if positions are scaled."""
    if (found := scaling(model)) is not None:
        raise model.keys.unsupported("rope.scaling.type", found["type"], "unscaled positions")


def scaling(model: Decoder) -> dict[str, Any] | None:
    """Return mlx-lm's `rope_scaling`, None for unscaled positions.

    Supported are linear scaling and YaRN (Peng et al. 2023, arXiv:2309.00071), with the attention
    factor 0.1 ln(factor) + 1 included in the rotation, as in llama.cpp and mlx-lm. Raises
    UnsupportedArchitectureError for another kind.
    """
    return scaling_of(model.keys, model.context_length)


def scaling_of(keys: Keys, context_length: int) -> dict[str, Any] | None:
    """Return the same for the keys of a file; `context_length` is the trained one."""
    # llama.cpp treats a factor without a type as linear.
    kind = keys.text("rope.scaling.type", "linear")
    # Zero stands for none, as in llama.cpp; `number` excludes the lower bound.
    old = keys.number("rope.scale_linear", 1.0, low=-1e-30, high=1e6) or 1.0
    factor = keys.number("rope.scaling.factor", old, low=-1e-30, high=1e6) or 1.0
    if kind == "yarn":
        return _yarn(keys, factor, context_length)
    if kind not in ("none", "linear"):
        raise keys.unsupported("rope.scaling.type", kind, "linear or yarn scaling of positions")
    return None if kind == "none" or factor == 1.0 else {"type": "linear", "factor": factor}


def _yarn(keys: Keys, factor: float, context_length: int) -> dict[str, Any]:
    scaling: dict[str, Any] = {
        "type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": keys.integer(
            _ORIGINAL, context_length, high=MAX_CONTEXT
        ),
        "beta_fast": keys.number("rope.scaling.yarn_beta_fast", 32.0, low=0, high=1e6),
        "beta_slow": keys.number("rope.scaling.yarn_beta_slow", 1.0, low=0, high=1e6),
    }
    attention = keys.number("rope.scaling.attn_factor", 1.0, low=0, high=1e3)
    if attention != 1.0 and factor > 1:
        # The whole factor of the rotation is attention * (0.1 ln(factor) + 1), which mlx-lm
        # writes as 0.1 mscale ln(factor) + 1.
        wanted = attention * (0.1 * math.log(factor) + 1)
        scaling["mscale"] = (wanted - 1) / (0.1 * math.log(factor))
    return scaling


def scaling_with_multiplier(model: Decoder) -> dict[str, Any] | None:
    """Return `scaling`, with the divisor of YaRN's attention factor in Mistral's models.

    llama.cpp reads it only in files named `mistral3`; the models are the same.
    """
    found = scaling(model)
    multiplier = model.keys.number(_LOG_MULTIPLIER, 0.0, low=-1e-30, high=1e3)
    if multiplier and found is not None and found["type"] == "yarn":
        found["mscale_all_dim"] = multiplier
    return found


def scaling_with_mscale(model: Decoder) -> dict[str, Any] | None:
    """Return `scaling` for DeepSeek's models.

    The scale of attention is multiplied by the square of 0.1 m ln(factor) + 1. The file has m, the
    `mscale_all_dim` of the original configuration, times 0.1. As in llama.cpp `mscale` is assumed
    to be equal, so that the rotation keeps lengths.
    """
    found = scaling(model)
    if found is None:
        model.keys.ignore(_LOG_MULTIPLIER)
        return None
    if found["type"] != "yarn" or "mscale" in found:
        raise UnsupportedArchitectureError(
            f"the model scales positions with {found}; akunu runs {model.keys.architecture} models "
            "with plain yarn scaling only: use another model"
        )
    mscale = model.keys.number(_LOG_MULTIPLIER, low=0, high=10) * 10
    return {**found, "mscale": mscale, "mscale_all_dim": mscale}


def temperature(model: Decoder) -> float:
    """Return by how much queries grow with the position in Mistral's models, 0 for not at all."""
    return model.keys.number("attention.temperature_scale", 0.0, low=-1e3, high=1e3)


def tempered(model: Decoder, scaling: dict[str, Any] | None, temperature: float) -> dict[str, Any]:
    """Return mlx-lm's `rope_parameters` for queries that grow with the position."""
    return {
        **(scaling or {"type": "default"}),
        "rope_theta": model.rope_base,
        "llama_4_scaling_beta": temperature,
        "original_max_position_embeddings": model.keys.integer(
            _ORIGINAL, model.context_length, high=MAX_CONTEXT
        ),
    }


def factors(
    model: Decoder, *, dims: int | None = None, traditional: bool = False
) -> RotaryFactors | None:
    """Return the factors of `rope_freqs.weight`, None if the file has none.

    `dims` dimensions of a head rotate, by default all. Raises UnsupportedArchitectureError if
    positions are scaled as well.
    """
    if FREQUENCY_FACTORS not in model.tensors:
        return None
    if (found := scaling(model)) is not None:
        raise UnsupportedArchitectureError(
            f"the model has both {FREQUENCY_FACTORS} and {found['type']} scaling of positions; "
            "akunu supports either, not both"
        )
    return RotaryFactors(
        dims=dims or model.head_dim,
        base=model.rope_base,
        tensor=FREQUENCY_FACTORS,
        traditional=traditional,
    )


def where_all_is_seen(factors: RotaryFactors, windowed: Sequence[bool]) -> RotaryFactors | None:
    """Return the factors for layers without a window alone, None where all have one."""
    if all(windowed):
        return None
    numbers = "|".join(str(layer) for layer, flag in enumerate(windowed) if not flag)
    return replace(factors, modules=rf"model\.layers\.({numbers})\.self_attn\.rope")


def layers(
    model: Decoder, *, dims: int | None = None, traditional: bool = False
) -> RotaryFactors | RotaryScaling | None:
    """Return the rotary layers for a model class with plain positions only.

    Some of mlx-lm's classes ignore `rope_scaling`. Returns None for plain positions. Raises
    UnsupportedArchitectureError as `scaling` and `factors` do.
    """
    found = scaling(model)
    if (of_file := factors(model, dims=dims, traditional=traditional)) is not None:
        return of_file
    if found is None:
        return None
    return RotaryScaling(
        dims=dims or model.head_dim,
        base=model.rope_base,
        scaling=found,
        traditional=traditional,
    )


def long(model: Decoder, *, dims: int | None = None) -> RotaryFactors | None:
    """Return the rotary layers of a model with LongRoPE (arXiv:2402.13753), None for others.

    It has two sets of factors, and the context decides between them. Raises ModelFormatError for
    only one set, UnsupportedArchitectureError if positions are scaled as well.
    """
    keys = model.keys
    present = [name for name in (_SHORT_FACTORS, _LONG_FACTORS) if name in model.tensors]
    if not present:
        return None
    if len(present) == 1:
        raise ModelFormatError(
            f"the file has {present[0]!r} without its counterpart; download or convert it again"
        )
    kind = keys.text("rope.scaling.type", "longrope")
    factor = keys.number("rope.scaling.factor", 1.0, low=0, high=1e6)
    if kind == "yarn" or (factor != 1.0 and kind != "none"):
        raise keys.unsupported("rope.scaling.type", kind, "rotary factors or scaling, not both,")
    return RotaryFactors(
        dims=dims or model.head_dim,
        base=model.rope_base,
        tensor=_SHORT_FACTORS,
        long_tensor=_LONG_FACTORS,
        original_context=keys.integer(_ORIGINAL, model.context_length, high=MAX_CONTEXT),
        scale=keys.number("rope.scaling.attn_factor", 1.0, low=0, high=1e3),
    )
