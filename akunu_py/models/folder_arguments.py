"""What config.json says of a model, under the names that mlx-lm's classes read.

transformers 5 writes other names than transformers 4, such as `rope_parameters`, and a class leaves
out what it does not know. So entries also get their older names before a class is made, and a made
model is compared with the entries that change its results.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from mlx import nn

from akunu_py.models.folder_settings import folder_context
from akunu_py.system.errors import UnsupportedArchitectureError

_OLDER_NAMES = (
    ("model_max_length", "max_position_embeddings"),
    ("moe_renormalize", "norm_topk_prob"),
    ("num_expert_group", "n_group"),
    ("num_experts_per_token", "num_experts_per_tok"),
    ("num_local_experts", "num_experts"),
)
_OLDER_LAYERS = {"linear_attention": "mamba", "full_attention": "attention"}

_PLAIN = ("default", "mrope")
"""Kinds of rotations that are the same for texts: `mrope` is another for pictures alone."""

_UNSCALED = ("rope_theta", "partial_rotary_factor")
_SCALED = (
    "linear", "dynamic", "llama3", "yarn", "deepseek_yarn", "telechat3-yarn", "longrope", "su",
    "proportional",
)  # fmt: skip

_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "attention_multiplier": (), "attention_value_scale": (1,), "attn_logit_softcapping": (0,),
    "clip_qkv": (), "embedding_multiplier": (1,), "final_logit_softcapping": (0,),
    "index_topk_blocks": (), "is_causal": (True,), "lm_head_multiplier": (1,), "logit_scale": (1,),
    "logits_scaling": (1,), "moe_apply_router_weight_on_input": (False,),
    "residual_multiplier": (1,), "rope_interleave": (True,),
    "scale_attn_by_inverse_layer_idx": (False,), "use_bidirectional_attention": (False, "vision"),
}  # fmt: skip
"""Entries that change results, and values besides null with which they do not."""

_NOT_SILU = re.compile(
    r"(?!gpt_oss)(gemma|gpt|recurrent_gemma|starcoder2|bitnet|nanochat|nemotron_h|apertus|phi$).*"
)
"""Types whose classes have another activation than most."""


def with_older_names(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config in which entries of transformers 5 also have the names of transformers 4.

    Raises UnsupportedArchitectureError for entries that no class of mlx-lm takes.
    """
    found = _translated(config)
    if isinstance(found.get("text_config"), dict):
        found["text_config"] = _translated(found["text_config"])
    return found


def check_applied(config: Mapping[str, Any], model: nn.Module) -> None:
    """Compare a model with the config, as `with_older_names` returns it, that it was made from.

    Raises UnsupportedArchitectureError, naming the entry, where its class leaves out one that
    changes results.
    """
    text = config.get("text_config") or config
    kind, taken = str(text.get("model_type") or config["model_type"]), _taken(model)
    neutral = {**_NEUTRAL}
    if kind in ("deepseek", "deepseek_v2", "qwen2_moe"):
        neutral["norm_topk_prob"] = (False,)
    if kind == "nanochat":
        neutral["final_logit_softcapping"] = (15,)
    for name in neutral.keys() - taken:
        if text.get(name) not in (None, *neutral[name]):
            raise _left_out(name, text[name])
    other = re.fullmatch(r"(quick_)?gelu.*|relu.*", str(text.get("hidden_act")))
    if other and "hidden_act" not in taken and not _NOT_SILU.fullmatch(kind):
        raise _left_out("hidden_act", text["hidden_act"])
    layers, regular = text.get("layer_types"), {"sliding_window_pattern", "full_attention_interval"}
    irregular = isinstance(layers, list) and len(set(layers)) > 1 and _interval(layers) is None
    if irregular and "layer_types" not in taken and taken & regular:
        raise _left_out("layer_types", layers)
    _check_rotations(text, model, taken)


def applied_context(config: Mapping[str, Any], model: nn.Module) -> int:
    """Return the tokens for which a model computes what its config says.

    It is the trained context, or the sliding window where the class has none: up to there, a
    window hides nothing.
    """
    text, taken = config.get("text_config") or config, _taken(model)
    context, window = folder_context(config), text.get("sliding_window")
    if not isinstance(window, int) or window <= 0 or text.get("use_sliding_window") is False:
        return context
    layers = text.get("layer_types") or ()
    # A class that takes the kinds of layers has no window where they are not given.
    applied = "sliding_window" in taken and (layers or "layer_types" not in taken)
    unused = layers and "sliding_attention" not in layers
    after = (text.get("max_window_layers") or 0) >= (text.get("num_hidden_layers") or 1)
    return context if applied or unused or after else min(context, window)


def _taken(model: nn.Module) -> set[str]:
    """Return the names of all entries that a model's classes take."""
    return {
        name
        for module in model.modules()
        for part in vars(module).values()
        for name in getattr(type(part), "__dataclass_fields__", ())
    }


