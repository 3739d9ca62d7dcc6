"""Gemma 3n, text: four streams, a low-rank path beside each block, embeddings for every layer."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from akunu_py.errors import ModelFormatError
from akunu_py.gguf.architectures import blocks, decoder, windows
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, module, parameter
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rope_base

_BODY = "model.language_model"
_LAYER = f"{_BODY}.layers.{{}}"
_SPARSITY = "activation_sparsity_scale"
# What llama.cpp takes for files without a key: both sizes that were released are so.
_SPARSE_LAYERS, _SPARSE_SHARE = 10, 0.95
_LAYERS_WITH_KEYS = 20
_PER_LAYER_EMBEDDING = "per_layer_token_embd.weight"

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


def read_gemma3n(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a Gemma 3n text model for `mlx_lm.models.gemma3n`.

    Unlike in Gemma 1 to 3 nothing is added to the norms. Files hold keys and values also for layers
    that use those of another, and so does the class.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    decoder.require_whole_heads(keys, sizes.head_dim)
    layers = sizes.num_layers
    streams = keys.integer("altup.num_inputs", 4, low=2, high=64)
    windowed = windows.windowed_layers(keys, layers, 5)
    shared = keys.integer(
        "attention.shared_kv_layers", max(0, layers - _LAYERS_WITH_KEYS), low=0, high=layers - 1
    )
    text = {
        **blocks.decoder_arguments(keys, sizes, "gemma3n"),
        "rms_norm_eps": decoder.rms_eps(keys),
        "num_kv_shared_layers": shared,
        "vocab_size_per_layer_input": _rows(tensors, _PER_LAYER_EMBEDDING),
        "sliding_window": keys.integer(windows.WINDOW, high=decoder.MAX_CONTEXT),
        "rope_local_base_freq": keys.number("rope.freq_base_swa", 10000.0, low=1, high=1e12),
        "rope_theta": rope_base(keys),
        "final_logit_softcapping": keys.number("final_logit_softcapping", 30.0, low=0, high=1e6),
        "layer_types": ["sliding_attention" if flag else "full_attention" for flag in windowed],
        "activation_sparsity_pattern": _sparsity(keys, layers),
        "hidden_size_per_layer_input": keys.integer("embedding_length_per_layer_input", 256),
        "altup_num_inputs": streams,
        # Coefficients are clipped in training only.
        "altup_coef_clip": None,
        "altup_correct_scale": True,
        "altup_active_idx": keys.integer("altup.active_idx", 0, low=0, high=streams - 1),
        "laurel_rank": _rows(tensors, "blk.0.laurel_l.weight"),
    }
    rules = [
        *decoder.frame_rules(tied=True, body=_BODY),
        *blocks.attention_rules(tensors, sizes, target=f"{_LAYER}.self_attn"),
        *blocks.feed_forward_rules(f"{_LAYER}.mlp"),
        *(
            module(f"blk.{{}}.{source}", f"{_LAYER}.{target}")
            for source, target in _LAYER_MODULES.items()
        ),
        parameter("blk.{}.altup_correct_scale.weight", f"{_LAYER}.altup.correct_output_scale"),
        module("per_layer_token_embd", f"{_BODY}.embed_tokens_per_layer"),
        module("per_layer_model_proj", f"{_BODY}.per_layer_model_projection"),
        module("per_layer_proj_norm", f"{_BODY}.per_layer_projection_norm"),
        *_unstacked("altup_proj", "altup_projections", streams, sizes.hidden_size),
        *_unstacked("altup_unembd_proj", "altup_unembed_projections", streams, sizes.hidden_size),
    ]
    plan = blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="gemma3n",
        rules=rules,
        arguments={"text_config": text},
    )
    return replace(plan, wide_range=True)


def _rows(tensors: Mapping[str, TensorInfo], name: str) -> int:
    if name not in tensors or len(tensors[name].shape) != 2:
        raise ModelFormatError(
            f"the file has no matrix {name!r}; it is incomplete: download it again"
        )
    return int(tensors[name].shape[0])


def _unstacked(source: str, target: str, streams: int, width: int) -> list[Rule]:
    """Map a stack of matrices, one for each stream but the first, to a list of modules."""
    return [
        module(
            source,
            f"{_BODY}.{target}.{index}",
            rows=slice(index * width, (index + 1) * width),
        )
        for index in range(streams - 1)
    ]


def _sparsity(keys: Keys, layers: int) -> list[float]:
    """Return the share of the gates that each layer sets to zero.

    The file has it as the standard deviations above the mean where a normal distribution has that
    share below.
    """
    value = keys.metadata.get(f"{keys.architecture}.{_SPARSITY}")
    if value is None:
        return [_SPARSE_SHARE if layer < _SPARSE_LAYERS else 0.0 for layer in range(layers)]
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or len(value) < layers:
        raise keys.error(_SPARSITY, value, f"{layers} numbers")
    if np.isnan(value[:layers]).any():
        raise keys.error(_SPARSITY, value, f"{layers} numbers")
    return [0.5 * (1 + math.erf(float(scale) / math.sqrt(2))) for scale in value[:layers]]


READERS = {"gemma3n": read_gemma3n}
