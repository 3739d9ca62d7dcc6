"""Gemma 1, 2 and 3; 3n and 4 have separate files.

Converters add 1 to the norms' weights, which mlx-lm's classes also do.
"""

from akunu_py.gguf.names import ATTENTION, FEED_FORWARD, LAYER, Rule, modules, parameter
from akunu_py.gguf.parts import attention, layers, rope, windows
from akunu_py.gguf.parts.decoder import Decoder
from akunu_py.gguf.plan import ModelPlan

MAX_CAP = 1e6
# Sizes whose queries are scaled by the model's width over its heads, not by the head's width. There
# is not a key, so llama.cpp also decides by the number of layers.
_GEMMA2_27B_LAYERS = 46
_GEMMA3_27B_LAYERS = 62


def gemma(model: Decoder) -> ModelPlan:
    """Gemma 1 for `variants.gemma`."""
    attention.require_whole_heads(model)
    return model.plan(
        "variants.gemma",
        [
            *_frame(model, tied=True),
            *layers.norms_minus_one(LAYER, layers.NORMS),
            *attention.rules(model),
            *modules(FEED_FORWARD, layers.GATED),
        ],
        {},
        wide_range=True,
    )


def gemma2(model: Decoder) -> ModelPlan:
    """Gemma 2 for `variants.gemma2`."""
    keys = model.keys
    attention.require_whole_heads(model)
    rope.require_one_base(model)
    windowed = windows.windowed_layers(model, 2)
    # In llama.cpp a window of 0 tokens stands for none.
    window = windows.size(model, 4096)
    attention_cap = keys.number("attn_logit_softcapping", 50.0, low=0, high=MAX_CAP)
    return model.plan(
        "variants.gemma2",
        [
            *_frame(model, tied=True),
            *layers.norms_minus_one(LAYER, layers.FOUR_NORMS),
            *attention.rules(model),
            *modules(FEED_FORWARD, layers.GATED),
        ],
        {
            "query_pre_attn_scalar": _query_scalar(model, _GEMMA2_27B_LAYERS),
            "attn_logit_softcapping": attention_cap,
            "final_logit_softcapping": keys.number(
                "final_logit_softcapping", 30.0, low=0, high=MAX_CAP
            ),
            "sliding_window": window,
            "windowed_layers": tuple(flag and window > 0 for flag in windowed),
        },
        wide_range=True,
    )


def gemma3(model: Decoder) -> ModelPlan:
    """Gemma 3, its text part, for `variants.gemma3`.

    Its windowed layers have a separate rotary base and unscaled positions.
    """
    keys = model.keys
    attention.require_whole_heads(model)
    window = windows.size(model, 0)
    period = windows.period(model, windows.windowed_layers(model, 6)) if window else 1
    scaling = rope.scaling(model)
    if window and scaling is not None and scaling["type"] != "linear":
        raise keys.unsupported("rope.scaling.type", scaling["type"], "linear scaling of positions")
    cap = keys.number("final_logit_softcapping", 0.0, low=-1, high=MAX_CAP)
    return model.plan(
        "variants.gemma3",
        [
            *_frame(model, tied=model.tied),
            *layers.norms_minus_one(LAYER, layers.FOUR_NORMS),
            *attention.rules(model),
            *layers.norms_minus_one(ATTENTION, layers.HEAD_NORMS),
            *modules(FEED_FORWARD, layers.GATED),
        ],
        {
            "query_pre_attn_scalar": _query_scalar(model, _GEMMA3_27B_LAYERS),
            "rope_local_base_freq": rope.window_base(model),
            "rope_scaling": scaling,
            "sliding_window": window,
            "sliding_window_pattern": period,
            "final_logit_softcapping": cap if cap > 0 else None,
        },
        wide_range=True,
    )


def _query_scalar(model: Decoder, layers_of_27b: int) -> int:
    """Return the number by whose root queries are divided."""
    if model.num_layers == layers_of_27b:
        return max(1, model.hidden_size // model.num_heads)
    return model.head_dim


def _frame(model: Decoder, *, tied: bool) -> list[Rule]:
    norm = parameter("output_norm.weight", "model.norm.weight", convert=layers.minus_one)
    return [*layers.frame(model, norm=None, tied=tied), norm]
