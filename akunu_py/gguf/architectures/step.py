"""Step 3.5 Flash and its kin."""

from collections.abc import Sequence
from dataclasses import replace

from akunu_py.gguf.names import ATTENTION, FEED_FORWARD, LAYER, modules
from akunu_py.gguf.parts import attention, experts, layers, rope, windows
from akunu_py.gguf.parts.decoder import Decoder, read_head_dim
from akunu_py.gguf.plan import ModelPlan, RotaryFactors

_ROUTER = f"{FEED_FORWARD}.gate.gate.weight"
_ROUTER_BIAS = f"{FEED_FORWARD}.gate.router_bias"
_LARGEST_CLAMP = 1e6


def step35(model: Decoder) -> ModelPlan:
    """Step 3.5 and 3.7 Flash for `mlx_lm.models.step3p5`.

    Windowed layers have another number of heads and another rotary base, and rotate whole heads;
    the others rotate half of each.
    """
    keys = model.keys
    windowed = windows.windowed_layers(model, 4)
    windows.require_both_kinds(model, windowed)
    heads, kv_heads = windows.heads_of_both_kinds(model, windowed)
    head_dim = read_head_dim(keys, model.hidden_size, heads[0])
    for key in ("attention.value_length", "rope.dimension_count", "rope.dimension_count_swa"):
        if (size := keys.integer(key, head_dim)) != head_dim:
            raise keys.unsupported(key, size, f"the width of the head, {head_dim}")
    rope.require_unscaled(model)
    routed = [f"blk.{layer}.ffn_gate_inp.weight" in model.tensors for layer in range(len(windowed))]
    mixture = experts.read(model, layers=[layer for layer, flag in enumerate(routed) if flag])
    experts.require_sigmoid(model)
    experts.require_one_group(model, mixture)
    gated = "blk.0.attn_gate.weight" in model.tensors
    names = {"attn_output": "o_proj", **layers.HEAD_NORMS}
    sizes = [
        (heads[kind] * head_dim, kv_heads[kind] * head_dim, kv_heads[kind] * head_dim)
        for kind in windowed
    ]
    return model.plan(
        "step3p5",
        [
            *layers.frame(model, copied=True),
            *modules(LAYER, layers.NORMS),
            *attention.inputs_by_layer(model, sizes),
            *modules(ATTENTION, names | ({"attn_gate": "g_proj"} if gated else {})),
            *experts.rules(model, mixture, shared="share_expert"),
            *experts.router(mixture.routed, _ROUTER, _ROUTER_BIAS),
        ],
        {
            "num_attention_heads": heads[0],
            "num_attention_groups": kv_heads[0],
            "num_key_value_heads": kv_heads[0],
            "attention_other_setting": {
                "num_attention_heads": heads[1],
                "num_attention_groups": kv_heads[1],
            },
            "head_dim": head_dim,
            "use_head_wise_attn_gate": gated,
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
            "swiglu_limits": keys.layer_numbers(
                "swiglu_clamp_exp", model.num_layers, high=_LARGEST_CLAMP
            ),
            "swiglu_limits_shared": keys.layer_numbers(
                "swiglu_clamp_shexp", model.num_layers, high=_LARGEST_CLAMP
            ),
        },
        rotary=_factors(model, head_dim, windowed),
        constants=experts.zero_biases(model, mixture, _ROUTER_BIAS),
        predicts_further=True,
    )


def _factors(model: Decoder, head_dim: int, windowed: Sequence[bool]) -> RotaryFactors | None:
    """Return the factors of the layers without a window.

    Converters compute them for the frequencies of a whole head. Half of it rotates, by every second
    of these frequencies, as in transformers' Step 3.7; llama.cpp takes the first half of the
    factors.
    """
    if (found := rope.factors(model, dims=head_dim // 2)) is None:
        return None
    full = "|".join(str(layer) for layer, narrow in enumerate(windowed) if not narrow)
    return replace(found, step=2, modules=rf"model\.layers\.({full})\.self_attn\.rope")
