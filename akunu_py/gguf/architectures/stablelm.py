"""StableLM: 3B, 2 1.6B, Zephyr and 2 12B."""

from collections.abc import Mapping

from akunu_py.gguf.architectures import blocks, decoder
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, module, parameter
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rotary_layers


def read_stablelm(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan for `mlx_lm.models.stablelm`.

    Without a norm of its own the feed-forward part stands beside attention. The 12B model has a
    norm for each head of q and k.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    rotated = decoder.read_rotated(keys, sizes.head_dim)
    blocks.require_plain_heads(keys, sizes, rotated=rotated)
    # Converters write it for models that are not so.
    keys.ignore("use_parallel_residual")
    parallel = "blk.0.ffn_norm.weight" not in tensors
    head_norms = "blk.0.attn_q_norm.weight" in tensors
    rules = [
        *decoder.frame_rules(tied=False),
        module("blk.{}.attn_norm", f"{blocks.LAYER}.input_layernorm"),
        *blocks.attention_rules(tensors, sizes),
        *blocks.feed_forward_rules(),
    ]
    if not parallel:
        rules.append(module("blk.{}.ffn_norm", f"{blocks.LAYER}.post_attention_layernorm"))
    if head_norms:
        rules += _head_norms("q", sizes.num_heads) + _head_norms("k", sizes.num_kv_heads)
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="stablelm",
        rules=rules,
        arguments={
            "layer_norm_eps": decoder.layer_norm_eps(keys),
            "use_qkv_bias": blocks.has_attention_biases(tensors, sizes),
            # The class multiplies and rounds down.
            "partial_rotary_factor": (rotated + 0.5) / sizes.head_dim,
            "use_parallel_residual": parallel,
            "qk_layernorm": head_norms,
        },
        rotary=rotary_layers(keys, tensors, dims=rotated, context_length=sizes.context_length),
    )


def _head_norms(part: str, heads: int) -> list[Rule]:
    return [
        parameter(
            f"blk.{{}}.attn_{part}_norm.weight",
            f"{blocks.ATTENTION}.{part}_layernorm.norms.{head}.weight",
            rows=slice(head, head + 1),
        )
        for head in range(heads)
    ]


READERS = {"stablelm": read_stablelm}
