"""OLMo 1; OLMo 2 and 3, which share a name in GGUF; OLMoE, a mixture."""

from typing import Any

from akunu_py.gguf.names import FEED_FORWARD, modules
from akunu_py.gguf.parts import attention, experts, layers, rope, windows
from akunu_py.gguf.parts.decoder import Decoder
from akunu_py.gguf.plan import ModelPlan


def olmo(model: Decoder) -> ModelPlan:
    """OLMo 1 for `variants.olmo`; norms have no weights, and rows rotate as llama's do."""
    attention.require_whole_heads(model)
    clip = model.keys.number("attention.clamp_kqv", 0.0, low=-1e-30, high=1e6)
    return model.plan(
        "variants.olmo",
        [
            *layers.frame(model, norm=None),
            *attention.rules(model),
            *modules(FEED_FORWARD, layers.GATED),
        ],
        {
            "rms_norm_eps": model.layer_norm_eps,
            "clip_qkv": clip,
            "rope_traditional": True,
            "rope_scaling": rope.scaling(model),
        },
    )


def olmo2(model: Decoder) -> ModelPlan:
    """OLMo 2 for `mlx_lm.models.olmo2`, OLMo 3 for `mlx_lm.models.olmo3`.

    OLMo 3 has windowed layers with unscaled positions. Norms of q and k span all heads, and norms
    of a block follow its parts.
    """
    attention.require_plain_heads(model)
    arguments: dict[str, Any] = {"rope_scaling": rope.scaling(model)}
    if window := windows.size(model, 0):
        windowed = windows.windowed_layers(model, 4)
        windows.require_both_kinds(model, windowed)
        rope.require_one_base(model)
        arguments["sliding_window"] = window
        arguments["layer_types"] = windows.layer_types(windowed)
    return model.plan(
        "olmo3" if window else "olmo2",
        layers.llama(model, norms=layers.NORMS_BEHIND, heads=layers.HEAD_NORMS),
        arguments,
    )


def olmoe(model: Decoder) -> ModelPlan:
    """OLMoE for `mlx_lm.models.olmoe`.

    Norms of q and k span all heads. The weights of the chosen experts are not scaled to sum to one.
    """
    attention.require_whole_heads(model)
    mixture = experts.read(model, "feed_forward_length")
    return model.plan(
        "olmoe",
        [
            *layers.llama(model, heads=layers.HEAD_NORMS, feed_forward={"ffn_gate_inp": "gate"}),
            *experts.rules(model, mixture),
        ],
        {
            **mixture.arguments,
            "norm_topk_prob": False,
            "rope_scaling": rope.scaling(model),
        },
    )
