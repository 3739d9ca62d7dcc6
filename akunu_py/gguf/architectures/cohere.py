"""Cohere's Command R, Aya and Command R7B."""

from collections.abc import Mapping

from akunu_py.gguf.architectures import blocks, decoder, windows
from akunu_py.gguf.architectures.decoder import Dimensions
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, module
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import rotary_layers


def read_command_r(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of Command R, Command R+ or Aya for `mlx_lm.models.cohere`.

    The plus has norms of q and k, with weights of their own for each head.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    blocks.require_plain_heads(keys, sizes)
    normed = "blk.0.attn_q_norm.weight" in tensors
    rules = _rules(tensors, sizes)
    if normed:
        rules.append(module("blk.{}.attn_q_norm", f"{blocks.ATTENTION}.q_norm"))
        rules.append(module("blk.{}.attn_k_norm", f"{blocks.ATTENTION}.k_norm"))
    # Without a key llama.cpp leaves logits as they are.
    scale = keys.number("logit_scale", 1.0, low=-1, high=1e6)
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="cohere",
        rules=rules,
        arguments={
            "layer_norm_eps": decoder.layer_norm_eps(keys),
            "logit_scale": scale or 1.0,
            "use_qk_norm": normed,
        },
        rotary=rotary_layers(
            keys,
            tensors,
            dims=sizes.head_dim,
            context_length=sizes.context_length,
            traditional=True,
        ),
    )


def read_cohere2(keys: Keys, tensors: Mapping[str, TensorInfo]) -> ModelPlan:
    """Return the plan of Command R7B or Command A for `mlx_lm.models.cohere2`.

    Layers without a window have no positions either.
    """
    sizes = decoder.read_dimensions(keys, tensors)
    blocks.require_plain_heads(keys, sizes)
    return blocks.decoder_plan(
        keys,
        tensors,
        sizes,
        model="cohere2",
        rules=_rules(tensors, sizes),
        arguments={
            "layer_norm_eps": decoder.layer_norm_eps(keys),
            "logit_scale": keys.number("logit_scale", low=-1, high=1e6) or 1.0,
            "sliding_window": keys.integer(windows.WINDOW, high=decoder.MAX_CONTEXT),
            "sliding_window_pattern": windows.period_of(
                keys, windows.windowed_layers(keys, sizes.num_layers, 4)
            ),
        },
        rotary=rotary_layers(
            keys,
            tensors,
            dims=sizes.head_dim,
            context_length=sizes.context_length,
            traditional=True,
        ),
    )


def _rules(tensors: Mapping[str, TensorInfo], sizes: Dimensions) -> list[Rule]:
    """Return the rules of a block with one norm, for attention and feed-forward part alike."""
    return [
        *decoder.frame_rules(tied=True),
        module("blk.{}.attn_norm", f"{blocks.LAYER}.input_layernorm"),
        *blocks.attention_rules(tensors, sizes),
        *blocks.feed_forward_rules(),
    ]


READERS = {"command-r": read_command_r, "cohere2": read_cohere2}
