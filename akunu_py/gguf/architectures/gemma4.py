"""Gemma 4, text: dense models, mixtures, and those with embeddings for every layer."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akunu_py.errors import ModelFormatError
from akunu_py.gguf.architectures import blocks, decoder, experts, windows
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, module, parameter, place
from akunu_py.gguf.plan import ModelPlan, RotaryFactors
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import FREQUENCY_FACTORS, frequency_factors, rope_base, rope_scaling

_NORM_SETS = {
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_MIXTURE_NORMS = {
    "post_ffw_norm_1": "post_feedforward_layernorm_1",
    "post_ffw_norm_2": "post_feedforward_layernorm_2",
    "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
}


@dataclass(frozen=True, slots=True)
class _Layers:
    """What differs from layer to layer.

    Attributes:
        windowed: whether a layer sees a window only, for each.
        own_keys: layers with keys and values of their own; later ones use those of the last before
            them of the same kind.
        equal: whether layers that see everything have their keys as values too.
        arguments: what the class is told of it.

    """

    windowed: list[bool]
    own_keys: int
    equal: bool
    arguments: dict[str, Any]

    def has_keys(self, layer: int) -> bool:
        return layer < self.own_keys

    def has_values(self, layer: int) -> bool:
        return layer < self.own_keys and not (self.equal and not self.windowed[layer])


def read_gemma4(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a Gemma 4 text model for `mlx_lm.models.gemma4_text`.

    Unlike in Gemma 1 to 3 nothing is added to the norms. Of layers that see everything only a part
    of a head rotates: the file's factors of the frequencies are so large elsewhere that nothing
    moves.
    """
    width = keys.integer("embedding_length")
    num_layers = decoder.read_num_layers(keys, tensors)
    vocabulary_size = decoder.read_vocabulary_size(keys, tensors, width)
    context_length = keys.integer("context_length", high=decoder.MAX_CONTEXT)
    tied = f"{decoder.OUTPUT}.weight" not in tensors
    layers = _read_layers(keys, tensors, num_layers)
    head_dim = _read_head(keys, "")
    base = rope_base(keys)
    factors = frequency_factors(
        keys, tensors, dims=head_dim, scaling=rope_scaling(keys, context_length)
    )
    if factors is None:
        raise ModelFormatError(
            f"the file has no tensor {FREQUENCY_FACTORS!r}, which says how much of a head rotates;"
            " convert the model again"
        )
    everywhere = [layer for layer, windowed in enumerate(layers.windowed) if not windowed]
    cap = keys.number("final_logit_softcapping", 30.0, low=-1, high=1e6)
    mixture_arguments, mixture_rules = _mixture(keys, tensors)
    embedding_arguments, embedding_rules = _layer_embeddings(keys, tensors)
    rules = [
        *decoder.frame_rules(tied),
        *_attention_rules(layers),
        *_norm_rules(_NORM_SETS),
        *blocks.feed_forward_rules(),
        parameter(
            "blk.{}.layer_output_scale.weight", f"{blocks.LAYER}.layer_scalar", required=False
        ),
        *mixture_rules,
        *embedding_rules,
    ]
    unused = "|".join(str(layer) for layer in range(layers.own_keys, num_layers)) or "-"
    return ModelPlan(
        architecture=keys.architecture,
        model="gemma4_text",
        arguments={
            "model_type": "gemma4_text",
            "hidden_size": width,
            "num_hidden_layers": num_layers,
            "rms_norm_eps": decoder.rms_eps(keys),
            "vocab_size": vocabulary_size,
            "max_position_embeddings": context_length,
            "head_dim": _read_head(keys, "_swa", head_dim),
            "global_head_dim": head_dim,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": base},
                "sliding_attention": {
                    "rope_type": "default",
                    "rope_theta": keys.number("rope.freq_base_swa", 10000.0, low=1, high=1e12),
                },
            },
            "sliding_window": keys.integer(windows.WINDOW, high=decoder.MAX_CONTEXT),
            "final_logit_softcapping": cap if cap > 0 else None,
            "tie_word_embeddings": tied,
            **layers.arguments,
            **mixture_arguments,
            **embedding_arguments,
        },
        placements=place(
            rules,
            tensors,
            num_layers,
            # Files hold them also for layers that use those of another, as the checkpoints do.
            ignored=rf"{re.escape(FREQUENCY_FACTORS)}"
            rf"|blk\.({unused})\.(attn_k|attn_v|attn_k_norm)\.weight",
        ),
        num_layers=num_layers,
        context_length=context_length,
        vocabulary_size=vocabulary_size,
        rotary=_only_in(factors, everywhere),
        constants=_unit_scales(tensors, num_layers, mixture_arguments.get("num_experts")),
        wide_range=True,
    )


