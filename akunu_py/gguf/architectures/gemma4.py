"""Gemma 4, text: dense models, mixtures, and models with embeddings for every layer."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from akunu_py.gguf.names import ATTENTION, FEED_FORWARD, LAYER, Rule, module, modules, parameter
from akunu_py.gguf.parts import experts, layers, rope, windows
from akunu_py.gguf.parts.decoder import FREQUENCY_FACTORS, MAX_HEAD_DIM, MAX_HEADS, Decoder
from akunu_py.gguf.plan import ModelPlan
from akunu_py.system.errors import ModelFormatError

_MIXTURE_NORMS = {
    "post_ffw_norm_1": "post_feedforward_layernorm_1",
    "post_ffw_norm_2": "post_feedforward_layernorm_2",
    "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
}


def gemma4(model: Decoder) -> ModelPlan:
    """Gemma 4 for `mlx_lm.models.gemma4_text`.

    Unlike in Gemma 1 to 3 nothing is added to the norms. In layers that see everything only part of
    a head rotates: elsewhere the file's frequency factors are so large that nothing moves.
    """
    of_layers = _read_layers(model)
    head_dim = _read_head(model, "")
    factors = rope.factors(model, dims=head_dim)
    if factors is None:
        raise ModelFormatError(
            f"the file has no tensor {FREQUENCY_FACTORS!r}, which states how much of a head "
            "rotates; convert the model again"
        )
    cap = model.keys.number("final_logit_softcapping", 30.0, low=-1, high=1e6)
    mixture_arguments, mixture_rules = _mixture(model)
    embedding_arguments, embedding_rules = _layer_embeddings(model)
    one = np.ones(1, np.float32)
    scale = parameter("blk.{}.layer_output_scale.weight", f"{LAYER}.layer_scalar", default=one)
    unused = "|".join(map(str, range(of_layers.own_keys, model.num_layers))) or "-"
    return model.plan(
        "gemma4_text",
        [
            *layers.frame(model),
            *_attention_rules(of_layers),
            *modules(LAYER, layers.FOUR_NORMS),
            *modules(FEED_FORWARD, layers.GATED),
            scale,
            *mixture_rules,
            *embedding_rules,
        ],
        {
            **of_layers.arguments,
            **mixture_arguments,
            **embedding_arguments,
            "head_dim": _read_head(model, "_swa", head_dim),
            "global_head_dim": head_dim,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": model.rope_base},
                "sliding_attention": {
                    "rope_type": "default",
                    "rope_theta": rope.window_base(model),
                },
            },
            "sliding_window": windows.size(model),
            "final_logit_softcapping": cap if cap > 0 else None,
        },
        rotary=rope.where_all_is_seen(factors, of_layers.windowed),
        # Like the checkpoints, files also have them for layers that use another layer's.
        ignored=rf"{FREQUENCY_FACTORS}|blk\.({unused})\.(attn_k|attn_v|attn_k_norm)\.weight",
        wide_range=True,
    )


def _read_head(model: Decoder, kind: str, default: int | None = None) -> int:
    """Return the width of the heads in layers of a kind, "" or "_swa"."""
    keys = model.keys
    head_dim = keys.integer(f"attention.key_length{kind}", default, high=MAX_HEAD_DIM)
    if head_dim % 2:
        raise keys.error(f"attention.key_length{kind}", head_dim, "even")
    for key in (f"attention.value_length{kind}", f"rope.dimension_count{kind}"):
        if (size := keys.integer(key, head_dim, low=0)) != head_dim:
            raise keys.unsupported(key, size, f"heads as wide as their keys, here {head_dim}")
    return head_dim


@dataclass(frozen=True, slots=True)
class _Layers:
    """The differences between layers."""

    windowed: list[bool]
    # Number of layers with their own keys and values; later layers use those of the last such
    # layer of the same kind.
    own_keys: int
    equal: bool  # Whether layers that see everything use their keys also as values.
    arguments: dict[str, Any]

    def has_keys(self, layer: int) -> bool:
        return layer < self.own_keys

    def has_values(self, layer: int) -> bool:
        return layer < self.own_keys and not (self.equal and not self.windowed[layer])


def _read_layers(model: Decoder) -> _Layers:
    keys, count = model.keys, model.num_layers
    kv_key, size_key = "attention.head_count_kv", "feed_forward_length"
    windowed = windows.windowed_layers(model, 0)
    shared = keys.integer("attention.shared_kv_layers", 0, low=0, high=count - 1)
    own = count - shared
    if set(windowed[own:]) - set(windowed[:own]):
        raise keys.error("attention.shared_kv_layers", shared, "fewer, so that each kind has keys")
    heads = keys.integer("attention.head_count", high=MAX_HEADS)
    every = keys.layer_integers(kv_key, count, heads, low=1, high=MAX_HEADS)
    kv_heads = windows.by_kind(model, kv_key, every, windowed)
    for number in kv_heads.values():
        if heads % number:
            raise keys.error(kv_key, number, f"a divisor of the {heads} heads")
    everywhere = [layer for layer in range(own) if not windowed[layer]]
    without = [layer for layer in everywhere if f"blk.{layer}.attn_v.weight" not in model.tensors]
    equal = bool(everywhere) and without == everywhere
    if not equal and len(set(kv_heads.values())) > 1:
        found = sorted(kv_heads.values())
        raise keys.unsupported(kv_key, found, "as many in layers of all kinds")
    sizes = keys.layer_integers(size_key, count, low=1)
    wide = shared > 0 and sizes[-1] == 2 * sizes[0]
    if sizes != [sizes[0]] * own + [sizes[-1] if wide else sizes[0]] * shared:
        wanted = "one size, and twice that in layers without own keys"
        raise keys.unsupported(size_key, sizes, wanted)
    arguments = {
        "layer_types": windows.layer_types(windowed),
        "num_kv_shared_layers": shared,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads.get(True, kv_heads.get(False)),
        "num_global_key_value_heads": kv_heads.get(False),
        "attention_k_eq_v": equal,
        "intermediate_size": sizes[0],
        "use_double_wide_mlp": wide,
    }
    return _Layers(windowed, own, equal, arguments)


def _attention_rules(of_layers: _Layers) -> list[Rule]:
    own = of_layers.has_keys
    return [
        *modules(ATTENTION, {"attn_q": "q_proj", "attn_q_norm": "q_norm", "attn_output": "o_proj"}),
        *modules(ATTENTION, {"attn_k": "k_proj", "attn_k_norm": "k_norm"}, layers=own),
        *modules(ATTENTION, {"attn_v": "v_proj"}, layers=of_layers.has_values),
    ]


def _mixture(model: Decoder) -> tuple[dict[str, Any], list[Rule]]:
    """Return arguments and rules of the experts, which run in parallel with a dense part."""
    if "blk.0.ffn_gate_inp.weight" not in model.tensors:
        return {"enable_moe_block": False}, []
    mixture = experts.read(model)
    ones = np.ones(mixture.count, np.float32)
    rules = [
        *modules(LAYER, {"ffn_gate_inp": "router.proj", **_MIXTURE_NORMS}),
        parameter("blk.{}.ffn_gate_inp.scale", f"{LAYER}.router.scale"),
        parameter("blk.{}.ffn_down_exps.scale", f"{LAYER}.router.per_expert_scale", default=ones),
        *experts.stacks(model, mixture, f"{LAYER}.experts.switch_glu"),
    ]
    arguments = {
        "enable_moe_block": True,
        "num_experts": mixture.count,
        "top_k_experts": mixture.used,
        "moe_intermediate_size": mixture.feed_forward_size,
    }
    return arguments, rules


def _layer_embeddings(model: Decoder) -> tuple[dict[str, Any], list[Rule]]:
    """Return arguments and rules of the separate embeddings of every layer."""
    size = model.keys.integer("embedding_length_per_layer_input", 0, low=0)
    if size == 0:
        return {"hidden_size_per_layer_input": 0}, []
    names = {
        "inp_gate": "per_layer_input_gate",
        "proj": "per_layer_projection",
        "post_norm": "post_per_layer_input_norm",
    }
    rules = [
        module("per_layer_token_embd", "model.embed_tokens_per_layer"),
        module("per_layer_model_proj", "model.per_layer_model_projection"),
        module("per_layer_proj_norm", "model.per_layer_projection_norm"),
        *modules(LAYER, names),
    ]
    arguments = {
        "hidden_size_per_layer_input": size,
        "vocab_size_per_layer_input": model.rows_of("per_layer_token_embd.weight"),
    }
    return arguments, rules
