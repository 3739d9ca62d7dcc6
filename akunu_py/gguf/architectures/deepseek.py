"""DeepSeek 2, 3 and R1, and what is converted as `deepseek2`: Kimi K2, GLM 4.7 Flash, Youtu."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akunu_py.errors import UnsupportedArchitectureError
from akunu_py.gguf.architectures import blocks, decoder, experts
from akunu_py.gguf.architectures.experts import Gating
from akunu_py.gguf.keys import MAX_SIZE, Keys
from akunu_py.gguf.names import Rule, module, parameter, place
from akunu_py.gguf.plan import Conversion, ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rope_base, rope_scaling

_GLM_LITE_VOCABULARY = 154880
_GLM_LITE_LAYERS = (47, 48)
_SCORING = {Gating.SOFTMAX: "softmax", Gating.SIGMOID: "sigmoid"}


@dataclass(frozen=True, slots=True)
class Heads:
    """Sizes of latent attention, in which keys and values of all heads come from one vector.

    Attributes:
        count: query heads.
        plain: dimensions of a key that do not rotate; they come from the latent vector.
        rotated: dimensions that do, the same for all heads.
        value: dimensions of a value.
        latent: dimensions of the latent vector.
        query_latent: of the one that queries come from; None where they come from the input.
        split: whether the file has the matrices from the latent vector apart, as new ones have.

    """

    count: int
    plain: int
    rotated: int
    value: int
    latent: int
    query_latent: int | None
    split: bool

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of mlx-lm's classes."""
        return {
            "num_attention_heads": self.count,
            "num_key_value_heads": self.count,
            "qk_nope_head_dim": self.plain,
            "qk_rope_head_dim": self.rotated,
            "v_head_dim": self.value,
            "kv_lora_rank": self.latent,
            "q_lora_rank": self.query_latent,
        }


def read_heads(keys: Keys, tensors: Mapping[str, TensorInfo], count: int) -> Heads:
    """Return the sizes of latent attention.

    New files give the widths of keys and values as attention over the latent vector has them, and
    those of a head in keys of their own.
    """
    split = "attention.key_length_mla" in keys
    suffix = "_mla" if split else ""
    key = keys.integer(f"attention.key_length{suffix}", low=2, high=1 << 16)
    rotated = keys.integer("rope.dimension_count", low=2, high=1 << 16)
    if rotated >= key or rotated % 2:
        raise keys.error("rope.dimension_count", rotated, f"even and below {key}")
    # llama.cpp goes by the number of layers instead, since V2-Lite's files have the key all the
    # same.
    direct = "blk.0.attn_q_a.weight" not in tensors
    value = keys.integer(f"attention.value_length{suffix}", high=1 << 16)
    if count * (key + value) > MAX_SIZE:
        raise keys.error(f"attention.value_length{suffix}", value, "of a size that can be")
    keys.ignore("attention.q_lora_rank")
    return Heads(
        count=count,
        plain=key - rotated,
        rotated=rotated,
        value=value,
        latent=keys.integer("attention.kv_lora_rank"),
        query_latent=None if direct else keys.integer("attention.q_lora_rank"),
        split=split,
    )


def latent_attention_rules(heads: Heads) -> list[Rule]:
    """Return the rules for attention in classes with `embed_q` and `unembed_out`."""
    target = blocks.ATTENTION
    rules = [
        module("blk.{}.attn_kv_a_mqa", f"{target}.kv_a_proj_with_mqa"),
        module("blk.{}.attn_kv_a_norm", f"{target}.kv_a_layernorm"),
        module("blk.{}.attn_output", f"{target}.o_proj"),
    ]
    if heads.query_latent is None:
        rules.append(module("blk.{}.attn_q", f"{target}.q_proj"))
    else:
        rules.append(module("blk.{}.attn_q_a", f"{target}.q_a_proj"))
        rules.append(module("blk.{}.attn_q_a_norm", f"{target}.q_a_layernorm"))
        rules.append(module("blk.{}.attn_q_b", f"{target}.q_b_proj"))
    if heads.split:
        rules.append(module("blk.{}.attn_k_b", f"{target}.embed_q"))
        rules.append(module("blk.{}.attn_v_b", f"{target}.unembed_out"))
    else:
        source = "blk.{}.attn_kv_b"
        rules.append(
            parameter(f"{source}.weight", f"{target}.embed_q.weight", convert=_keys_of(heads))
        )
        rules.append(module(source, f"{target}.unembed_out", rows=_value_rows(heads)))
    return rules


def _keys_of(heads: Heads) -> Conversion:
    def convert(values: NDArray[np.float32]) -> NDArray[np.float32]:
        size = heads.plain + heads.value
        if values.shape != (heads.count * size, heads.latent):
            # Refused by its shape, which then is not that of the parameter.
            return values
        of_head = values.reshape(heads.count, size, heads.latent)
        return of_head[:, : heads.plain].swapaxes(1, 2)

    return convert


