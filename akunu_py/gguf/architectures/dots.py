"""dots.llm1."""

from collections.abc import Mapping

from akunu_py.gguf.architectures import blocks, decoder, experts
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import module
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rope_scaling


def read_dots(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan for `mlx_lm.models.dots1`, whose router weighs by a sigmoid."""
    sizes = decoder.read_dimensions(keys, tensors)
    decoder.require_whole_heads(keys, sizes.head_dim)
    layers = sizes.num_layers
    mixture = experts.read_mixture(keys)
    if (gating := experts.read_gating(keys, experts.Gating.SIGMOID)) != experts.Gating.SIGMOID:
        raise keys.unsupported("expert_gating_func", int(gating), "a sigmoid")
    if experts.read_groups(keys, mixture) != (1, 1):
        raise keys.unsupported("expert_group_count", "set", "experts in one group")
    dense = keys.integer("leading_dense_block_count", 0, low=0, high=layers - 1)
    target = blocks.FEED_FORWARD

    def is_mixture(layer: int) -> bool:
        return layer >= dense

    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="dots1",
        rules=[
            *blocks.decoder_rules(tensors, sizes),
            module("blk.{}.attn_q_norm", f"{blocks.ATTENTION}.q_norm"),
            module("blk.{}.attn_k_norm", f"{blocks.ATTENTION}.k_norm"),
            *blocks.feed_forward_rules(last=dense),
            *experts.router_rules(f"{target}.gate", layers=is_mixture),
            *experts.expert_rules(f"{target}.experts", mixture, tensors, layers=is_mixture),
            *blocks.feed_forward_rules(
                f"{target}.shared_experts", sources=blocks.SHARED_EXPERT, first=dense
            ),
        ],
        arguments={
            "rms_norm_eps": decoder.rms_eps(keys),
            "first_k_dense_replace": dense,
            "moe_intermediate_size": mixture.feed_forward_size,
            "n_routed_experts": mixture.count,
            "n_shared_experts": keys.integer("expert_shared_count", high=1 << 10),
            "num_experts_per_tok": mixture.used,
            "norm_topk_prob": keys.flag("expert_weights_norm", False),
            "routed_scaling_factor": experts.read_weights_scale(keys),
            "rope_scaling": rope_scaling(keys, sizes.context_length),
        },
        constants=experts.zero_router_biases(
            f"{target}.gate", mixture, tensors, range(dense, layers)
        ),
    )


READERS = {"dots1": read_dots}
