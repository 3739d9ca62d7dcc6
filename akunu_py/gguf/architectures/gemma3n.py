"""Gemma 3n, text: four streams, a low-rank path beside each block, embeddings for every layer."""

import math

from akunu_py.gguf.names import Rule, module, modules, parameter
from akunu_py.gguf.parts import attention, layers, rope, windows
from akunu_py.gguf.parts.decoder import Decoder
from akunu_py.gguf.plan import ModelPlan

_BODY = "model.language_model"
_LAYER = f"{_BODY}.layers.{{}}"
_SPARSITY = "activation_sparsity_scale"
# llama.cpp's defaults for files without these keys, right for both released sizes.
_SPARSE_LAYERS, _SPARSE_SHARE = 10, 0.95
_LAYERS_WITH_KEYS = 20

_LAYER_MODULES = {
    "attn_norm": "input_layernorm",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "inp_gate": "per_layer_input_gate",
    "proj": "per_layer_projection",
    "post_norm": "post_per_layer_input_norm",
    "altup_correct_coef": "altup.correction_coefs",
    "altup_predict_coef": "altup.prediction_coefs",
    "altup_router": "altup.modality_router",
    "altup_router_norm": "altup.router_norm",
    "laurel_l": "laurel.linear_left",
    "laurel_r": "laurel.linear_right",
    "laurel_post_norm": "laurel.post_laurel_norm",
}


def gemma3n(model: Decoder) -> ModelPlan:
    """Gemma 3n for `mlx_lm.models.gemma3n`.

    Unlike in Gemma 1 to 3 nothing is added to the norms. Files, like the class, also have keys and
    values for layers that use another layer's.
    """
    keys = model.keys
    attention.require_whole_heads(model)
    count = model.num_layers
    streams = keys.integer("altup.num_inputs", 4, low=2, high=64)
    with_keys = max(0, count - _LAYERS_WITH_KEYS)
    text = {
        "model_type": "gemma3n",
        "num_kv_shared_layers": keys.integer(
            "attention.shared_kv_layers", with_keys, low=0, high=count - 1
        ),
        "vocab_size_per_layer_input": model.rows_of("per_layer_token_embd.weight"),
        "sliding_window": windows.size(model),
        "layer_types": windows.layer_types(windows.windowed_layers(model, 5)),
        "rope_local_base_freq": rope.window_base(model),
        "final_logit_softcapping": keys.number("final_logit_softcapping", 30.0, low=0, high=1e6),
        "activation_sparsity_pattern": _sparsity(model),
        "hidden_size_per_layer_input": keys.integer("embedding_length_per_layer_input", 256),
        "altup_num_inputs": streams,
        # Coefficients are clipped only in training.
        "altup_coef_clip": None,
        "altup_correct_scale": True,
        "altup_active_idx": keys.integer("altup.active_idx", 0, low=0, high=streams - 1),
        "laurel_rank": model.rows_of("blk.0.laurel_l.weight"),
    }
    return model.plan(
        "gemma3n",
        [
            *layers.frame(model, f"{_BODY}.embed_tokens", f"{_BODY}.norm", tied=True),
            *attention.rules(model, f"{_LAYER}.self_attn"),
            *modules(f"{_LAYER}.mlp", layers.GATED),
            *modules(_LAYER, _LAYER_MODULES),
            parameter("blk.{}.altup_correct_scale.weight", f"{_LAYER}.altup.correct_output_scale"),
            module("per_layer_token_embd", f"{_BODY}.embed_tokens_per_layer"),
            module("per_layer_model_proj", f"{_BODY}.per_layer_model_projection"),
            module("per_layer_proj_norm", f"{_BODY}.per_layer_projection_norm"),
            *_unstack(model, "altup_proj", "altup_projections", streams),
            *_unstack(model, "altup_unembd_proj", "altup_unembed_projections", streams),
        ],
        {"text_config": model.arguments(text)},
        shared_arguments=False,
        wide_range=True,
    )


def _unstack(model: Decoder, source: str, target: str, streams: int) -> list[Rule]:
    """Map a stack of matrices, one for each stream but the first, to a list of modules."""
    width = model.hidden_size
    return [
        module(source, f"{_BODY}.{target}.{index}", rows=slice(index * width, (index + 1) * width))
        for index in range(streams - 1)
    ]


def _sparsity(model: Decoder) -> list[float]:
    """Return the share of the gates that each layer sets to zero.

    The file states the number of standard deviations above the mean of a normal distribution below
    which that share lies.
    """
    keys, count = model.keys, model.num_layers
    if _SPARSITY not in keys:
        return [_SPARSE_SHARE if layer < _SPARSE_LAYERS else 0.0 for layer in range(count)]
    scales = keys.layer_numbers(_SPARSITY, count, low=-math.inf)
    return [0.5 * (1 + math.erf(scale / math.sqrt(2))) for scale in scales]
