"""Qwen 1.5, 2, 2.5 and 3, dense and mixtures; the text of vision models; Qwen 3 Next and 3.5.

Vision models rotate parts of a head by the three coordinates of a patch, which are equal in a text,
and add features of images after the first layers. For text they are the plain models. Qwen 3 Next
and 3.5 are gated delta nets with attention in every fourth layer.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from akunu_py.gguf.names import FEED_FORWARD, Rule, module, modules, parameter, rows_of_each
from akunu_py.gguf.parts import attention, experts, layers, recurrent, rope
from akunu_py.gguf.parts.decoder import MAX_LAYERS, Decoder
from akunu_py.gguf.parts.recurrent import StateSpace
from akunu_py.gguf.plan import Indices, ModelPlan


def qwen2(model: Decoder) -> ModelPlan:
    """Qwen 1.5, 2 and 2.5 for `mlx_lm.models.qwen2`."""
    attention.require_plain_heads(model)
    return model.plan(
        "qwen2",
        layers.llama(model),
        {"rope_scaling": rope.scaling(model)},
        constants=attention.missing_biases(model),
    )


def qwen2moe(model: Decoder) -> ModelPlan:
    """Qwen 1.5 and 2, mixtures, for `mlx_lm.models.qwen2_moe`.

    The class ignores scaling of positions. The weights of the chosen experts are not scaled to sum
    to one, and a separate gate weighs the shared expert.
    """
    attention.require_plain_heads(model)
    mixture = _read_mixture(model)
    return model.plan(
        "qwen2_moe",
        [
            *layers.llama(model, feed_forward={}),
            *_mixture_rules(model, mixture, FEED_FORWARD, shared=True),
        ],
        {
            **mixture.arguments,
            "shared_expert_intermediate_size": model.keys.integer(
                "expert_shared_feed_forward_length", model.feed_forward_size
            ),
        },
        rotary=rope.layers(model),
        constants=attention.missing_biases(model),
    )


def qwen3(model: Decoder) -> ModelPlan:
    """Qwen 3, dense, for `mlx_lm.models.qwen3`."""
    attention.require_whole_heads(model)
    return model.plan(
        "qwen3",
        layers.llama(model, heads=layers.HEAD_NORMS),
        {"rope_scaling": rope.scaling(model)},
    )


def qwen3moe(model: Decoder) -> ModelPlan:
    """Qwen 3, mixtures, for `mlx_lm.models.qwen3_moe`.

    The class ignores scaling of positions. The weights of the chosen experts sum to one, without a
    key.
    """
    attention.require_whole_heads(model)
    mixture = _read_mixture(model)
    return model.plan(
        "qwen3_moe",
        [
            *layers.llama(model, heads=layers.HEAD_NORMS, feed_forward={}),
            *_mixture_rules(model, mixture, FEED_FORWARD, shared=False),
        ],
        {
            **mixture.arguments,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        },
        rotary=rope.layers(model),
    )


# Their text is that of the plain models.
qwen2vl, qwen3vl, qwen3vlmoe = qwen2, qwen3, qwen3moe


def _read_mixture(model: Decoder) -> experts.Mixture:
    """Return the sizes of the experts; old files state the total width of the used ones."""
    if "expert_feed_forward_length" in model.keys:
        return experts.read(model)
    whole = experts.read(model, "feed_forward_length")
    return replace(whole, feed_forward_size=max(1, model.feed_forward_size // whole.used))


def _mixture_rules(
    model: Decoder, mixture: experts.Mixture, at: str, *, shared: bool
) -> list[Rule]:
    rules = modules(at, {"ffn_gate_inp": "gate"})
    if not shared:
        return rules + experts.rules(model, mixture, at)
    # A vector in most files, a matrix of one row in the class.
    gate = parameter(
        "blk.{}.ffn_gate_inp_shexp.weight",
        f"{at}.shared_expert_gate.weight",
        convert=lambda weight: weight.reshape(1, -1),
    )
    return [*rules, *experts.rules(model, mixture, at, shared="shared_expert"), gate]


class _DeltaNets(Decoder):
    """A model with attention in every n-th layer and gated delta nets in all others."""

    @cached_property
    def mixer(self) -> StateSpace:
        """Sizes of a delta net; groups are key heads, heads are value heads."""
        return recurrent.read_state_space(self.keys)

    @cached_property
    def interval(self) -> int:
        """The n of every n-th layer."""
        keys, count = self.keys, self.num_layers
        interval = keys.integer("full_attention_interval", 4, high=MAX_LAYERS)
        if (key := "attention.recurrent_layers") in keys:
            recurs = keys.layer_flags(key, count)
            interval = recurs.index(False) + 1 if False in recurs else count + 1
            if recurs != [(layer + 1) % interval != 0 for layer in range(count)]:
                raise keys.unsupported(key, recurs, "attention in every n-th layer")
        if interval > count:
            wanted = f"attention in some of their layers, here {count}"
            raise keys.unsupported("full_attention_interval", interval, wanted)
        return interval

    @cached_property
    def attention_layers(self) -> tuple[int, ...]:
        return tuple(range(self.interval - 1, self.num_layers, self.interval))

    @property
    def share(self) -> int:
        """Number of value heads per key head."""
        return self.mixer.heads // self.mixer.groups


def qwen3next(model: Decoder) -> ModelPlan:
    """Qwen 3 Next for `mlx_lm.models.qwen3_next`.

    Norms are stored plus one, as in the class.
    """
    nets = _DeltaNets(model.keys, model.tensors)
    mixture = experts.read(nets)
    body = "model"
    net = f"{body}.layers.{{}}.linear_attn"
    fused: str | tuple[str, ...] = ("blk.{}.attn_qkv", "blk.{}.attn_gate")
    rows: Indices | None = _fused_rows(nets)
    if "blk.0.ssm_in.weight" in nets.tensors:
        # Until December 2025 converters kept the checkpoint's fused matrix.
        fused, rows = "blk.{}.ssm_in", None
    rules = [
        *layers.frame(nets),
        *_attention_rules(nets, body),
        *_mixture_rules(nets, mixture, f"{body}.layers.{{}}.mlp", shared=True),
        *_delta_net_rules(nets, net),
        *modules(net, {"ssm_out": "out_proj", "ssm_ba": "in_proj_ba"}, layers=nets.recurs),
        module(fused, f"{net}.in_proj_qkvz", rows=rows, layers=nets.recurs),
    ]
    arguments = {
        "intermediate_size": 0,
        **_delta_net_arguments(nets),
        **_delta_mixture_arguments(nets, mixture),
        "mlp_only_layers": [],
        "rope_scaling": rope.scaling(nets),
        "partial_rotary_factor": _rotary_share(nets),
    }
    return nets.plan("qwen3_next", rules, arguments)


def qwen35(model: Decoder) -> ModelPlan:
    """Qwen 3.5, dense, for `mlx_lm.models.qwen3_5`."""
    nets = _DeltaNets(model.keys, model.tensors)
    rules = modules("language_model.model.layers.{}.mlp", layers.GATED)
    return _qwen35_plan(nets, "qwen3_5", rules, {"num_experts": 0})


def qwen35moe(model: Decoder) -> ModelPlan:
    """Qwen 3.5, mixtures, for `mlx_lm.models.qwen3_5_moe`."""
    nets = _DeltaNets(model.keys, model.tensors)
    mixture = experts.read(nets)
    rules = _mixture_rules(nets, mixture, "language_model.model.layers.{}.mlp", shared=True)
    arguments = {"intermediate_size": 0, **_delta_mixture_arguments(nets, mixture)}
    return _qwen35_plan(nets, "qwen3_5_moe", rules, arguments)


def _qwen35_plan(
    nets: _DeltaNets, name: str, feed_forward: list[Rule], arguments: Mapping[str, Any]
) -> ModelPlan:
    body = "language_model.model"
    net = f"{body}.layers.{{}}.linear_attn"
    heads = _grouped_heads(nets)
    channels = rows_of_each(heads, nets.mixer.head_dim, np.arange(nets.mixer.head_dim))
    inputs = 2 * nets.mixer.groups * nets.mixer.state_size
    qkv = np.concatenate((np.arange(inputs, dtype=np.intp), inputs + channels))
    recurs = nets.recurs
    rules = [
        *layers.frame(nets, f"{body}.embed_tokens", f"{body}.norm", "language_model.lm_head"),
        *_attention_rules(nets, body),
        *feed_forward,
        *_delta_net_rules(nets, net, heads=heads, qkv=qkv),
        module("blk.{}.attn_qkv", f"{net}.in_proj_qkv", rows=qkv, layers=recurs),
        module("blk.{}.attn_gate", f"{net}.in_proj_z", rows=channels, layers=recurs),
        module("blk.{}.ssm_beta", f"{net}.in_proj_b", rows=heads, layers=recurs),
        module("blk.{}.ssm_alpha", f"{net}.in_proj_a", rows=heads, layers=recurs),
        module("blk.{}.ssm_out", f"{net}.out_proj", columns=channels, layers=recurs),
    ]
    # The three sections of positions (for images) are equal in a text.
    nets.keys.ignore("rope.dimension_sections")
    text = {
        **_delta_net_arguments(nets),
        **arguments,
        "model_type": "qwen3_5_text",
        "rope_parameters": {
            **(rope.scaling(nets) or {"type": "default"}),
            "rope_theta": nets.rope_base,
            "partial_rotary_factor": _rotary_share(nets),
        },
    }
    whole = {"text_config": nets.arguments(text)}
    return nets.plan(name, rules, whole, shared_arguments=False)


def _attention_rules(nets: _DeltaNets, body: str) -> list[Rule]:
    layer = f"{body}.layers.{{}}"
    target = f"{layer}.self_attn"
    return [
        *modules(layer, layers.NORMS_BETWEEN),
        # The rows of each query are followed by its gate's.
        *attention.rules(nets, target, query_parts=2),
        *modules(target, layers.HEAD_NORMS, layers=nets.attends),
    ]


def _delta_net_rules(
    nets: _DeltaNets, net: str, *, heads: Indices | None = None, qkv: Indices | None = None
) -> list[Rule]:
    recurs = nets.recurs
    return [
        recurrent.kernel_rule(net, rows=qkv, layers=recurs),
        *recurrent.decay_rules(net, rows=heads, layers=recurs),
        *modules(net, {"ssm_norm": "norm"}, layers=recurs),
    ]


def _delta_net_arguments(nets: _DeltaNets) -> dict[str, Any]:
    attention.require_equal_widths(nets)
    return {
        "full_attention_interval": nets.interval,
        "linear_num_value_heads": nets.mixer.heads,
        "linear_num_key_heads": nets.mixer.groups,
        "linear_key_head_dim": nets.mixer.state_size,
        "linear_value_head_dim": nets.mixer.head_dim,
        "linear_conv_kernel_dim": nets.mixer.kernel,
        "attention_bias": False,
    }


def _delta_mixture_arguments(nets: _DeltaNets, mixture: experts.Mixture) -> dict[str, Any]:
    return {
        **mixture.arguments,
        "shared_expert_intermediate_size": nets.keys.integer("expert_shared_feed_forward_length"),
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
    }


def _rotary_share(nets: _DeltaNets) -> float:
    # Rounded up, since the class truncates its product with the head's width.
    return math.nextafter(rope.rotated_dims(nets) / nets.head_dim, 1.0)


def _grouped_heads(nets: _DeltaNets) -> Indices:
    """Return the place of each value head in the file.

    The class groups the value heads by key head. Qwen 3.5's converter interleaves them: first one
    for each key head, then a second for each, and so on.
    """
    order: Indices = np.arange(nets.mixer.heads, dtype=np.intp)
    return order.reshape(nets.share, nets.mixer.groups).T.ravel()


def _fused_rows(nets: _DeltaNets) -> Indices:
    """Return the rows of q, k, v and z, concatenated, in the order of the fused matrix.

    For each key head it has the rows of q and k, and the rows of v and z of its value heads.
    """
    groups, key_dim = nets.mixer.groups, nets.mixer.state_size
    value_dim = nets.share * nets.mixer.head_dim
    widths = (key_dim, key_dim, value_dim, value_dim)
    starts = np.cumsum([0, *(groups * width for width in widths)])
    parts = [
        start + np.arange(groups * width, dtype=np.intp).reshape(groups, width)
        for start, width in zip(starts[:-1], widths, strict=True)
    ]
    rows: Indices = np.concatenate(parts, axis=1).ravel()
    return rows
