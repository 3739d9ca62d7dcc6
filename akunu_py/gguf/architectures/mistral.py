"""Mistral 3: Ministral 3 and other models whose queries grow with their position."""

from collections.abc import Mapping

from akunu_py.gguf.architectures import blocks, decoder
from akunu_py.gguf.architectures.llama import read_llama, scaling_with_multiplier
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rope_base

_TEMPERATURE = "attention.temperature_scale"


def read_mistral3(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan for `mlx_lm.models.ministral3`; without a temperature, that of a llama.

    A query at position p is multiplied by 1 + temperature ln(1 + floor(p / original context)). The
    class rotates halves of a head, the file's rows are ordered for neighbours.
    """
    temperature = keys.number(_TEMPERATURE, 0.0, low=-1e3, high=1e3)
    if not temperature:
        return read_llama(keys, tensors)
    sizes = decoder.read_dimensions(keys, tensors)
    decoder.require_whole_heads(keys, sizes.head_dim)
    scaling = scaling_with_multiplier(keys, sizes.context_length) or {"type": "default"}
    parameters = {
        **scaling,
        "rope_theta": rope_base(keys),
        "llama_4_scaling_beta": temperature,
        "original_max_position_embeddings": keys.integer(
            "rope.scaling.original_context_length", sizes.context_length, high=decoder.MAX_CONTEXT
        ),
    }
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="ministral3",
        rules=[
            *blocks.decoder_rules(tensors, sizes, reorder=True),
            *blocks.feed_forward_rules(),
        ],
        arguments={"rms_norm_eps": decoder.rms_eps(keys), "rope_parameters": parameters},
    )


READERS = {"mistral3": read_mistral3}
