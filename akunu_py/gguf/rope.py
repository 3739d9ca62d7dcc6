"""Scaling of rotary positions: GGUF's keys to mlx-lm's `rope_scaling`."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from akunu_py.errors import ModelFormatError, UnsupportedArchitectureError
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.plan import RotaryFactors, RotaryScaling
from akunu_py.gguf.reader import TensorInfo

FREQUENCY_FACTORS = "rope_freqs.weight"
"""Divisors of the rotary frequencies, [dims / 2]: how GGUF holds Llama 3's scaling."""

_SHORT_FACTORS = "rope_factors_short.weight"
_LONG_FACTORS = "rope_factors_long.weight"
LONG_ROPE_TENSORS = f"{_SHORT_FACTORS}|{_LONG_FACTORS}"
"""A regular expression for the names of the tensors of LongRoPE."""


def rope_base(keys: Keys, default: float = 10000.0) -> float:
    """Return the base of the rotary frequencies, base ** (-2 i / dims)."""
    return keys.number("rope.freq_base", default, low=1, high=1e12)


def rope_scaling(keys: Keys, context_length: int) -> dict[str, Any] | None:
    """Return mlx-lm's `rope_scaling`, or None for positions as they are.

    Linear scaling and YaRN; the latter as Peng et al. 2023 (arXiv:2309.00071) have it, with the
    attention factor 0.1 ln(factor) + 1 folded into the rotation, as both programs do. Raises
    UnsupportedArchitectureError for another kind.
    """
    # llama.cpp takes a factor without a type as linear.
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
    original = keys.integer(
        "rope.scaling.original_context_length", max(1, context_length), high=1 << 40
    )
    scaling: dict[str, Any] = {
        "type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": original,
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


def frequency_factors(
    keys: Keys,
    tensors: Mapping[str, TensorInfo],
    *,
    dims: int,
    scaling: Mapping[str, Any] | None,
    traditional: bool = False,
) -> RotaryFactors | None:
    """Return the factors of `rope_freqs.weight`, None where the file has none.

    Raises UnsupportedArchitectureError where positions are scaled as well.
    """
    if FREQUENCY_FACTORS not in tensors:
        return None
    if scaling is not None:
        raise UnsupportedArchitectureError(
            f"the model has both {FREQUENCY_FACTORS} and {scaling['type']} scaling of positions; "
            "akunu knows either, not both"
        )
    return RotaryFactors(
        dims=dims, base=rope_base(keys), tensor=FREQUENCY_FACTORS, traditional=traditional
    )


def rotary_layers(
    keys: Keys,
    tensors: Mapping[str, TensorInfo],
    *,
    dims: int,
    context_length: int,
    traditional: bool = False,
    modules: str = r".*\.rope",
) -> RotaryFactors | RotaryScaling | None:
    """Return the rotary layers for a model class that knows plain positions only.

    Some of mlx-lm's classes leave `rope_scaling` unread. None where positions are plain; raises
    UnsupportedArchitectureError as `rope_scaling` and `frequency_factors` do.
    """
    scaling = rope_scaling(keys, context_length)
    factors = frequency_factors(keys, tensors, dims=dims, scaling=scaling, traditional=traditional)
    if factors is not None:
        return replace(factors, modules=modules)
    if scaling is None:
        return None
    return RotaryScaling(
        dims=dims,
        base=rope_base(keys),
        scaling=scaling,
        traditional=traditional,
        modules=modules,
    )


def long_rope(
    keys: Keys, tensors: Mapping[str, TensorInfo], *, dims: int, context_length: int
) -> RotaryFactors | None:
    """Return the rotary layers of a model for long contexts, None for another.

    It has two sets of factors, of which the context decides (LongRoPE, arXiv:2402.13753). Raises
    ModelFormatError for one set alone, UnsupportedArchitectureError for scaled positions besides.
    """
    present = [name for name in (_SHORT_FACTORS, _LONG_FACTORS) if name in tensors]
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
        dims=dims,
        base=rope_base(keys),
        tensor=_SHORT_FACTORS,
        long_tensor=_LONG_FACTORS,
        original_context=keys.integer(
            "rope.scaling.original_context_length", context_length, high=1 << 40
        ),
        scale=keys.number("rope.scaling.attn_factor", 1.0, low=0, high=1e3),
    )
