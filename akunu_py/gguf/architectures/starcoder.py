"""StarCoder 2."""

from collections.abc import Mapping

from akunu_py.gguf.architectures import blocks, decoder
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import module
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rotary_layers


def read_starcoder2(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan for `variants.starcoder2`; norms and projections have biases.

    The released models were trained with a window of 4096 tokens, which files do not state and
    llama.cpp does not apply; nor does this.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    blocks.require_plain_heads(keys, sizes)
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="variants.starcoder2",
        rules=[
            *blocks.decoder_rules(tensors, sizes),
            module("blk.{}.ffn_up", f"{blocks.FEED_FORWARD}.c_fc"),
            module("blk.{}.ffn_down", f"{blocks.FEED_FORWARD}.c_proj"),
        ],
        arguments={"norm_epsilon": decoder.layer_norm_eps(keys)},
        rotary=rotary_layers(
            keys, tensors, dims=sizes.head_dim, context_length=sizes.context_length
        ),
    )


READERS = {"starcoder2": read_starcoder2}
