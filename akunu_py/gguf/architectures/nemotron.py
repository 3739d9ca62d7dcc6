"""Nemotron 4 and Minitron, dense; the hybrids are in `nemotron_h`."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.architectures import blocks, decoder
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, module, parameter
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rotary_layers

_UNGATED = ("ffn_up", "ffn_down")


def read_nemotron(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a dense Nemotron for `mlx_lm.models.nemotron`.

    Half of a head rotates, and the feed-forward part has no gate.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    rotated = decoder.read_rotated(keys, sizes.head_dim)
    blocks.require_plain_heads(keys, sizes, rotated=rotated)
    rules = [
        module(decoder.EMBEDDING, "model.embed_tokens"),
        *([] if sizes.tied else [module(decoder.OUTPUT, "lm_head")]),
        *_norm("output_norm", "model.norm"),
        *_norm("blk.{}.attn_norm", f"{blocks.LAYER}.input_layernorm"),
        *blocks.attention_rules(tensors, sizes),
        *_norm("blk.{}.ffn_norm", f"{blocks.LAYER}.post_attention_layernorm"),
        module("blk.{}.ffn_up", f"{blocks.FEED_FORWARD}.up_proj"),
        module("blk.{}.ffn_down", f"{blocks.FEED_FORWARD}.down_proj"),
    ]
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="nemotron",
        rules=rules,
        arguments={
            "norm_eps": decoder.layer_norm_eps(keys),
            "hidden_act": "relu2",
            # Half a dimension more, against what division loses.
            "partial_rotary_factor": (rotated + 0.5) / sizes.head_dim,
            "attention_bias": decoder.has_biases(
                tensors, sizes.num_layers, decoder.ATTENTION, "attention"
            ),
            "mlp_bias": decoder.has_biases(tensors, sizes.num_layers, _UNGATED, "feed-forward"),
        },
        rotary=rotary_layers(keys, tensors, dims=rotated, context_length=sizes.context_length),
    )


def _minus_one(weight: NDArray[np.float32]) -> NDArray[np.float32]:
    return weight - np.float32(1)


def _norm(source: str, target: str) -> list[Rule]:
    """Map a norm: converters add to its weight the 1 that mlx-lm's class adds as it runs."""
    return [
        parameter(f"{source}.weight", f"{target}.weight", convert=_minus_one),
        parameter(f"{source}.bias", f"{target}.bias"),
    ]


READERS = {"nemotron": read_nemotron}
