"""MiniCPM 1, 2 and 4: llama with the scales that Granite has too."""

from collections.abc import Mapping

from akunu_py.gguf.architectures import blocks, decoder
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import LONG_ROPE_TENSORS, frequency_factors, long_rope, rope_scaling

_BASE_WIDTH = 256
_EMBEDDING_SCALE = 12.0
_DEPTH_SCALE = 1.4
"""Of the first models, whose files have no keys for scales."""


def read_minicpm(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan for `mlx_lm.models.granite`.

    mlx-lm's own `minicpm` leaves the logits of tied embeddings unscaled. The rows of q and k are
    ordered for neighbours; the class rotates halves.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    blocks.require_plain_heads(keys, sizes)
    long = long_rope(keys, tensors, dims=sizes.head_dim, context_length=sizes.context_length)
    scaling = None if long else rope_scaling(keys, sizes.context_length)
    residual = _DEPTH_SCALE / sizes.num_layers**0.5
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="granite",
        rules=[
            *blocks.decoder_rules(tensors, sizes, reorder=True),
            *blocks.feed_forward_rules(),
        ],
        arguments={
            "rms_norm_eps": decoder.rms_eps(keys),
            "attention_bias": False,
            "mlp_bias": False,
            "attention_multiplier": sizes.head_dim**-0.5,
            "embedding_multiplier": keys.number(
                "embedding_scale", _EMBEDDING_SCALE, low=0, high=1e6
            ),
            "residual_multiplier": keys.number("residual_scale", residual, low=0, high=1e6),
            # Divided by. llama.cpp's own default is the inverse, which the first models' program
            # and llama.cpp's earlier versions contradict; tokens come in the same order.
            "logits_scaling": keys.number(
                "logit_scale", sizes.hidden_size / _BASE_WIDTH, low=0, high=1e6
            ),
            "rope_scaling": scaling,
        },
        rotary=long or frequency_factors(keys, tensors, dims=sizes.head_dim, scaling=scaling),
        ignored=LONG_ROPE_TENSORS,
    )


READERS = {"minicpm": read_minicpm}