def _translated(place: Mapping[str, Any]) -> dict[str, Any]:
    found = {older: place[name] for name, older in _OLDER_NAMES if place.get(name) is not None}
    found |= place
    layers, parts = place.get("layer_types"), place.get("per_layer_config")
    if isinstance(layers, list):
        if place.get("model_type") == "granitemoehybrid":
            found["layer_types"] = [_OLDER_LAYERS.get(layer, layer) for layer in layers]
        elif place.get("model_type") == "exaone4":
            marks = "".join("L" if layer == "sliding_attention" else "G" for layer in layers)
            found["sliding_window_pattern"] = marks if "L" in marks else None
        elif (every := _interval(layers)) is not None:
            found |= {"sliding_window_pattern": every, "full_attention_interval": every}
    if isinstance(parts, dict) and parts:
        # Gemma 4's heads have another width in layers without a window.
        full = [str(i) for i, layer in enumerate(layers or ()) if layer == "full_attention"]
        width = next(iter(parts.values())).get("head_dim")
        if {name.lstrip("0") or "0": part for name, part in parts.items()} != {
            name: {"head_dim": width} for name in full
        }:
            raise _left_out("per_layer_config", parts)
        found["global_head_dim"] = width
    return found | _rotations(place)


def _rotations(place: Mapping[str, Any]) -> dict[str, Any]:
    """Return the older entries for how positions are rotated."""
    each = _each_rotation(place)
    if not each:
        return {}
    whole = each.get("full_attention") or next(iter(each.values()))
    kind = _kind(whole)
    found: dict[str, Any] = {"rope_scaling": None}
    theta = whole.get("rope_theta", place.get("rope_theta"))
    local = each.get("sliding_attention", whole).get("rope_theta", theta)
    part = whole.get("partial_rotary_factor", place.get("partial_rotary_factor"))
    if kind in _SCALED:
        scaling = {**whole, "type": kind, "rope_type": kind}
        if kind in ("llama3", "yarn", "longrope"):
            trained = place.get("original_max_position_embeddings") or folder_context(place)
            trained = scaling.setdefault("original_max_position_embeddings", trained)
            found["original_max_position_embeddings"] = trained
        if (wanted := scaling.get("attention_factor")) is not None and "yarn" in kind:
            if scaling.get("mscale_all_dim") or scaling["factor"] <= 1:
                raise _left_out("attention_factor", wanted)
            # mlx-lm takes it as the part of a logarithm that is added to 1.
            scaling["mscale"] = (wanted - 1) / (0.1 * math.log(scaling["factor"]))
        found["rope_scaling"] = scaling
    if theta is not None:
        found |= {"rope_theta": theta, "rotary_emb_base": theta}
    if len(each) > 1:
        found |= dict.fromkeys(
            ("rope_local_base_freq", "rope_local_theta", "swa_rope_theta"), local
        )
    if part is not None:
        found |= {"partial_rotary_factor": part, "rotary_pct": part}
    return found


def _each_rotation(place: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return how positions are rotated, by kind of layer, "" for all; raise for an unknown way."""
    rope, scaling = place.get("rope_parameters") or {}, place.get("rope_scaling") or {}
    if not isinstance(rope, dict) or not isinstance(scaling, dict):
        return {}
    layers = place.get("layer_types") or rope
    each = {kind: part for kind, part in rope.items() if isinstance(part, dict) and kind in layers}
    if scaling and not each:
        # As users add it; transformers, too, takes it first.
        rope = {key: value for key, value in rope.items() if key in _UNSCALED} | scaling
    each = each or ({"": rope} if rope or "rope_theta" in place else {})
    for part in each.values():
        if _kind(part) not in (*_PLAIN, *_SCALED):
            raise _left_out("rope_parameters.rope_type", _kind(part))
    return each


def _check_rotations(text: Mapping[str, Any], model: nn.Module, taken: set[str]) -> None:
    ropes = [part for part in model.modules() if "rope" in type(part).__name__.lower()]
    plain = [part for part in ropes if type(part) is nn.RoPE]
    for part in _each_rotation(text).values():
        kind, theta = _kind(part), part.get("rope_theta", text.get("rope_theta"))
        if kind == "linear":
            done = any(math.isclose(rope.scale, 1 / part["factor"]) for rope in plain)
        elif kind in _SCALED:
            done = len(ropes) > len(plain)
        else:
            done = not plain or any(theta in (None, rope.base) for rope in plain)
        if not done:
            raise _left_out("rope_parameters", part or theta)
    factor, width = text.get("partial_rotary_factor"), text.get("head_dim")
    known = taken & {"partial_rotary_factor", "rotary_pct", "rope_parameters", "qk_rope_head_dim"}
    dims = {rope.dims for rope in plain}
    if factor and width and dims and not known and int(width * factor) not in dims:
        raise _left_out("partial_rotary_factor", factor)


def _kind(rope: Mapping[str, Any]) -> str:
    return str(rope.get("rope_type") or rope.get("type") or "default")


def _interval(layers: list[Any]) -> int | None:
    """Return n where every n-th layer alone attends to all tokens, None for another order."""
    full = [i for i, layer in enumerate(layers) if layer == "full_attention"]
    every = full[0] + 1 if full else len(layers) + 1
    return every if full == list(range(every - 1, len(layers), every)) else None


def _left_out(name: str, value: Any) -> UnsupportedArchitectureError:
    return UnsupportedArchitectureError(
        f"config.json has {name} {str(value)[:120]!r}, which mlx-lm's class of this model does not "
        "apply: results would be others; use a GGUF file of the model, or another model"
    )
