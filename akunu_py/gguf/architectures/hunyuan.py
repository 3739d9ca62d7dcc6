"""Hunyuan's dense models."""

from collections.abc import Mapping

from akunu_py.gguf.architectures import blocks, decoder
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import module
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rotary_layers


def read_hunyuan_dense(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan for `mlx_lm.models.hunyuan_v1_dense`.

    Norms of q and k follow the rotation, whose base in the file already has the model's scaling.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    decoder.require_whole_heads(keys, sizes.head_dim)
    # The released dense models' configurations speak of one expert.
    if (count := keys.integer("expert_count", 0, low=0)) > 1:
        raise keys.unsupported("expert_count", count, "no experts")
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="hunyuan_v1_dense",
        rules=[
            *blocks.decoder_rules(tensors, sizes),
            module("blk.{}.attn_q_norm", f"{blocks.ATTENTION}.query_layernorm"),
            module("blk.{}.attn_k_norm", f"{blocks.ATTENTION}.key_layernorm"),
            *blocks.feed_forward_rules(),
        ],
        arguments={"rms_norm_eps": decoder.rms_eps(keys)},
        rotary=rotary_layers(
            keys, tensors, dims=sizes.head_dim, context_length=sizes.context_length
        ),
    )


READERS = {"hunyuan-dense": read_hunyuan_dense}
