"""SmolLM 3: llama without rotation in every fourth layer."""

from collections.abc import Mapping

from akunu_py.gguf.architectures import blocks, decoder
from akunu_py.gguf.architectures.llama import attention_biases
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rope_scaling

_UNROTATED_PERIOD = 4
"""No key says so; it is what llama.cpp and the released models have."""


def read_smollm3(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan for `mlx_lm.models.smollm3`, whose rows rotate as llama's do."""
    sizes = decoder.read_dimensions(keys, tensors)
    decoder.require_whole_heads(keys, sizes.head_dim)
    biases, constants = attention_biases(tensors, sizes)
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="smollm3",
        rules=[*blocks.decoder_rules(tensors, sizes), *blocks.feed_forward_rules()],
        arguments={
            "rms_norm_eps": decoder.rms_eps(keys),
            "attention_bias": biases,
            "rope_traditional": True,
            "rope_scaling": rope_scaling(keys, sizes.context_length),
            "no_rope_layer_interval": _UNROTATED_PERIOD,
        },
        constants=constants,
    )


READERS = {"smollm3": read_smollm3}
