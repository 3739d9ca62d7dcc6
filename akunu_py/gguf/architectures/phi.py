"""Phi 1, 1.5 and 2; Phi 3, 3.5 and 4. Part of a head may rotate."""

from akunu_py.gguf.names import ATTENTION, FEED_FORWARD, LAYER, module, modules
from akunu_py.gguf.parts import attention, layers, rope, windows
from akunu_py.gguf.parts.decoder import Decoder
from akunu_py.gguf.plan import ModelPlan


def phi2(model: Decoder) -> ModelPlan:
    """Phi 1, 1.5 and 2 for `mlx_lm.models.phi`."""
    rotated = rope.rotated(model)
    attention.require_plain_heads(model, partial=True)
    return model.plan(
        "phi",
        [
            *layers.frame(model, norm="model.final_layernorm", tied=False),
            *modules(LAYER, layers.ONE_NORM),
            *attention.rules(model, output="dense"),
            *modules(FEED_FORWARD, {"ffn_up": "fc1", "ffn_down": "fc2"}),
        ],
        {
            "layer_norm_eps": model.layer_norm_eps,
            "partial_rotary_factor": rope.share(rotated, model.head_dim),
        },
        rotary=rope.layers(model, dims=rotated),
    )


def phi3(model: Decoder) -> ModelPlan:
    """Phi 3, 3.5 and 4 for `variants.phi3`.

    Files have q, k and v fused, as in the class, or separate. Gate and up are always fused, under
    the name of up.
    """
    rotated = rope.rotated(model)
    attention.require_plain_heads(model, partial=True)
    fused = f"blk.0.{attention.FUSED}.weight" in model.tensors
    parts = [f"blk.{{}}.{part}" for part in ([attention.FUSED] if fused else attention.INPUTS)]
    # Files of models trained without a window may state one as long as the context.
    window = windows.size(model, 0)
    return model.plan(
        "variants.phi3",
        [
            *layers.frame(model),
            *modules(LAYER, layers.NORMS),
            module(parts, f"{ATTENTION}.qkv_proj"),
            *modules(ATTENTION, {"attn_output": "o_proj"}),
            *modules(FEED_FORWARD, layers.GATE_IN_UP),
        ],
        {
            "rms_norm_eps": model.rms_eps,
            "partial_rotary_factor": rope.share(rotated, model.head_dim),
            "sliding_window": window if 0 < window < model.context_length else None,
        },
        rotary=rope.long(model, dims=rotated) or rope.layers(model, dims=rotated),
        ignored=rope.LONG_TENSORS,
    )
