"""Llama 2 and 3, with Mistral 7B, Mixtral and others converted as `llama`; the text of Llama 4."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.names import FEED_FORWARD, Rule, module, modules
from akunu_py.gguf.parts import attention, experts, layers, rope
from akunu_py.gguf.parts.decoder import Decoder
from akunu_py.gguf.plan import ModelPlan

_CHUNK = 8192
_MAVERICK_EXPERTS = 128


def llama(model: Decoder) -> ModelPlan:
    """Llama 2 and 3 for `mlx_lm.models.llama`, with experts for `variants.llama_experts`.

    Converters reorder the rows of q and k so that neighbours rotate together, which the class
    supports (`rope_traditional`).
    """
    attention.require_whole_heads(model)
    biases, constants = attention_biases(model)
    arguments: dict[str, Any] = {
        "attention_bias": biases,
        "rope_traditional": True,
        "rope_scaling": rope.scaling_with_multiplier(model),
    }
    rules = layers.llama(model, feed_forward={})
    name = "llama"
    if experts.has_experts(model):
        name = "variants.llama_experts"
        mixture = experts.read(model, "feed_forward_length")
        arguments |= mixture.arguments
        rules += modules(FEED_FORWARD, {"ffn_gate_inp": "gate"})
        if "blk.0.ffn_gate.0.weight" in model.tensors:
            rules += _separate_experts(mixture)
        else:
            rules += experts.rules(model, mixture)
    else:
        arguments["mlp_bias"] = model.has_biases(layers.GATED, "feed-forward")
        rules += modules(FEED_FORWARD, layers.GATED)
    return model.plan(
        name, rules, arguments, rotary=rope.factors(model, traditional=True), constants=constants
    )


internlm2 = llama  # Converters split its fused tensors and reorder q and k.


def attention_biases(model: Decoder) -> tuple[bool, dict[str, NDArray[np.float32]]]:
    """Return whether attention has biases, and zeros for biases that the file lacks.

    Llama's class has them in all four projections or in none; models converted from Qwen have them
    in q, k and v.
    """
    inputs = attention.has_biases(model)
    output = model.has_biases(("attn_output",), "attention")
    if inputs == output:
        return inputs, {}
    missing = ("o_proj",) if inputs else ("q_proj", "k_proj", "v_proj")
    return True, attention.zero_biases(model, missing)


def _separate_experts(mixture: experts.Mixture) -> list[Rule]:
    """Return the rules for files from before 2024-04, which have a tensor for each expert."""
    rules = []
    for part in ("gate", "up", "down"):
        sources = [f"blk.{{}}.ffn_{part}.{expert}" for expert in range(mixture.count)]
        # All rows of all experts: with `rows` given, they take the shape of the stack.
        rules.append(module(sources, f"{FEED_FORWARD}.switch_mlp.{part}_proj", rows=slice(None)))
    return rules


def llama4(model: Decoder) -> ModelPlan:
    """Llama 4, its text part, for `mlx_lm.models.llama4`.

    Rows rotate as neighbours in both programs. Every fourth layer attends to everything, without
    positions; the others attend in chunks. There are no keys for this, for the size of a chunk, or
    for Maverick's missing norms of q and k; llama.cpp has them fixed, and identifies Maverick by
    its 128 experts.
    """
    keys = model.keys
    attention.require_whole_heads(model)
    if keys.integer("attention.sliding_window", _CHUNK, low=0) == 0:
        raise keys.unsupported("attention.sliding_window", 0, "layers that attend in chunks")
    if model.num_layers % 4:
        raise keys.unsupported("block_count", model.num_layers, "a multiple of four layers")
    if keys.integer("attention.sliding_window_pattern", 4) != 4:
        raise keys.error("attention.sliding_window_pattern", "not 4", "4")
    step = keys.integer("interleave_moe_layer_step", high=model.num_layers)
    mixture = experts.read(model, layers=range(step - 1, model.num_layers, step))
    if mixture.used != 1:
        raise keys.unsupported("expert_used_count", mixture.used, "one expert a token")
    body = "language_model.model"
    layer = f"{body}.layers.{{}}"
    router = {"ffn_gate_inp": "feed_forward.router"}
    text = {
        "model_type": "llama4_text",
        "intermediate_size": mixture.feed_forward_size,
        "intermediate_size_mlp": model.feed_forward_size,
        **mixture.arguments,
        "interleave_moe_layer_step": step,
        "attention_chunk_size": _CHUNK,
        "floor_scale": _CHUNK,
        "attn_scale": 0.1,
        "attention_bias": attention.has_biases(model),
        "use_qk_norm": mixture.count != _MAVERICK_EXPERTS,
        "rope_scaling": rope.scaling(model),
    }
    return model.plan(
        "llama4",
        [
            *layers.frame(
                model, f"{body}.embed_tokens", f"{body}.norm", "language_model.lm_head", copied=True
            ),
            *modules(layer, layers.NORMS),
            *attention.rules(model, f"{layer}.self_attn"),
            *modules(layer, router, layers=mixture.routed),
            *experts.rules(
                model, mixture, f"{layer}.feed_forward", routed="experts", shared="shared_expert"
            ),
        ],
        {"text_config": model.arguments(text)},
        shared_arguments=False,
        rotary=rope.factors(model, traditional=True),
    )