def _read_head(keys: Keys, kind: str, default: int | None = None) -> int:
    """Return the width of the heads of a kind of layers, "" or "_swa"."""
    head_dim = keys.integer(f"attention.key_length{kind}", default, high=1 << 16)
    if head_dim % 2:
        raise keys.error(f"attention.key_length{kind}", head_dim, "even")
    for key in (f"attention.value_length{kind}", f"rope.dimension_count{kind}"):
        if (size := keys.integer(key, head_dim, low=0)) != head_dim:
            raise keys.unsupported(key, size, f"heads as wide as their keys, here {head_dim}")
    return head_dim


def _read_layers(keys: Keys, tensors: Mapping[str, TensorInfo], layers: int) -> _Layers:
    windowed = windows.windowed_layers(keys, layers, 0)
    shared = keys.integer("attention.shared_kv_layers", 0, low=0, high=layers - 1)
    own = layers - shared
    if set(windowed[own:]) - set(windowed[:own]):
        raise keys.error("attention.shared_kv_layers", shared, "fewer, so that each kind has keys")
    heads = keys.integer("attention.head_count", high=1 << 16)
    kv_heads = _by_kind(
        keys,
        "attention.head_count_kv",
        keys.layer_integers("attention.head_count_kv", layers, heads, low=1, high=1 << 16),
        windowed,
    )
    for count in kv_heads.values():
        if heads % count:
            raise keys.error("attention.head_count_kv", count, f"a divisor of the {heads} heads")
    everywhere = [layer for layer in range(own) if not windowed[layer]]
    without = [layer for layer in everywhere if f"blk.{layer}.attn_v.weight" not in tensors]
    equal = bool(everywhere) and without == everywhere
    if not equal and len(set(kv_heads.values())) > 1:
        raise keys.unsupported(
            "attention.head_count_kv", sorted(kv_heads.values()), "as many in layers of all kinds"
        )
    sizes = keys.layer_integers("feed_forward_length", layers, low=1)
    wide = shared > 0 and sizes[-1] == 2 * sizes[0]
    if sizes != [sizes[0]] * own + [sizes[-1] if wide else sizes[0]] * shared:
        raise keys.unsupported(
            "feed_forward_length", sizes, "one size, and twice that in layers without own keys"
        )
    arguments = {
        "layer_types": ["sliding_attention" if flag else "full_attention" for flag in windowed],
        "num_kv_shared_layers": shared,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads.get(True, kv_heads.get(False)),
        "num_global_key_value_heads": kv_heads.get(False),
        "attention_k_eq_v": equal,
        "intermediate_size": sizes[0],
        "use_double_wide_mlp": wide,
    }
    return _Layers(windowed, own, equal, arguments)


def _by_kind(keys: Keys, key: str, numbers: list[int], windowed: list[bool]) -> dict[bool, int]:
    """Return the number that all layers of a kind have, windowed (True) and others."""
    found = {}
    for kind in set(windowed):
        of_kind = {number for number, flag in zip(numbers, windowed, strict=True) if flag == kind}
        if len(of_kind) > 1:
            raise keys.unsupported(key, sorted(of_kind), "one number for layers of a kind")
        found[kind] = of_kind.pop()
    return found


def _only_in(factors: RotaryFactors, layers: list[int]) -> RotaryFactors | None:
    if not layers:
        return None
    numbers = "|".join(map(str, layers))
    return replace(factors, modules=rf"model\.layers\.({numbers})\.self_attn\.rope")


