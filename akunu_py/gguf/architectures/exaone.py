"""EXAONE 3, 3.5 and 4."""

from akunu_py.gguf.names import modules
from akunu_py.gguf.parts import attention, layers, rope, windows
from akunu_py.gguf.parts.decoder import Decoder
from akunu_py.gguf.plan import ModelPlan

_WINDOWED_LAYERS = 64
"""Layers of the 32B model, whose old files have no keys for its windows."""


def exaone(model: Decoder) -> ModelPlan:
    """EXAONE 3 and 3.5 for `mlx_lm.models.exaone`."""
    attention.require_plain_heads(model)
    layer = "transformer.h.{}"
    names = {
        "attn_norm": "ln_1",
        "ffn_norm": "ln_2",
        "ffn_gate": "mlp.c_fc_0",
        "ffn_up": "mlp.c_fc_1",
        "ffn_down": "mlp.c_proj",
    }
    return model.plan(
        "exaone",
        [
            *layers.frame(model, "transformer.wte", "transformer.ln_f"),
            *attention.rules(model, f"{layer}.attn.attention", output="out_proj"),
            *modules(layer, names),
        ],
        {
            "num_layers": model.num_layers,
            "layer_norm_epsilon": model.rms_eps,
            "rope_scaling": rope.scaling(model),
        },
        rotary=rope.factors(model),
    )


def exaone4(model: Decoder) -> ModelPlan:
    """EXAONE 4 for `mlx_lm.models.exaone4`.

    Norms follow attention and feed-forward part. If some layers are windowed, as in the 32B model,
    only those rotate.
    """
    attention.require_whole_heads(model)
    window = windows.size(model, 4096 if model.num_layers == _WINDOWED_LAYERS else 0)
    pattern = None
    if window:
        windowed = windows.windowed(model, 4)
        windows.require_both_kinds(model, windowed)
        pattern = "".join("L" if flag else "G" for flag in windowed)
    return model.plan(
        "exaone4",
        layers.llama(model, norms=layers.NORMS_BEHIND, heads=layers.HEAD_NORMS),
        {
            "rms_norm_eps": model.rms_eps,
            "rope_scaling": rope.scaling(model),
            "sliding_window": window or None,
            "sliding_window_pattern": pattern,
        },
        rotary=rope.factors(model),
        predicts_further=True,
    )
