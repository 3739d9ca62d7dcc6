"""Seed OSS."""

from collections.abc import Mapping

from akunu_py.gguf.architectures import blocks, decoder
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import module
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rope_scaling


def read_seed_oss(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan for `mlx_lm.models.seed_oss`."""
    sizes = decoder.read_dimensions(keys, tensors)
    decoder.require_whole_heads(keys, sizes.head_dim)
    rules = [
        *decoder.frame_rules(sizes.tied),
        module("blk.{}.attn_norm", f"{blocks.LAYER}.input_layernorm"),
        *blocks.attention_rules(tensors, sizes),
        # Named for what it follows; it stands before the feed-forward part.
        module("blk.{}.post_attention_norm", f"{blocks.LAYER}.post_attention_layernorm"),
        *blocks.feed_forward_rules(),
    ]
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="seed_oss",
        rules=rules,
        arguments={
            "rms_norm_eps": decoder.rms_eps(keys),
            "attention_bias": blocks.has_attention_biases(tensors, sizes),
            "rope_scaling": rope_scaling(keys, sizes.context_length),
        },
    )


READERS = {"seed_oss": read_seed_oss}