def _value_rows(heads: Heads) -> NDArray[np.intp]:
    size = heads.plain + heads.value
    starts = np.arange(heads.count, dtype=np.intp)[:, None] * size + heads.plain
    rows: NDArray[np.intp] = (starts + np.arange(heads.value, dtype=np.intp)).ravel()
    return rows


def read_deepseek2(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan for `variants.deepseek2`."""
    sizes = decoder.read_dimensions(keys, tensors)
    layers = sizes.num_layers
    heads = read_heads(keys, tensors, sizes.num_heads)
    dense = keys.integer("leading_dense_block_count", 0, low=0, high=layers)
    rules = [
        *decoder.frame_rules(sizes.tied, copied=True),
        module("blk.{}.attn_norm", f"{blocks.LAYER}.input_layernorm"),
        *latent_attention_rules(heads),
        module("blk.{}.ffn_norm", f"{blocks.LAYER}.post_attention_layernorm"),
        *blocks.feed_forward_rules(last=dense),
    ]
    constants: dict[str, NDArray[np.float32]] = {}
    of_mixture: dict[str, Any] = {}
    if dense < layers:

        def routed(layer: int) -> bool:
            return layer >= dense

        target = blocks.FEED_FORWARD
        mixture = experts.read_mixture(keys)
        of_mixture = _mixture_arguments(keys, sizes, mixture)
        rules += experts.expert_rules(f"{target}.switch_mlp", mixture, tensors, layers=routed)
        rules += experts.router_rules(f"{target}.gate", layers=routed)
        constants = experts.zero_router_biases(
            f"{target}.gate", mixture, tensors, range(dense, layers)
        )
        if of_mixture["n_shared_experts"]:
            rules += blocks.feed_forward_rules(
                f"{target}.shared_experts", sources=blocks.SHARED_EXPERT, first=dense
            )
    else:
        keys.ignore("expert_count", "expert_shared_count", "expert_weights_scale")
    return ModelPlan(
        architecture=keys.architecture,
        model="variants.deepseek2",
        arguments={
            "model_type": "deepseek_v3",
            "vocab_size": sizes.vocabulary_size,
            "hidden_size": sizes.hidden_size,
            "intermediate_size": sizes.feed_forward_size,
            "num_hidden_layers": layers,
            "first_k_dense_replace": dense,
            "max_position_embeddings": sizes.context_length,
            "rms_norm_eps": decoder.rms_eps(keys),
            "rope_theta": rope_base(keys),
            "rope_scaling": _scaling(keys, sizes.context_length),
            **heads.arguments,
            **of_mixture,
        },
        placements=place(
            rules,
            tensors,
            layers,
            ignored=decoder.extra_blocks(layers, keys.integer("block_count")),
        ),
        num_layers=layers,
        context_length=sizes.context_length,
        vocabulary_size=sizes.vocabulary_size,
        constants=constants,
    )


def _mixture_arguments(
    keys: Keys, sizes: decoder.Dimensions, mixture: experts.Mixture
) -> dict[str, Any]:
    # GLM 4.7 Flash's first files do not name its gating function.
    lite = sizes.vocabulary_size == _GLM_LITE_VOCABULARY and sizes.num_layers in _GLM_LITE_LAYERS
    gating = experts.read_gating(keys, Gating.SIGMOID if lite else Gating.SOFTMAX)
    if gating not in _SCORING:
        raise keys.unsupported("expert_gating_func", int(gating), "softmax (1) or sigmoid (2)")
    groups, chosen = experts.read_groups(keys, mixture)
    return {
        "n_routed_experts": mixture.count,
        "num_experts_per_tok": mixture.used,
        "moe_intermediate_size": mixture.feed_forward_size,
        "n_shared_experts": keys.integer("expert_shared_count", low=0, high=1 << 10) or None,
        "scoring_func": _SCORING[gating],
        "norm_topk_prob": keys.flag("expert_weights_norm", False),
        "routed_scaling_factor": experts.read_weights_scale(keys),
        "n_group": groups,
        "topk_group": chosen,
    }


def _scaling(keys: Keys, context_length: int) -> dict[str, Any] | None:
    """Return mlx-lm's `rope_scaling`.

    The scale of attention is multiplied by the square of 0.1 m ln(factor) + 1. The file has m,
    which is `mscale_all_dim` of the original configuration, times 0.1; as llama.cpp does, `mscale`
    is taken to be the same, so that the rotation itself keeps its length.
    """
    scaling = rope_scaling(keys, context_length)
    if scaling is None:
        keys.ignore("rope.scaling.yarn_log_multiplier")
        return None
    if scaling["type"] != "yarn" or "mscale" in scaling:
        raise UnsupportedArchitectureError(
            f"the model scales positions with {scaling}; akunu runs {keys.architecture} models "
            "with plain yarn scaling only: use another model"
        )
    mscale = keys.number("rope.scaling.yarn_log_multiplier", low=0, high=10) * 10
    return {**scaling, "mscale": mscale, "mscale_all_dim": mscale}


READERS = {"deepseek2": read_deepseek2}
