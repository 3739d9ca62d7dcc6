"""Attention: the heads that a class can run, and the rows of its projections."""

from collections.abc import Callable, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.names import ATTENTION, Rule, halves_from_neighbours, module
from akunu_py.gguf.parts.decoder import MAX_HEADS, Decoder
from akunu_py.gguf.plan import RowOrder

INPUTS = ("attn_q", "attn_k", "attn_v")
ALL = (*INPUTS, "attn_output")
FUSED = "attn_qkv"
"""q, k and v, one after the other; some converters fuse them in any architecture."""
HEADS, KEY_HEADS = "attention.head_count", "attention.head_count_kv"


def require_equal_widths(model: Decoder) -> None:
    """Raise UnsupportedArchitectureError if values are not as wide as the head."""
    _require_width(model, "attention.value_length", "values")


def require_whole_heads(model: Decoder) -> None:
    """Raise UnsupportedArchitectureError if values or rotation are not as wide as the head."""
    require_equal_widths(model)
    _require_width(model, "rope.dimension_count", "rotation")


def require_plain_heads(model: Decoder, *, partial: bool = False) -> None:
    """Raise UnsupportedArchitectureError if the heads together are not as wide as the model.

    The whole head must rotate, unless the class can rotate part of it (`partial`).
    """
    if partial:
        require_equal_widths(model)
    else:
        require_whole_heads(model)
    require_width_of_model(model)


def require_width_of_model(model: Decoder) -> None:
    """Raise UnsupportedArchitectureError if the heads together are not as wide as the model."""
    if model.head_dim * model.num_heads != model.hidden_size:
        raise model.keys.unsupported(
            "attention.key_length",
            model.head_dim,
            f"heads that are together as wide as the model, here {model.hidden_size}",
        )


def require_own_keys(model: Decoder) -> None:
    """Raise UnsupportedArchitectureError if query heads share keys and values."""
    if model.num_kv_heads != model.num_heads:
        wanted = f"as many key heads as query heads, here {model.num_heads}"
        raise model.keys.unsupported("attention.head_count_kv", model.num_kv_heads, wanted)


def _require_width(model: Decoder, key: str, what: str) -> None:
    if (size := model.keys.integer(key, model.head_dim, low=0)) != model.head_dim:
        wanted = f"{what} as wide as the head, here {model.head_dim}"
        raise model.keys.unsupported(key, size, wanted)


def rules(
    model: Decoder,
    at: str = ATTENTION,
    *,
    output: str = "o_proj",
    reorder: bool = False,
    query_parts: int = 1,
    layers: Collection[int] | None = None,
) -> list[Rule]:
    """Return the rules for projections, separate or fused.

    They apply to `layers`, by default the layers with attention. `reorder` moves the rows of q and
    k for a class that rotates halves of a head, if neighbours rotate in the file. `query_parts` is
    the number of rows of q for each row of a head.
    """
    keys = model.num_kv_heads * model.head_dim
    layers = model.attention_layers if layers is None else layers
    orders: tuple[RowOrder | None, ...] = (None, None, None)
    if reorder:
        counts = (model.num_heads, model.num_kv_heads)
        orders = (*(halves_from_neighbours(count, model.head_dim) for count in counts), None)
    sizes = (query_parts * model.num_heads * model.head_dim, keys, keys)
    return [
        *inputs(model, at, sizes, layers=layers, orders=orders),
        module("blk.{}.attn_output", f"{at}.{output}", layers=layers.__contains__),
    ]


def inputs(
    model: Decoder,
    at: str,
    sizes: tuple[int, int, int],
    *,
    layers: Collection[int],
    orders: Sequence[RowOrder | None] = (None, None, None),
) -> list[Rule]:
    """Return the rules for q, k and v with `sizes` rows, in `layers`.

    `orders` has the order of rows in the class for each, None for the file's.
    """
    fused = any(f"blk.{layer}.{FUSED}.weight" in model.tensors for layer in layers)
    found = []
    start = 0
    for part, size, order in zip("qkv", sizes, orders, strict=True):
        rows = order
        if fused:
            rows = slice(start, start + size) if order is None else start + np.asarray(order)
        source = f"blk.{{}}.{FUSED if fused else f'attn_{part}'}"
        found.append(module(source, f"{at}.{part}_proj", rows=rows, layers=layers.__contains__))
        start += size
    return found


def heads_of_layers(model: Decoder) -> tuple[list[int], list[int]]:
    """Return for each layer the number of query heads, and of key heads, which divide them."""
    heads, kv_heads = (
        model.keys.layer_integers(key, model.num_layers, low=1, high=MAX_HEADS)
        for key in (HEADS, KEY_HEADS)
    )
    for count, kv_count in zip(heads, kv_heads, strict=True):
        if count % kv_count:
            raise model.keys.error(KEY_HEADS, kv_count, f"a divisor of {count}")
    return heads, kv_heads


def inputs_by_layer(model: Decoder, key_dim: int, value_dim: int) -> list[Rule]:
    """Return the rules for q, k and v, separate or fused, where layers differ in heads."""
    sizes = [
        (heads * key_dim, kv_heads * key_dim, kv_heads * value_dim)
        for heads, kv_heads in zip(*heads_of_layers(model), strict=True)
    ]

    def rows_of(part: int) -> Callable[[int], slice]:
        return lambda layer: slice(sum(sizes[layer][:part]), sum(sizes[layer][: part + 1]))

    fused = f"blk.0.{FUSED}.weight" in model.tensors
    return [
        module(
            f"blk.{{}}.{FUSED if fused else f'attn_{name}'}",
            f"{ATTENTION}.{name}_proj",
            rows=rows_of(part) if fused else None,
        )
        for part, name in enumerate("qkv")
    ]


def has_biases(model: Decoder) -> bool:
    """Return whether q, k and v have biases; raise UnsupportedArchitectureError if only some do."""
    fused = f"blk.0.{FUSED}.weight" in model.tensors
    return model.has_biases((FUSED,) if fused else INPUTS, "attention")


def has_query_biases(model: Decoder) -> bool:
    """Return whether queries have a bias; if layers differ in it, a missing tensor is reported."""
    return model.has_any(".attn_q.bias", f".{FUSED}.bias")


def missing_biases(model: Decoder) -> dict[str, NDArray[np.float32]]:
    """Return zeros for biases of q, k and v that the class needs and the file lacks."""
    return {} if has_biases(model) else zero_biases(model)


def zero_biases(
    model: Decoder, parts: Sequence[str] = ("q_proj", "k_proj", "v_proj")
) -> dict[str, NDArray[np.float32]]:
    """Return zeros for the biases of these parts in all layers."""
    keys = model.num_kv_heads * model.head_dim
    widths = {
        "q_proj": model.num_heads * model.head_dim,
        "k_proj": keys,
        "v_proj": keys,
        "o_proj": model.hidden_size,
    }
    return {
        f"{ATTENTION.format(layer)}.{part}.bias": np.zeros(widths[part], np.float32)
        for layer in range(model.num_layers)
        for part in parts
    }
