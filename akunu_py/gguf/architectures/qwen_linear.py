"""Qwen 3 Next and Qwen 3.5: gated delta nets, with attention in every fourth layer."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.architectures import decoder, experts
from akunu_py.gguf.architectures.recurrent import (
    Projections,
    StateSpace,
    depthwise,
    log_of_decay,
    read_state_space,
)
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, module, parameter, place
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rope_base, rope_scaling

_LEGACY_INPUT = "blk.0.ssm_in.weight"
Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class _Model:
    sizes: decoder.Dimensions
    mixer: StateSpace
    interval: int
    body: str

    def attends(self, layer: int) -> bool:
        return (layer + 1) % self.interval == 0

    def recurs(self, layer: int) -> bool:
        return not self.attends(layer)

    @property
    def attention_layers(self) -> tuple[int, ...]:
        return tuple(range(self.interval - 1, self.sizes.num_layers, self.interval))

    @property
    def key_size(self) -> int:
        """The rows of q, and of k, in a delta net."""
        return self.mixer.groups * self.mixer.state_size

    @property
    def share(self) -> int:
        """How many value heads go with one key head."""
        return self.mixer.heads // self.mixer.groups


def read_qwen3_next(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a Qwen 3 Next model for `mlx_lm.models.qwen3_next`.

    Norms are stored plus one, which is how that class has them too.
    """
    model = _read_model(keys, tensors, body="model", feed_forward=False)
    mixture = experts.read_mixture(keys)
    net = f"{model.body}.layers.{{}}.linear_attn"
    rules = [
        *decoder.frame_rules(model.sizes.tied),
        *_layer_rules(model, tensors),
        *_mixture_rules(model, mixture, tensors),
        *_delta_net_rules(net, model),
        module("blk.{}.ssm_out", f"{net}.out_proj", layers=model.recurs),
        module("blk.{}.ssm_ba", f"{net}.in_proj_ba", layers=model.recurs),
    ]
    if _LEGACY_INPUT in tensors:
        # Until December 2025 converters left the fused matrix as the checkpoint has it.
        rules.append(module("blk.{}.ssm_in", f"{net}.in_proj_qkvz", layers=model.recurs))
    else:
        sources = ("blk.{}.attn_qkv", "blk.{}.attn_gate")
        rows = _fused_rows(model)
        rules.append(module(sources, f"{net}.in_proj_qkvz", rows=rows, layers=model.recurs))
    scaling = rope_scaling(keys, model.sizes.context_length)
    arguments = {
        **_arguments(keys, model),
        **_mixture_arguments(keys, mixture),
        "model_type": "qwen3_next",
        "mlp_only_layers": [],
        "rope_theta": rope_base(keys),
        "rope_scaling": scaling,
        "partial_rotary_factor": _rotary_share(keys, model),
    }
    return _plan(keys, tensors, model, arguments, rules)


