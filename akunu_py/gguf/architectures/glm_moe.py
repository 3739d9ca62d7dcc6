"""GLM 4.5 to 4.7, mixtures of experts."""

from collections.abc import Mapping

from akunu_py.gguf.architectures import blocks, decoder, experts
from akunu_py.gguf.architectures.experts import Gating
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import module
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rotary_layers


def read_glm4moe(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan for `mlx_lm.models.glm4_moe`.

    A part of each head rotates, by halves in both programs. Norms of q and k and biases of q, k and
    v are there in some sizes only.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    layers = sizes.num_layers
    head_dim = sizes.head_dim
    if (width := keys.integer("attention.value_length", head_dim)) != head_dim:
        raise keys.unsupported(
            "attention.value_length", width, f"values as wide as keys, {head_dim}"
        )
    rotated = decoder.read_rotated(keys, head_dim)
    mixture = experts.read_mixture(keys)
    if (gating := experts.read_gating(keys, Gating.SIGMOID)) is not Gating.SIGMOID:
        raise keys.unsupported("expert_gating_func", int(gating), "a sigmoid, 2")
    groups, chosen = experts.read_groups(keys, mixture)
    if groups > 1:
        raise keys.unsupported("expert_group_count", groups, "experts in one group")
    normed = keys.flag("expert_weights_norm", False)
    if normed and mixture.used == 1:
        raise keys.unsupported("expert_used_count", 1, "several experts a token")
    dense = keys.integer("leading_dense_block_count", 0, low=0, high=layers)
    shared = keys.integer("expert_shared_count", low=0, high=1 << 10)
    target = blocks.FEED_FORWARD

    def routed(layer: int) -> bool:
        return layer >= dense

    rules = [
        *decoder.frame_rules(sizes.tied, copied=True),
        module("blk.{}.attn_norm", f"{blocks.LAYER}.input_layernorm"),
        *blocks.attention_rules(tensors, sizes),
        module("blk.{}.attn_q_norm", f"{blocks.ATTENTION}.q_norm", required=False),
        module("blk.{}.attn_k_norm", f"{blocks.ATTENTION}.k_norm", required=False),
        module("blk.{}.post_attention_norm", f"{blocks.LAYER}.post_attention_layernorm"),
        *blocks.feed_forward_rules(last=dense),
        *experts.router_rules(f"{target}.gate", layers=routed),
        *experts.expert_rules(f"{target}.switch_mlp", mixture, tensors, layers=routed),
    ]
    if shared:
        rules += blocks.feed_forward_rules(
            f"{target}.shared_experts", sources=blocks.SHARED_EXPERT, first=dense
        )
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="glm4_moe",
        rules=rules,
        arguments={
            "rms_norm_eps": decoder.rms_eps(keys),
            "attention_bias": blocks.has_attention_biases(tensors, sizes),
            "use_qk_norm": "blk.0.attn_q_norm.weight" in tensors,
            # Half a dimension more, against what division loses.
            "partial_rotary_factor": (rotated + 0.5) / head_dim,
            "rope_scaling": None,
            "first_k_dense_replace": dense,
            "n_routed_experts": mixture.count,
            "num_experts_per_tok": mixture.used,
            "moe_intermediate_size": mixture.feed_forward_size,
            "n_shared_experts": shared or None,
            "n_group": groups,
            "topk_group": chosen,
            "norm_topk_prob": normed,
            "routed_scaling_factor": experts.read_weights_scale(keys),
        },
        rotary=rotary_layers(keys, tensors, dims=rotated, context_length=sizes.context_length),
        ignored=decoder.extra_blocks(layers, keys.integer("block_count")),
        constants=experts.zero_router_biases(
            f"{target}.gate", mixture, tensors, range(dense, layers)
        ),
    )


READERS = {"glm4moe": read_glm4moe}
