"""Gemma 1, 2 and 3; 3n and 4 are in `gemma3n` and `gemma4`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.architectures import blocks, decoder, gemma3n, gemma4, windows
from akunu_py.gguf.architectures.decoder import Dimensions
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, module, parameter
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rope_base, rope_scaling

MAX_CAP = 1e6
# The sizes whose queries are scaled by the width over the heads, not by the head's width; no key
# tells, so that llama.cpp goes by the number of layers too.
_GEMMA2_27B_LAYERS = 46
_GEMMA3_27B_LAYERS = 62


def read_gemma(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a Gemma 1 model for `variants.gemma`."""
    sizes = decoder.read_dimensions(keys, tensors)
    decoder.require_whole_heads(keys, sizes.head_dim)
    rules = [
        *_frame_rules(tied=True),
        _norm("blk.{}.attn_norm", f"{blocks.LAYER}.input_layernorm"),
        *blocks.attention_rules(tensors, sizes),
        _norm("blk.{}.ffn_norm", f"{blocks.LAYER}.post_attention_layernorm"),
        *blocks.feed_forward_rules(),
    ]
    return _plan(
        keys,
        tensors,
        sizes,
        model="variants.gemma",
        rules=rules,
        arguments={"rms_norm_eps": decoder.rms_eps(keys)},
    )


def read_gemma2(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a Gemma 2 model for `variants.gemma2`."""
    sizes = decoder.read_dimensions(keys, tensors)
    decoder.require_whole_heads(keys, sizes.head_dim)
    base = rope_base(keys)
    if (swa_base := keys.number("rope.freq_base_swa", base, low=1, high=1e12)) != base:
        raise keys.unsupported("rope.freq_base_swa", swa_base, f"the base of all layers, {base}")
    windowed = windows.windowed_layers(keys, sizes.num_layers, 2)
    # A window of no tokens is llama.cpp's way to say none.
    window = windows.read_window(keys, 4096)
    rules = [
        *_frame_rules(tied=True),
        *_four_norms(),
        *blocks.attention_rules(tensors, sizes),
        *blocks.feed_forward_rules(),
    ]
    arguments = {
        "rms_norm_eps": decoder.rms_eps(keys),
        "query_pre_attn_scalar": _query_scalar(sizes, _GEMMA2_27B_LAYERS),
        "attn_logit_softcapping": keys.number("attn_logit_softcapping", 50.0, low=0, high=MAX_CAP),
        "final_logit_softcapping": keys.number(
            "final_logit_softcapping", 30.0, low=0, high=MAX_CAP
        ),
        "sliding_window": window,
        "windowed_layers": tuple(flag and window > 0 for flag in windowed),
    }
    return _plan(keys, tensors, sizes, model="variants.gemma2", rules=rules, arguments=arguments)


def read_gemma3(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a Gemma 3 text model for `variants.gemma3`.

    Its windowed layers have a rotary base of their own and positions that are never scaled.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    decoder.require_whole_heads(keys, sizes.head_dim)
    window = windows.read_window(keys, 0)
    period = 1
    if window:
        windowed = windows.windowed_layers(keys, sizes.num_layers, 6)
        period = windows.period_of(keys, windowed)
    scaling = rope_scaling(keys, sizes.context_length)
    if window and scaling is not None and scaling["type"] != "linear":
        raise keys.unsupported("rope.scaling.type", scaling["type"], "linear scaling of positions")
    cap = keys.number("final_logit_softcapping", 0.0, low=-1, high=MAX_CAP)
    rules = [
        *_frame_rules(sizes.tied),
        *_four_norms(),
        *blocks.attention_rules(tensors, sizes),
        _norm("blk.{}.attn_q_norm", f"{blocks.ATTENTION}.q_norm"),
        _norm("blk.{}.attn_k_norm", f"{blocks.ATTENTION}.k_norm"),
        *blocks.feed_forward_rules(),
    ]
    arguments = {
        "rms_norm_eps": decoder.rms_eps(keys),
        "query_pre_attn_scalar": _query_scalar(sizes, _GEMMA3_27B_LAYERS),
        "rope_local_base_freq": keys.number("rope.freq_base_swa", 10000.0, low=1, high=1e12),
        "rope_scaling": scaling,
        "sliding_window": window,
        "sliding_window_pattern": period,
        "final_logit_softcapping": cap if cap > 0 else None,
    }
    return _plan(keys, tensors, sizes, model="variants.gemma3", rules=rules, arguments=arguments)


def _plan(
    keys: Keys,
    tensors: Mapping[str, TensorInfo],
    sizes: Dimensions,
    *,
    model: str,
    rules: list[Rule],
    arguments: Mapping[str, Any],
) -> ModelPlan:
    plan = blocks.decoder_plan(keys, tensors, sizes, model=model, rules=rules, arguments=arguments)
    return replace(plan, wide_range=True)


def _query_scalar(sizes: Dimensions, layers_of_27b: int) -> int:
    """Return what queries are divided by the root of."""
    if sizes.num_layers == layers_of_27b:
        return max(1, sizes.hidden_size // sizes.num_heads)
    return sizes.head_dim


def _minus_one(weight: NDArray[np.float32]) -> NDArray[np.float32]:
    return weight - np.float32(1)


def _norm(source: str, target: str) -> Rule:
    """Map a norm's weight: converters add the 1 that mlx-lm's classes add as they run."""
    return parameter(f"{source}.weight", f"{target}.weight", convert=_minus_one)


def _frame_rules(tied: bool) -> list[Rule]:
    rules = [module(decoder.EMBEDDING, "model.embed_tokens"), _norm("output_norm", "model.norm")]
    if not tied:
        rules.append(module(decoder.OUTPUT, "lm_head"))
    return rules


def _four_norms() -> list[Rule]:
    return [
        _norm("blk.{}.attn_norm", f"{blocks.LAYER}.input_layernorm"),
        _norm("blk.{}.post_attention_norm", f"{blocks.LAYER}.post_attention_layernorm"),
        _norm("blk.{}.ffn_norm", f"{blocks.LAYER}.pre_feedforward_layernorm"),
        _norm("blk.{}.post_ffw_norm", f"{blocks.LAYER}.post_feedforward_layernorm"),
    ]


READERS = {
    "gemma": read_gemma,
    "gemma2": read_gemma2,
    "gemma3": read_gemma3,
    "gemma3n": gemma3n.read_gemma3n,
    "gemma4": gemma4.read_gemma4,
}
