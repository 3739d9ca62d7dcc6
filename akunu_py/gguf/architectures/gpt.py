"""GPT-2; GPT-NeoX, also Pythia; gpt-oss."""

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.names import ATTENTION, module, modules, parameter
from akunu_py.gguf.parts import attention, experts, layers, rope, windows
from akunu_py.gguf.parts.decoder import Decoder
from akunu_py.gguf.plan import ModelPlan

_LAYER = "model.h.{}"


def gpt2(model: Decoder) -> ModelPlan:
    """GPT-2 for `variants.gpt2`. Its positions are learned."""
    _require_common_sizes(model)
    names = {
        "attn_norm": "ln_1",
        "attn_qkv": "attn.c_attn",
        "attn_output": "attn.c_proj",
        "ffn_norm": "ln_2",
        "ffn_up": "mlp.c_fc",
        "ffn_down": "mlp.c_proj",
    }
    return model.plan(
        "variants.gpt2",
        [
            *layers.frame(model, "model.wte", "model.ln_f"),
            module("position_embd", "model.wpe"),
            *modules(_LAYER, names),
        ],
        {
            "n_ctx": model.context_length,
            "n_positions": model.context_length,
            "n_embd": model.hidden_size,
            "n_head": model.num_heads,
            "n_layer": model.num_layers,
            "layer_norm_epsilon": model.layer_norm_eps,
        },
    )


def gptneox(model: Decoder) -> ModelPlan:
    """GPT-NeoX for `mlx_lm.models.gpt_neox`.

    Converters put all queries first, then all keys; the class groups them by head.
    """
    _require_common_sizes(model)
    rotated = rope.rotated_dims(model)
    names = {
        "attn_norm": "input_layernorm",
        "attn_output": "attention.dense",
        "ffn_norm": "post_attention_layernorm",
        "ffn_up": "mlp.dense_h_to_4h",
        "ffn_down": "mlp.dense_4h_to_h",
    }
    fused = f"{_LAYER}.attention.query_key_value"
    return model.plan(
        "gpt_neox",
        [
            *layers.frame(
                model, "model.embed_in", "model.final_layer_norm", "model.embed_out", tied=False
            ),
            *modules(_LAYER, names),
            module("blk.{}.attn_qkv", fused, rows=_heads_together(model)),
        ],
        {
            "layer_norm_eps": model.layer_norm_eps,
            "rotary_emb_base": model.rope_base,
            "rotary_pct": rope.share(rotated, model.head_dim),
            "use_parallel_residual": model.keys.flag("use_parallel_residual"),
        },
        rotary=rope.layers(model, dims=rotated),
    )


def _require_common_sizes(model: Decoder) -> None:
    """Raise UnsupportedArchitectureError for sizes other than those the classes derive."""
    attention.require_plain_heads(model, partial=True)
    attention.require_own_keys(model)
    if model.feed_forward_size != 4 * model.hidden_size:
        wanted = f"4 times {model.hidden_size}"
        raise model.keys.unsupported("feed_forward_length", model.feed_forward_size, wanted)


def _heads_together(model: Decoder) -> NDArray[np.intp]:
    """Return the rows of a fused projection in an order that groups q, k and v by head."""
    rows = np.arange(3 * model.hidden_size, dtype=np.intp)
    return rows.reshape(3, model.num_heads, model.head_dim).transpose(1, 0, 2).ravel()


def gpt_oss(model: Decoder) -> ModelPlan:
    """Gpt-oss for `mlx_lm.models.gpt_oss`.

    Converters split the interleaved rows of gate and up, as the class does itself. The limit of 7
    and the factor 1.702 of the activation are fixed in both programs, without keys.
    """
    attention.require_whole_heads(model)
    rope.require_one_base(model)
    mixture = experts.read(model)
    return model.plan(
        "gpt_oss",
        [
            *layers.llama(
                model,
                norms=layers.NORMS_BETWEEN,
                feed_forward={"ffn_gate_inp": "router"},
                tied=False,
            ),
            parameter("blk.{}.attn_sinks.weight", f"{ATTENTION}.sinks"),
            *experts.rules(model, mixture, routed="experts"),
        ],
        {
            "intermediate_size": mixture.feed_forward_size,
            **mixture.arguments,
            "sliding_window": windows.size(model),
            "layer_types": windows.layer_types(windows.windowed_layers(model, 2)),
            "rope_scaling": rope.scaling(model),
        },
        wide_range=True,
    )