def _attention_rules(layers: _Layers) -> list[Rule]:
    own = layers.has_keys
    return [
        module("blk.{}.attn_q", f"{blocks.ATTENTION}.q_proj"),
        module("blk.{}.attn_k", f"{blocks.ATTENTION}.k_proj", layers=own),
        module("blk.{}.attn_v", f"{blocks.ATTENTION}.v_proj", layers=layers.has_values),
        module("blk.{}.attn_output", f"{blocks.ATTENTION}.o_proj"),
        module("blk.{}.attn_q_norm", f"{blocks.ATTENTION}.q_norm"),
        module("blk.{}.attn_k_norm", f"{blocks.ATTENTION}.k_norm", layers=own),
    ]


def _norm_rules(names: Mapping[str, str]) -> list[Rule]:
    return [
        module(f"blk.{{}}.{source}", f"{blocks.LAYER}.{target}") for source, target in names.items()
    ]


def _mixture(keys: Keys, tensors: Mapping[str, TensorInfo]) -> tuple[dict[str, Any], list[Rule]]:
    """Return arguments and rules of the experts, beside which a dense part always runs."""
    if "blk.0.ffn_gate_inp.weight" not in tensors:
        return {"enable_moe_block": False}, []
    mixture = experts.read_mixture(keys)
    router = f"{blocks.LAYER}.router"
    rules = [
        module("blk.{}.ffn_gate_inp", f"{router}.proj"),
        parameter("blk.{}.ffn_gate_inp.scale", f"{router}.scale"),
        parameter("blk.{}.ffn_down_exps.scale", f"{router}.per_expert_scale", required=False),
        *_norm_rules(_MIXTURE_NORMS),
        *experts.expert_rules(f"{blocks.LAYER}.experts.switch_glu", mixture, tensors),
    ]
    arguments = {
        "enable_moe_block": True,
        "num_experts": mixture.count,
        "top_k_experts": mixture.used,
        "moe_intermediate_size": mixture.feed_forward_size,
    }
    return arguments, rules


def _layer_embeddings(
    keys: Keys, tensors: Mapping[str, TensorInfo]
) -> tuple[dict[str, Any], list[Rule]]:
    """Return arguments and rules of the embeddings that every layer has of its own."""
    size = keys.integer("embedding_length_per_layer_input", 0, low=0)
    if size == 0:
        return {"hidden_size_per_layer_input": 0}, []
    name = "per_layer_token_embd.weight"
    if name not in tensors or len(tensors[name].shape) != 2:
        raise ModelFormatError(
            f"the file has no matrix {name!r}; it is incomplete: download it again"
        )
    rules = [
        module("per_layer_token_embd", "model.embed_tokens_per_layer"),
        module("per_layer_model_proj", "model.per_layer_model_projection"),
        module("per_layer_proj_norm", "model.per_layer_projection_norm"),
        module("blk.{}.inp_gate", f"{blocks.LAYER}.per_layer_input_gate"),
        module("blk.{}.proj", f"{blocks.LAYER}.per_layer_projection"),
        module("blk.{}.post_norm", f"{blocks.LAYER}.post_per_layer_input_norm"),
    ]
    arguments = {
        "hidden_size_per_layer_input": size,
        "vocab_size_per_layer_input": tensors[name].shape[0],
    }
    return arguments, rules


def _unit_scales(
    tensors: Mapping[str, TensorInfo], layers: int, count: int | None
) -> dict[str, NDArray[np.float32]]:
    """Return the scales that the file leaves out."""
    scales = {}
    for layer in range(layers):
        if f"blk.{layer}.layer_output_scale.weight" not in tensors:
            scales[f"{blocks.LAYER.format(layer)}.layer_scalar"] = np.ones(1, np.float32)
        if count and f"blk.{layer}.ffn_down_exps.scale" not in tensors:
            path = f"{blocks.LAYER.format(layer)}.router.per_expert_scale"
            scales[path] = np.ones(count, np.float32)
    return scales
