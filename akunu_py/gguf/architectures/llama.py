"""The llama family: Llama 2 and 3, Mistral 7B, Mixtral and what else is converted as `llama`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.architectures import blocks, decoder, experts
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, module
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import frequency_factors, rope_scaling

_LOG_MULTIPLIER = "rope.scaling.yarn_log_multiplier"
_EXPERT_PARTS = ("gate", "up", "down")


def read_llama(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a llama model for `mlx_lm.models.llama`, with experts of a variant.

    Converters reorder the rows of q and k so that neighbours rotate together, which that class can
    do too (`rope_traditional`).
    """
    sizes = decoder.read_dimensions(keys, tensors)
    decoder.require_whole_heads(keys, sizes.head_dim)
    scaling = scaling_with_multiplier(keys, sizes.context_length)
    biases, constants = attention_biases(tensors, sizes)
    arguments: dict[str, Any] = {
        "rms_norm_eps": decoder.rms_eps(keys),
        "attention_bias": biases,
        "rope_traditional": True,
        "rope_scaling": scaling,
    }
    rules = blocks.decoder_rules(tensors, sizes)
    model = "llama"
    if keys.integer("expert_count", 0, low=0, high=experts.MAX_EXPERTS):
        model = "variants.llama_experts"
        mixture = experts.read_mixture(keys, "feed_forward_length")
        arguments["num_local_experts"] = mixture.count
        arguments["num_experts_per_tok"] = mixture.used
        if "blk.0.ffn_gate.0.weight" in tensors:
            rules += _separate_experts(mixture)
        else:
            rules += blocks.mixture_rules(mixture, tensors)
    else:
        arguments["mlp_bias"] = decoder.has_biases(
            tensors, sizes.num_layers, decoder.FEED_FORWARD, "feed-forward"
        )
        rules += blocks.feed_forward_rules()
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model=model,
        rules=rules,
        arguments=arguments,
        rotary=frequency_factors(
            keys, tensors, dims=sizes.head_dim, scaling=scaling, traditional=True
        ),
        constants=constants,
    )


def scaling_with_multiplier(keys: Keys, context_length: int) -> dict[str, Any] | None:
    """Return mlx-lm's `rope_scaling`, with what Mistral's models divide YaRN's attention factor by.

    llama.cpp reads that multiplier in files named `mistral3` only; the models are the same.
    """
    scaling = rope_scaling(keys, context_length)
    multiplier = keys.number(_LOG_MULTIPLIER, 0.0, low=-1e-30, high=1e3)
    if multiplier and scaling is not None and scaling["type"] == "yarn":
        scaling["mscale_all_dim"] = multiplier
    return scaling


def attention_biases(
    tensors: Mapping[str, TensorInfo], sizes: decoder.Dimensions
) -> tuple[bool, dict[str, NDArray[np.float32]]]:
    """Return whether attention has biases, and zeros for those that the file leaves out.

    Llama's class has them at all four projections or at none; models made of Qwen's weights have
    them at q, k and v.
    """
    inputs = blocks.has_attention_biases(tensors, sizes)
    output = decoder.has_biases(tensors, sizes.num_layers, ("attn_output",), "attention")
    if inputs == output:
        return inputs, {}
    return True, blocks.zero_biases(
        sizes, ("o_proj",) if inputs else ("q_proj", "k_proj", "v_proj")
    )


def _separate_experts(mixture: experts.Mixture) -> list[Rule]:
    """Return the rules for files of before 2024-04, which have a tensor for each expert."""
    target = blocks.FEED_FORWARD
    rules = [module("blk.{}.ffn_gate_inp", f"{target}.gate")]
    for part in _EXPERT_PARTS:
        sources = [f"blk.{{}}.ffn_{part}.{expert}" for expert in range(mixture.count)]
        # All rows of all of them, laid flat: with rows given, they take the stack's shape.
        rules.append(module(sources, f"{target}.switch_mlp.{part}_proj", rows=slice(None)))
    return rules


READERS = {"llama": read_llama}
