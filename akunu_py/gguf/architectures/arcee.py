"""Arcee's foundation models."""

from collections.abc import Mapping

from akunu_py.gguf.architectures import blocks, decoder
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import module
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import frequency_factors, rope_scaling


def read_arcee(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan for `variants.arcee`, whose rows rotate as llama's do."""
    sizes = decoder.read_dimensions(keys, tensors)
    decoder.require_whole_heads(keys, sizes.head_dim)
    scaling = rope_scaling(keys, sizes.context_length)
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="variants.arcee",
        rules=[
            *blocks.decoder_rules(tensors, sizes),
            module("blk.{}.ffn_up", f"{blocks.FEED_FORWARD}.up_proj"),
            module("blk.{}.ffn_down", f"{blocks.FEED_FORWARD}.down_proj"),
        ],
        arguments={
            "rms_norm_eps": decoder.rms_eps(keys),
            "rope_traditional": True,
            "rope_scaling": scaling,
        },
        rotary=frequency_factors(
            keys, tensors, dims=sizes.head_dim, scaling=scaling, traditional=True
        ),
    )


READERS = {"arcee": read_arcee}
