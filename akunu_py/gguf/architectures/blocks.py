"""Rules and arguments of the decoders whose names and classes are llama's, or nearly so."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akunu_py.errors import UnsupportedArchitectureError
from akunu_py.gguf.architectures import decoder
from akunu_py.gguf.architectures.decoder import Dimensions
from akunu_py.gguf.architectures.experts import Mixture, expert_rules, read_mixture
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.names import Rule, halves_from_neighbours, module, place
from akunu_py.gguf.plan import ModelPlan, RotaryFactors, RotaryScaling, RowOrder
from akunu_py.gguf.reader import TensorInfo
from akunu_py.gguf.rope import FREQUENCY_FACTORS, rope_base

LAYER = "model.layers.{}"
ATTENTION = f"{LAYER}.self_attn"
FEED_FORWARD = f"{LAYER}.mlp"
FUSED_ATTENTION = "attn_qkv"
SHARED_EXPERT = ("ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp")
_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def decoder_rules(
    tensors: Mapping[str, TensorInfo], sizes: Dimensions, *, reorder: bool = False
) -> list[Rule]:
    """Return the rules of a decoder with llama's names and modules, feed-forward parts left out.

    `reorder`: see `attention_rules`.
    """
    return [
        *decoder.frame_rules(sizes.tied),
        module("blk.{}.attn_norm", f"{LAYER}.input_layernorm"),
        *attention_rules(tensors, sizes, reorder=reorder),
        module("blk.{}.ffn_norm", f"{LAYER}.post_attention_layernorm"),
    ]


def attention_rules(
    tensors: Mapping[str, TensorInfo],
    sizes: Dimensions,
    *,
    target: str = ATTENTION,
    output: str = "o_proj",
    reorder: bool = False,
) -> list[Rule]:
    """Return the rules for the projections of attention, apart or fused in `attn_qkv`.

    `reorder` moves the rows of q and k for a class that rotates halves of a head, where the file's
    rows rotate as neighbours.
    """
    parts = (
        ("q_proj", "attn_q", sizes.num_heads, reorder),
        ("k_proj", "attn_k", sizes.num_kv_heads, reorder),
        ("v_proj", "attn_v", sizes.num_kv_heads, False),
    )
    fused = f"blk.0.{FUSED_ATTENTION}.weight" in tensors
    rules = []
    start = 0
    for name, source, heads, moved in parts:
        end = start + heads * sizes.head_dim
        order: RowOrder | None = None
        if moved:
            order = halves_from_neighbours(heads, sizes.head_dim)
        if fused:
            order = slice(start, end) if order is None else start + np.asarray(order)
        tensor = FUSED_ATTENTION if fused else source
        rules.append(module(f"blk.{{}}.{tensor}", f"{target}.{name}", rows=order))
        start = end
    rules.append(module("blk.{}.attn_output", f"{target}.{output}"))
    return rules


def feed_forward_rules(
    target: str = FEED_FORWARD,
    *,
    sources: Iterable[str] = decoder.FEED_FORWARD,
    first: int = 0,
    last: int | None = None,
) -> list[Rule]:
    """Return the rules for gate, up and down, named so or as `sources` says.

    They hold for the layers from `first` up to `last`, that one left out.
    """

    def layers(layer: int) -> bool:
        return first <= layer and (last is None or layer < last)

    return [
        module(f"blk.{{}}.{source}", f"{target}.{name}", layers=layers)
        for source, name in zip(sources, _PROJECTIONS, strict=True)
    ]


def mixture_rules(
    mixture: Mixture,
    tensors: Mapping[str, TensorInfo],
    target: str = FEED_FORWARD,
    *,
    first: int = 0,
) -> list[Rule]:
    """Return the rules for router and expert stacks of the layers from `first` on."""

    def layers(layer: int) -> bool:
        return layer >= first

    return [
        module("blk.{}.ffn_gate_inp", f"{target}.gate", layers=layers),
        *expert_rules(f"{target}.switch_mlp", mixture, tensors, layers=layers),
    ]


def decoder_arguments(keys: Keys, sizes: Dimensions, model_type: str) -> dict[str, Any]:
    """Return the arguments that mlx-lm's classes share, scaling of positions left out.

    A class that has no such argument is not given it: say what it leaves unread.
    """
    return {
        "model_type": model_type,
        "hidden_size": sizes.hidden_size,
        "num_hidden_layers": sizes.num_layers,
        "intermediate_size": sizes.feed_forward_size,
        "num_attention_heads": sizes.num_heads,
        "num_key_value_heads": sizes.num_kv_heads,
        "head_dim": sizes.head_dim,
        "vocab_size": sizes.vocabulary_size,
        "max_position_embeddings": sizes.context_length,
        "rope_theta": rope_base(keys),
        "tie_word_embeddings": sizes.tied,
    }


def read_whole_mixture(keys: Keys, sizes: Dimensions) -> Mixture:
    """Return the sizes of the experts; old files have the width of all used ones together."""
    if "expert_feed_forward_length" in keys:
        return read_mixture(keys)
    whole = read_mixture(keys, "feed_forward_length")
    return replace(whole, feed_forward_size=max(1, sizes.feed_forward_size // whole.used))


def require_plain_heads(keys: Keys, sizes: Dimensions, *, rotated: int | None = None) -> None:
    """Raise UnsupportedArchitectureError where the heads together are not as wide as the model.

    They rotate whole, unless `rotated` says how many dimensions of each.
    """
    if rotated is None:
        decoder.require_whole_heads(keys, sizes.head_dim)
    elif (values := keys.integer("attention.value_length", sizes.head_dim)) != sizes.head_dim:
        raise keys.unsupported(
            "attention.value_length", values, f"values as wide as the head, here {sizes.head_dim}"
        )
    if sizes.head_dim * sizes.num_heads != sizes.hidden_size:
        raise keys.unsupported(
            "attention.key_length",
            sizes.head_dim,
            f"heads that are together as wide as the model, here {sizes.hidden_size}",
        )


def has_attention_biases(tensors: Mapping[str, TensorInfo], sizes: Dimensions) -> bool:
    """Return whether q, k and v have biases; raises UnsupportedArchitectureError if some have."""
    fused = f"blk.0.{FUSED_ATTENTION}.weight" in tensors
    parts = (FUSED_ATTENTION,) if fused else decoder.ATTENTION[:3]
    return decoder.has_biases(tensors, sizes.num_layers, parts, "attention")


def zero_biases(
    sizes: Dimensions,
    parts: Iterable[str] = ("q_proj", "k_proj", "v_proj"),
    *,
    target: str = ATTENTION,
) -> dict[str, NDArray[np.float32]]:
    """Return zeros for biases of attention that the class has and the file has not."""
    widths = {
        "q_proj": sizes.num_heads * sizes.head_dim,
        "k_proj": sizes.num_kv_heads * sizes.head_dim,
        "v_proj": sizes.num_kv_heads * sizes.head_dim,
        "o_proj": sizes.hidden_size,
    }
    return {
        f"{target.format(layer)}.{part}.bias": np.zeros(widths[part], np.float32)
        for layer in range(sizes.num_layers)
        for part in parts
    }


def decoder_plan(
    keys: Keys,
    tensors: Mapping[str, TensorInfo],
    sizes: Dimensions,
    *,
    model: str,
    rules: Iterable[Rule],
    arguments: Mapping[str, Any],
    rotary: RotaryFactors | RotaryScaling | None = None,
    ignored: str | None = None,
    constants: Mapping[str, NDArray[np.float32]] | None = None,
) -> ModelPlan:
    """Return the plan, `arguments` added to those that the classes share.

    Raises UnsupportedArchitectureError for factors of the rotary frequencies that nothing applies.
    """
    if isinstance(rotary, RotaryFactors):
        ignored = FREQUENCY_FACTORS if ignored is None else f"{FREQUENCY_FACTORS}|{ignored}"
    elif FREQUENCY_FACTORS in tensors:
        raise UnsupportedArchitectureError(
            f"the model has {FREQUENCY_FACTORS}, which akunu cannot apply to "
            f"{keys.architecture} models; use another model"
        )
    return ModelPlan(
        architecture=keys.architecture,
        model=model,
        arguments={
            **decoder_arguments(keys, sizes, model.rpartition(".")[2]),
            **arguments,
        },
        placements=place(rules, tensors, sizes.num_layers, ignored=ignored),
        num_layers=sizes.num_layers,
        context_length=sizes.context_length,
        vocabulary_size=sizes.vocabulary_size,
        rotary=rotary,
        constants=constants or {},
    )