def read_qwen35(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a dense Qwen 3.5 text model for `mlx_lm.models.qwen3_5`."""
    model = _read_model(keys, tensors, body="language_model.model", feed_forward=True)
    layer = f"{model.body}.layers.{{}}.mlp."
    rules = [
        module("blk.{}.ffn_gate", layer + "gate_proj"),
        module("blk.{}.ffn_up", layer + "up_proj"),
        module("blk.{}.ffn_down", layer + "down_proj"),
    ]
    return _plan35(keys, tensors, model, {"num_experts": 0}, rules)


def read_qwen35_moe(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of a Qwen 3.5 mixture for `mlx_lm.models.qwen3_5_moe`."""
    model = _read_model(keys, tensors, body="language_model.model", feed_forward=False)
    mixture = experts.read_mixture(keys)
    return _plan35(
        keys,
        tensors,
        model,
        _mixture_arguments(keys, mixture),
        _mixture_rules(model, mixture, tensors),
    )


def _plan35(
    keys: Keys,
    tensors: Mapping[str, TensorInfo],
    model: _Model,
    arguments: dict[str, Any],
    feed_forward: list[Rule],
) -> ModelPlan:
    net = f"{model.body}.layers.{{}}.linear_attn"
    heads = _grouped_heads(model)
    channels = _spread(heads, model.mixer.head_dim)
    inputs = 2 * model.key_size
    qkv = np.concatenate((np.arange(inputs, dtype=np.intp), inputs + channels))
    recurs = model.recurs
    rules = [
        *decoder.frame_rules(model.sizes.tied, body=model.body, head="language_model.lm_head"),
        *_layer_rules(model, tensors),
        *feed_forward,
        *_delta_net_rules(net, model, heads=heads, qkv=qkv),
        module("blk.{}.attn_qkv", f"{net}.in_proj_qkv", rows=qkv, layers=recurs),
        module("blk.{}.attn_gate", f"{net}.in_proj_z", rows=channels, layers=recurs),
        module("blk.{}.ssm_beta", f"{net}.in_proj_b", rows=heads, layers=recurs),
        module("blk.{}.ssm_alpha", f"{net}.in_proj_a", rows=heads, layers=recurs),
        module("blk.{}.ssm_out", f"{net}.out_proj", columns=channels, layers=recurs),
    ]
    # The three sections of positions (of images) are the same number in a text.
    keys.ignore("rope.dimension_sections")
    text: dict[str, Any] = {
        **_arguments(keys, model),
        **arguments,
        "model_type": "qwen3_5_text",
        "rope_parameters": {
            **(rope_scaling(keys, model.sizes.context_length) or {"type": "default"}),
            "rope_theta": rope_base(keys),
            "partial_rotary_factor": _rotary_share(keys, model),
        },
    }
    name = "qwen3_5_moe" if text["num_experts"] else "qwen3_5"
    return _plan(keys, tensors, model, {"model_type": name, "text_config": text}, rules)


def _read_model(
    keys: Keys, tensors: Mapping[str, TensorInfo], *, body: str, feed_forward: bool
) -> _Model:
    sizes = decoder.read_dimensions(keys, tensors, feed_forward=feed_forward)
    value_size = keys.integer("attention.value_length", sizes.head_dim, high=1 << 16)
    if value_size != sizes.head_dim:
        wanted = f"values as wide as the head, here {sizes.head_dim}"
        raise keys.unsupported("attention.value_length", value_size, wanted)
    return _Model(
        sizes=sizes,
        mixer=read_state_space(keys),
        interval=_read_interval(keys, sizes.num_layers),
        body=body,
    )


def _read_interval(keys: Keys, layers: int) -> int:
    """Return n where every n-th layer attends and all others are delta nets."""
    interval = keys.integer("full_attention_interval", 4, high=decoder.MAX_LAYERS)
    if (key := "attention.recurrent_layers") in keys:
        recurs = keys.layer_flags(key, layers)
        interval = recurs.index(False) + 1 if False in recurs else layers + 1
        if recurs != [(layer + 1) % interval != 0 for layer in range(layers)]:
            raise keys.unsupported(key, recurs, "attention in every n-th layer")
    if interval > layers:
        wanted = f"attention in some of their layers, here {layers}"
        raise keys.unsupported("full_attention_interval", interval, wanted)
    return interval


def _rotary_share(keys: Keys, model: _Model) -> float:
    rotated = decoder.read_rotated(keys, model.sizes.head_dim)
    # Rounded up, since the class truncates its product with the head's width.
    return math.nextafter(rotated / model.sizes.head_dim, 1.0)


def _grouped_heads(model: _Model) -> Indices:
    """Return for each value head where the file has it.

    The class wants the value heads of one key head side by side; Qwen 3.5's converter deals them
    out, first one for each key head, then a second for each.
    """
    order: Indices = np.arange(model.mixer.heads, dtype=np.intp)
    return order.reshape(model.share, model.mixer.groups).T.ravel()


def _spread(heads: Indices, head_dim: int) -> Indices:
    """Return the rows of heads in that order."""
    rows: Indices = heads[:, None] * head_dim + np.arange(head_dim, dtype=np.intp)
    return rows.ravel()


def _fused_rows(model: _Model) -> Indices:
    """Return the rows of q, k, v and z, one after the other, in the order of the fused matrix.

    That has for each key head its rows of q and k and those of its value heads of v and z.
    """
    groups, key_dim = model.mixer.groups, model.mixer.state_size
    value_dim = model.share * model.mixer.head_dim
    widths = (key_dim, key_dim, value_dim, value_dim)
    starts = np.cumsum([0, *(groups * width for width in widths)])
    parts = [
        start + np.arange(groups * width, dtype=np.intp).reshape(groups, width)
        for start, width in zip(starts[:-1], widths, strict=True)
    ]
    rows: Indices = np.concatenate(parts, axis=1).ravel()
    return rows


def _delta_net_rules(
    net: str, model: _Model, *, heads: Indices | None = None, qkv: Indices | None = None
) -> list[Rule]:
    recurs = model.recurs
    return [
        parameter(
            "blk.{}.ssm_conv1d.weight",
            f"{net}.conv1d.weight",
            rows=qkv,
            convert=depthwise,
            layers=recurs,
        ),
        parameter("blk.{}.ssm_dt.bias", f"{net}.dt_bias", rows=heads, layers=recurs, float32=True),
        parameter(
            "blk.{}.ssm_a",
            f"{net}.A_log",
            rows=heads,
            convert=log_of_decay,
            layers=recurs,
            float32=True,
        ),
        module("blk.{}.ssm_norm", f"{net}.norm", layers=recurs),
    ]


def _layer_rules(model: _Model, tensors: Mapping[str, TensorInfo]) -> list[Rule]:
    layer = f"{model.body}.layers.{{}}."
    names = {
        "attn_output": "o_proj",
        "attn_q_norm": "q_norm",
        "attn_k_norm": "k_norm",
    }
    attends: Callable[[int], bool] = model.attends
    return [
        module("blk.{}.attn_norm", layer + "input_layernorm"),
        module("blk.{}.post_attention_norm", layer + "post_attention_layernorm"),
        # Each query's rows are followed by those of its gate.
        *Projections.of(model.sizes, share=2).rules(
            layer + "self_attn", tensors, model.attention_layers
        ),
        *(
            module(f"blk.{{}}.{source}", f"{layer}self_attn.{target}", layers=attends)
            for source, target in names.items()
        ),
    ]


def _mixture_rules(
    model: _Model, mixture: experts.Mixture, tensors: Mapping[str, TensorInfo]
) -> list[Rule]:
    target = f"{model.body}.layers.{{}}.mlp"
    return [
        module("blk.{}.ffn_gate_inp", f"{target}.gate"),
        *experts.expert_rules(f"{target}.switch_mlp", mixture, tensors),
        module("blk.{}.ffn_gate_shexp", f"{target}.shared_expert.gate_proj"),
        module("blk.{}.ffn_up_shexp", f"{target}.shared_expert.up_proj"),
        module("blk.{}.ffn_down_shexp", f"{target}.shared_expert.down_proj"),
        # A vector in some files, a matrix of one row in the class.
        parameter(
            "blk.{}.ffn_gate_inp_shexp.weight",
            f"{target}.shared_expert_gate.weight",
            convert=lambda weight: weight.reshape(1, -1),
        ),
    ]


def _mixture_arguments(keys: Keys, mixture: experts.Mixture) -> dict[str, Any]:
    return {
        "num_experts": mixture.count,
        "num_experts_per_tok": mixture.used,
        "moe_intermediate_size": mixture.feed_forward_size,
        "shared_expert_intermediate_size": keys.integer("expert_shared_feed_forward_length"),
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
    }


def _arguments(keys: Keys, model: _Model) -> dict[str, Any]:
    sizes, mixer = model.sizes, model.mixer
    return {
        "hidden_size": sizes.hidden_size,
        "num_hidden_layers": sizes.num_layers,
        "intermediate_size": sizes.feed_forward_size,
        "num_attention_heads": sizes.num_heads,
        "num_key_value_heads": sizes.num_kv_heads,
        "head_dim": sizes.head_dim,
        "full_attention_interval": model.interval,
        "linear_num_value_heads": mixer.heads,
        "linear_num_key_heads": mixer.groups,
        "linear_key_head_dim": mixer.state_size,
        "linear_value_head_dim": mixer.head_dim,
        "linear_conv_kernel_dim": mixer.kernel,
        "rms_norm_eps": decoder.rms_eps(keys),
        "vocab_size": sizes.vocabulary_size,
        "max_position_embeddings": sizes.context_length,
        "tie_word_embeddings": sizes.tied,
        "attention_bias": False,
    }


def _plan(
    keys: Keys,
    tensors: Mapping[str, TensorInfo],
    model: _Model,
    arguments: dict[str, Any],
    rules: list[Rule],
) -> ModelPlan:
    sizes = model.sizes
    blocks = keys.integer("block_count", high=decoder.MAX_LAYERS)
    return ModelPlan(
        architecture=keys.architecture,
        model=arguments["model_type"],
        arguments=arguments,
        placements=place(
            rules,
            tensors,
            sizes.num_layers,
            ignored=decoder.extra_blocks(sizes.num_layers, blocks),
        ),
        num_layers=sizes.num_layers,
        context_length=sizes.context_length,
        vocabulary_size=sizes.vocabulary_size,
    )


READERS = {"qwen3next": read_qwen3_next, "qwen35": read_qwen35, "qwen35moe": read_qwen35_moe}
