"""ERNIE 4.5, dense and mixtures. Neighbours rotate together, in file and class alike."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from akunu_py.gguf.architectures import blocks, decoder, experts
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, parameter
from akunu_py.gguf.plan import ModelPlan, RotaryFactors, RotaryScaling
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rotary_layers

_STEP = "interleave_moe_layer_step"
_SHARED_SIZE = "expert_shared_feed_forward_length"
_ROUTER_BIAS = "exp_probs_b.bias"


def read_ernie(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a dense ERNIE 4.5 for `mlx_lm.models.ernie4_5`."""
    sizes = decoder.read_dimensions(keys, tensors)
    decoder.require_whole_heads(keys, sizes.head_dim)
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="ernie4_5",
        rules=[*blocks.decoder_rules(tensors, sizes), *blocks.feed_forward_rules()],
        arguments={"rms_norm_eps": decoder.rms_eps(keys), "use_bias": False},
        rotary=_rotary(keys, tensors, sizes),
    )


def read_ernie_moe(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of an ERNIE 4.5 mixture for `variants.ernie4_5_moe`."""
    sizes = decoder.read_dimensions(keys, tensors)
    decoder.require_whole_heads(keys, sizes.head_dim)
    layers = sizes.num_layers
    mixture = experts.read_mixture(keys)
    dense = keys.integer("leading_dense_block_count", 0, low=0, high=layers - 1)
    if (step := keys.integer(_STEP, 1)) != 1:
        raise keys.unsupported(_STEP, step, "a mixture in every layer after the dense ones")
    # The width says how many there are.
    keys.ignore("expert_shared_count")
    shared = keys.integer(_SHARED_SIZE, 0, low=0)
    target = blocks.FEED_FORWARD

    def is_mixture(layer: int) -> bool:
        return layer >= dense

    rules: list[Rule] = [
        *blocks.decoder_rules(tensors, sizes),
        *blocks.feed_forward_rules(last=dense),
        *experts.expert_rules(f"{target}.switch_mlp", mixture, tensors, layers=is_mixture),
        # The router decides in float32, as in the released models' own program.
        parameter(
            "blk.{}.ffn_gate_inp.weight",
            f"{target}.gate.weight",
            layers=is_mixture,
            float32=True,
        ),
        parameter(
            f"blk.{{}}.{_ROUTER_BIAS}",
            f"{target}.e_score_correction_bias",
            layers=lambda layer: f"blk.{layer}.{_ROUTER_BIAS}" in tensors,
            # The released models have it as a matrix of one row, and so have their files.
            convert=lambda bias: bias.reshape(-1),
            float32=True,
        ),
    ]
    if shared:
        rules += blocks.feed_forward_rules(
            f"{target}.shared_experts", sources=blocks.SHARED_EXPERT, first=dense
        )
    arguments: dict[str, Any] = {
        "rms_norm_eps": decoder.rms_eps(keys),
        "use_bias": False,
        "moe_num_experts": mixture.count,
        "moe_k": mixture.used,
        "moe_intermediate_size": mixture.feed_forward_size,
        "moe_layer_start_index": dense,
        "shared_intermediate_size": shared,
    }
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="variants.ernie4_5_moe",
        rules=rules,
        arguments=arguments,
        rotary=_rotary(keys, tensors, sizes),
        constants={
            f"{target.format(layer)}.e_score_correction_bias": np.zeros(mixture.count, np.float32)
            for layer in range(dense, layers)
            if f"blk.{layer}.{_ROUTER_BIAS}" not in tensors
        },
    )


def _rotary(
    keys: Keys, tensors: Mapping[str, TensorInfo], sizes: decoder.Dimensions
) -> RotaryFactors | RotaryScaling | None:
    return rotary_layers(
        keys,
        tensors,
        dims=sizes.head_dim,
        context_length=sizes.context_length,
        traditional=True,
    )


READERS = {"ernie4_5": read_ernie, "ernie4_5-moe": read_ernie_moe}
