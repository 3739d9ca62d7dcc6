"""Apertus."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from akunu_py.errors import ModelFormatError
from akunu_py.gguf.architectures import blocks, decoder
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import module
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import frequency_factors, rope_scaling

_ACTIVATION = ("alpha_n", "alpha_p", "beta", "eps")


def read_apertus(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan for `mlx_lm.models.apertus`.

    Its activation has four numbers a layer (xIELU, arXiv:2411.13010), which are metadata.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    blocks.require_plain_heads(keys, sizes)
    scaling = rope_scaling(keys, sizes.context_length)
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="apertus",
        rules=[
            *decoder.frame_rules(sizes.tied),
            module("blk.{}.attn_norm", f"{blocks.LAYER}.attention_layernorm"),
            *blocks.attention_rules(tensors, sizes),
            module("blk.{}.attn_q_norm", f"{blocks.ATTENTION}.q_norm"),
            module("blk.{}.attn_k_norm", f"{blocks.ATTENTION}.k_norm"),
            module("blk.{}.ffn_norm", f"{blocks.LAYER}.feedforward_layernorm"),
            module("blk.{}.ffn_up", f"{blocks.FEED_FORWARD}.up_proj"),
            module("blk.{}.ffn_down", f"{blocks.FEED_FORWARD}.down_proj"),
        ],
        arguments={
            "rms_norm_eps": decoder.rms_eps(keys),
            "mlp_bias": False,
            "attention_bias": False,
            "post_norm": False,
            "qk_norm": True,
            "rope_scaling": scaling,
        },
        rotary=frequency_factors(keys, tensors, dims=sizes.head_dim, scaling=scaling),
        constants=_activations(keys, sizes.num_layers),
    )


def _activations(keys: Keys, layers: int) -> dict[str, NDArray[np.float32]]:
    constants: dict[str, NDArray[np.float32]] = {}
    for part in _ACTIVATION:
        # Without the architecture's name before it.
        key = f"xielu.{part}"
        value = keys.metadata.get(key)
        numbers = np.asarray(value) if isinstance(value, np.ndarray | float) else np.empty(0)
        if numbers.ndim == 0:
            numbers = np.full(layers, numbers)
        if numbers.dtype.kind != "f" or numbers.size < layers or not np.isfinite(numbers).all():
            raise ModelFormatError(
                f"{key} should hold a number for each of the {layers} layers; the file is damaged: "
                "download or convert the model again"
            )
        for layer in range(layers):
            path = f"{blocks.FEED_FORWARD.format(layer)}.act_fn.{part}"
            constants[path] = np.array(numbers[layer], np.float32)
    return constants


READERS = {"apertus": read_apertus}
