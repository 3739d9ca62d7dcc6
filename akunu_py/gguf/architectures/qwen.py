"""Qwen 1.5, 2, 2.5 and 3, dense and mixtures; the language models of those that see images.

The latter rotate parts of a head by the three coordinates of a patch, which are one position in a
text, and add features of images behind the first layers. For text they are the plain models.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.architectures import blocks, decoder
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, module, parameter
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rope_scaling, rotary_layers


def read_qwen2(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of Qwen 1.5, 2 or 2.5 for `mlx_lm.models.qwen2`."""
    sizes = decoder.read_dimensions(keys, tensors)
    blocks.require_plain_heads(keys, sizes)
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="qwen2",
        rules=[*blocks.decoder_rules(tensors, sizes), *blocks.feed_forward_rules()],
        arguments={
            "rms_norm_eps": decoder.rms_eps(keys),
            "rope_scaling": rope_scaling(keys, sizes.context_length),
        },
        constants=_absent_biases(tensors, sizes),
    )


def read_qwen3(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a dense Qwen 3 for `mlx_lm.models.qwen3`."""
    sizes = decoder.read_dimensions(keys, tensors)
    decoder.require_whole_heads(keys, sizes.head_dim)
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="qwen3",
        rules=[
            *blocks.decoder_rules(tensors, sizes),
            *_head_norms(),
            *blocks.feed_forward_rules(),
        ],
        arguments={
            "rms_norm_eps": decoder.rms_eps(keys),
            "rope_scaling": rope_scaling(keys, sizes.context_length),
        },
    )


def read_qwen3_moe(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a Qwen 3 mixture for `mlx_lm.models.qwen3_moe`.

    That class leaves scaling of positions unread. The weights of the chosen experts sum to one
    without a key that says so.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    decoder.require_whole_heads(keys, sizes.head_dim)
    mixture = blocks.read_whole_mixture(keys, sizes)
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="qwen3_moe",
        rules=[
            *blocks.decoder_rules(tensors, sizes),
            *_head_norms(),
            *blocks.mixture_rules(mixture, tensors),
        ],
        arguments={
            "rms_norm_eps": decoder.rms_eps(keys),
            "num_experts": mixture.count,
            "num_experts_per_tok": mixture.used,
            "moe_intermediate_size": mixture.feed_forward_size,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        },
        rotary=rotary_layers(
            keys, tensors, dims=sizes.head_dim, context_length=sizes.context_length
        ),
    )


def read_qwen2_moe(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a Qwen 1.5 or 2 mixture for `mlx_lm.models.qwen2_moe`.

    That class leaves scaling of positions unread. The weights of the chosen experts keep their sum,
    and a gate of its own weighs the shared expert.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    blocks.require_plain_heads(keys, sizes)
    mixture = blocks.read_whole_mixture(keys, sizes)
    rules = [
        *blocks.decoder_rules(tensors, sizes),
        *blocks.mixture_rules(mixture, tensors),
        *blocks.feed_forward_rules(
            f"{blocks.FEED_FORWARD}.shared_expert", sources=blocks.SHARED_EXPERT
        ),
        # A vector in the file, a matrix of one row in the class.
        parameter(
            "blk.{}.ffn_gate_inp_shexp.weight",
            f"{blocks.FEED_FORWARD}.shared_expert_gate.weight",
            convert=lambda weight: weight.reshape(1, -1),
        ),
    ]
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="qwen2_moe",
        rules=rules,
        arguments={
            "rms_norm_eps": decoder.rms_eps(keys),
            "num_experts": mixture.count,
            "num_experts_per_tok": mixture.used,
            "moe_intermediate_size": mixture.feed_forward_size,
            "shared_expert_intermediate_size": keys.integer(
                "expert_shared_feed_forward_length", sizes.feed_forward_size
            ),
        },
        rotary=rotary_layers(
            keys, tensors, dims=sizes.head_dim, context_length=sizes.context_length
        ),
        constants=_absent_biases(tensors, sizes),
    )


def _absent_biases(
    tensors: Mapping[str, TensorInfo], sizes: decoder.Dimensions
) -> dict[str, NDArray[np.float32]]:
    return {} if blocks.has_attention_biases(tensors, sizes) else blocks.zero_biases(sizes)


def _head_norms() -> list[Rule]:
    return [
        module("blk.{}.attn_q_norm", f"{blocks.ATTENTION}.q_norm"),
        module("blk.{}.attn_k_norm", f"{blocks.ATTENTION}.k_norm"),
    ]


READERS = {
    "qwen2": read_qwen2,
    "qwen2moe": read_qwen2_moe,
    "qwen2vl": read_qwen2,
    "qwen3": read_qwen3,
    "qwen3moe": read_qwen3_moe,
    "qwen3vl": read_qwen3,
    "qwen3vlmoe": read_qwen3_moe,
}
