"""Trinity: Arcee's mixtures of experts."""

from collections.abc import Mapping

from akunu_py.gguf.architectures import blocks, decoder, experts, windows
from akunu_py.gguf.architectures.experts import Gating
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import module, parameter
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rope_scaling

_SCORING = {Gating.SOFTMAX: "softmax", Gating.SIGMOID: "sigmoid"}
_PERIOD = 4


def read_afmoe(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan for `mlx_lm.models.afmoe`.

    Of four layers the last sees everything, without positions; the others see a window. The
    embedding is multiplied by the root of its width, for which there is no key.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    decoder.require_whole_heads(keys, sizes.head_dim)
    layers = sizes.num_layers
    windowed = windows.windowed_layers(keys, layers, _PERIOD)
    if (period := windows.period_of(keys, windowed)) != _PERIOD:
        raise keys.unsupported(windows.PATTERN, period, "a period of four layers")
    window = keys.integer(windows.WINDOW, high=decoder.MAX_CONTEXT)
    mixture = experts.read_mixture(keys)
    gating = experts.read_gating(keys, Gating.SIGMOID)
    if gating not in _SCORING:
        raise keys.unsupported("expert_gating_func", int(gating), "softmax (1) or sigmoid (2)")
    groups = experts.read_groups(keys, mixture)[0]
    if groups > 1:
        raise keys.unsupported("expert_group_count", groups, "experts in one group")
    dense = keys.integer("leading_dense_block_count", 0, low=0, high=layers)
    shared = keys.integer("expert_shared_count", low=0, high=1 << 10)
    target = blocks.FEED_FORWARD

    def routed(layer: int) -> bool:
        return layer >= dense

    rules = [
        *decoder.frame_rules(sizes.tied),
        module("blk.{}.attn_norm", f"{blocks.LAYER}.input_layernorm"),
        *blocks.attention_rules(tensors, sizes),
        module("blk.{}.attn_gate", f"{blocks.ATTENTION}.gate_proj"),
        module("blk.{}.attn_q_norm", f"{blocks.ATTENTION}.q_norm"),
        module("blk.{}.attn_k_norm", f"{blocks.ATTENTION}.k_norm"),
        module("blk.{}.post_attention_norm", f"{blocks.LAYER}.post_attention_layernorm"),
        module("blk.{}.ffn_norm", f"{blocks.LAYER}.pre_mlp_layernorm"),
        module("blk.{}.post_ffw_norm", f"{blocks.LAYER}.post_mlp_layernorm"),
        *blocks.feed_forward_rules(last=dense),
        parameter(
            "blk.{}.ffn_gate_inp.weight",
            f"{target}.router.gate.weight",
            layers=routed,
            float32=True,
        ),
        parameter("blk.{}.exp_probs_b.bias", f"{target}.expert_bias", layers=routed, float32=True),
        *experts.expert_rules(f"{target}.experts", mixture, tensors, layers=routed),
    ]
    if shared:
        rules += blocks.feed_forward_rules(
            f"{target}.shared_experts", sources=blocks.SHARED_EXPERT, first=dense
        )
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="afmoe",
        rules=rules,
        arguments={
            "rms_norm_eps": decoder.rms_eps(keys),
            "layer_types": [
                "sliding_attention" if narrow else "full_attention" for narrow in windowed
            ],
            "sliding_window": window,
            "rope_scaling": rope_scaling(keys, sizes.context_length),
            "num_experts": mixture.count,
            "num_experts_per_tok": mixture.used,
            "moe_intermediate_size": mixture.feed_forward_size,
            "num_shared_experts": shared,
            "num_dense_layers": dense,
            "route_norm": keys.flag("expert_weights_norm", False),
            "route_scale": experts.read_weights_scale(keys),
            "score_func": _SCORING[gating],
            "mup_enabled": True,
        },
    )


READERS = {"afmoe": read_afmoe}
