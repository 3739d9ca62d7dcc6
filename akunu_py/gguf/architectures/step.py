"""Step 3.5 Flash and Laguna: mixtures with windows, whose layers have a gate for each head."""

from collections.abc import Sequence
from dataclasses import replace

from akunu_py.gguf.names import ATTENTION, LAYER, modules
from akunu_py.gguf.parts import attention, experts, layers, rope, windows
from akunu_py.gguf.parts.decoder import Decoder, read_head_dim
from akunu_py.gguf.plan import ModelPlan, RotaryFactors

_NAMES = {"attn_output": "o_proj", "attn_gate": "g_proj", **layers.HEAD_NORMS}


def step35(model: Decoder) -> ModelPlan:
    """Step 3.5 and 3.7 Flash for `mlx_lm.models.step3p5`.

    Windowed layers have another number of heads and another rotary base, and rotate whole heads;
    the others rotate half of each.
    """
    keys = model.keys
    windowed = windows.windowed_layers(model, 4)
    windows.require_both_kinds(model, windowed)
    heads, kv_heads = windows.heads_by_kind(model, windowed)
    head_dim = read_head_dim(keys, model.hidden_size, heads[False])
    for key in ("attention.value_length", "rope.dimension_count", "rope.dimension_count_swa"):
        if (size := keys.integer(key, head_dim)) != head_dim:
            raise keys.unsupported(key, size, f"the width of the head, {head_dim}")
    rope.require_unscaled(model)
    mixture = experts.read_behind_dense(model, rest=1)
    experts.require_sigmoid(model, mixture)
    return model.plan(
        "step3p5",
        [
            *layers.frame(model, copied=True),
            *modules(LAYER, layers.NORMS),
            *attention.inputs_by_layer(model, head_dim, head_dim),
            *modules(ATTENTION, _NAMES),
            *experts.rules(model, mixture, shared="share_expert"),
            *experts.router(mixture, "gate.router_bias", "gate.gate.weight"),
        ],
        {
            "num_attention_heads": heads[False],
            "num_attention_groups": kv_heads[False],
            "num_key_value_heads": kv_heads[False],
            "attention_other_setting": {
                "num_attention_heads": heads[True],
                "num_attention_groups": kv_heads[True],
            },
            "head_dim": head_dim,
            "sliding_window": windows.size(model),
            "layer_types": windows.layer_types(windowed),
            "rope_theta": [
                rope.window_base(model) if narrow else model.rope_base for narrow in windowed
            ],
            "partial_rotary_factors": [
                1.0 if narrow else rope.share(head_dim // 2, head_dim) for narrow in windowed
            ],
            "moe_layers_enum": ",".join(map(str, sorted(mixture.layers))),
            "moe_num_experts": mixture.count,
            "moe_top_k": mixture.used,
            "moe_intermediate_size": mixture.feed_forward_size,
            "share_expert_dim": keys.integer("expert_shared_feed_forward_length"),
            "moe_router_scaling_factor": experts.weights_scale(model),
            "norm_expert_weight": experts.normalizes_weights(model),
            "swiglu_limits": keys.layer_numbers("swiglu_clamp_exp", model.num_layers, 0.0),
            "swiglu_limits_shared": keys.layer_numbers("swiglu_clamp_shexp", model.num_layers, 0.0),
        },
        rotary=_factors(model, head_dim, windowed),
    )


def laguna(model: Decoder) -> ModelPlan:
    """Laguna XS for `mlx_lm.models.laguna`.

    The first layer of each period sees everything. Windowed layers may have another number of query
    heads, another rotary base and another share of rotating dimensions, and do not scale positions.
    """
    keys = model.keys
    window = windows.size(model, 0)
    narrow = windows.windowed_layers(model, 4, first=True)
    windowed = [flag and window > 0 for flag in narrow]
    heads, _ = attention.heads_of_layers(model)
    kv_heads = keys.integer(attention.KEY_HEADS)
    head_dim = read_head_dim(keys, model.hidden_size, heads[0])
    if (rows := model.rows_of("blk.0.attn_gate.weight")) != heads[0]:
        raise keys.unsupported("attn_gate", f"{rows} wide", "a gate for each head")
    mixture = experts.read_behind_dense(model)
    experts.require_sigmoid(model, mixture)
    experts.require_normalized(model)
    # Their width is that of all.
    keys.ignore("expert_shared_count")
    return model.plan(
        "laguna",
        [
            *layers.frame(model),
            *modules(LAYER, layers.NORMS),
            *attention.inputs_by_layer(model, head_dim, head_dim),
            *modules(ATTENTION, _NAMES),
            *experts.rules(model, mixture, shared="shared_expert"),
            *experts.router(mixture, weight="gate.proj.weight"),
        ],
        {
            "num_attention_heads": heads[0],
            "num_attention_heads_per_layer": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": head_dim,
            "sliding_window": window or None,
            "layer_types": windows.layer_types(windowed),
            "rope_parameters": rope.of_both_kinds(model, head_dim),
            "mlp_layer_types": [
                "dense" if mixture.dense(layer) else "sparse" for layer in range(model.num_layers)
            ],
            **mixture.arguments,
            "shared_expert_intermediate_size": keys.integer("expert_shared_feed_forward_length"),
            "moe_routed_scaling_factor": experts.weights_scale(model),
        },
    )


def _factors(model: Decoder, head_dim: int, windowed: Sequence[bool]) -> RotaryFactors | None:
    """Return the factors of the layers without a window.

    Converters compute them for the frequencies of a whole head. Half of it rotates, by every second
    of these frequencies, as in transformers' Step 3.7; llama.cpp takes the first half of the
    factors.
    """
    if (found := rope.factors(model, dims=head_dim // 2)) is None:
        return None
    return rope.where_all_is_seen(replace(found, step=2), windowed)
