"""DeepSeek's first mixture, with llama's attention."""

from collections.abc import Mapping

from akunu_py.gguf.architectures import blocks, decoder, experts
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import module
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rotary_layers


def read_deepseek(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan for `mlx_lm.models.deepseek`.

    The rows of q and k are ordered for neighbours; the class rotates halves. The chosen experts'
    weights keep their sum.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    blocks.require_plain_heads(keys, sizes)
    dense = keys.integer("leading_dense_block_count", 0, low=0, high=sizes.num_layers - 1)
    mixture = experts.read_mixture(keys)
    if (scale := experts.read_weights_scale(keys)) != 1.0:
        raise keys.unsupported("expert_weights_scale", scale, "a scale of 1")
    target = blocks.FEED_FORWARD
    rules = [
        *blocks.decoder_rules(tensors, sizes, reorder=True),
        *blocks.feed_forward_rules(last=dense),
        *blocks.mixture_rules(mixture, tensors, first=dense),
        *blocks.feed_forward_rules(
            f"{target}.shared_experts", sources=blocks.SHARED_EXPERT, first=dense
        ),
    ]
    if sizes.tied:
        # The class has a head of its own.
        rules.append(module(decoder.EMBEDDING, "lm_head"))
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="deepseek",
        rules=rules,
        arguments={
            "rms_norm_eps": decoder.rms_eps(keys),
            "moe_intermediate_size": mixture.feed_forward_size,
            "n_routed_experts": mixture.count,
            "n_shared_experts": keys.integer("expert_shared_count", high=1 << 10),
            "num_experts_per_tok": mixture.used,
            "first_k_dense_replace": dense,
        },
        rotary=rotary_layers(
            keys, tensors, dims=sizes.head_dim, context_length=sizes.context_length
        ),
    )


READERS = {"deepseek": read_deepseek}
