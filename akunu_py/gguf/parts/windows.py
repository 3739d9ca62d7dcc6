"""Layers that see only a window of the last tokens."""

from collections.abc import Sequence

from akunu_py.gguf.parts.decoder import MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, Decoder
from akunu_py.system.errors import UnsupportedArchitectureError

WINDOW = "attention.sliding_window"
PATTERN = "attention.sliding_window_pattern"


def size(model: Decoder, default: int | None = None) -> int:
    """Return the number of tokens, itself included, that a token of a windowed layer sees.

    With a default there may be no windows, which files also state as 0.
    """
    return model.keys.integer(WINDOW, default, low=1 if default is None else 0, high=MAX_CONTEXT)


def windowed_layers(model: Decoder, period: int) -> list[bool]:
    """Return for each layer whether it is windowed.

    The file lists the layers, or states a period p: the last of each p layers sees everything, no
    layer for 0. `period` applies if the file states neither.
    """
    keys, layers = model.keys, model.num_layers
    if isinstance(keys.metadata.get(f"{keys.architecture}.{PATTERN}"), int | None):
        period = keys.integer(PATTERN, period, low=0, high=MAX_LAYERS)
        return [period == 0 or layer % period < period - 1 for layer in range(layers)]
    return keys.layer_flags(PATTERN, layers)


def period(model: Decoder, windowed: list[bool]) -> int:
    """Return the p for which exactly the last of each p layers sees everything.

    Raises UnsupportedArchitectureError for layers in another order.
    """
    found = windowed.index(False) + 1 if False in windowed else 0
    if found == 0 or windowed != [layer % found < found - 1 for layer in range(len(windowed))]:
        raise UnsupportedArchitectureError(
            f"{model.keys.architecture}.{PATTERN} has windowed layers in an order that does not "
            "repeat with one layer that sees everything at each end; use another model"
        )
    return found


def layer_types(windowed: list[bool]) -> list[str]:
    """Return the kinds of layers, as mlx-lm's classes name them."""
    return ["sliding_attention" if flag else "full_attention" for flag in windowed]


def require_both_kinds(model: Decoder, windowed: list[bool]) -> None:
    """Raise UnsupportedArchitectureError if all layers have the window, or none."""
    if len(set(windowed)) < 2:
        raise UnsupportedArchitectureError(
            f"{model.keys.architecture}.{PATTERN} makes all layers equal; akunu runs "
            f"{model.keys.architecture} models that have layers with a window and layers without: "
            "use another model"
        )


def of_both_kinds(
    model: Decoder, key: str, values: Sequence[int], windowed: Sequence[bool]
) -> tuple[int, int]:
    """Return the common value of the layers that see everything, and of the windowed ones."""
    kinds = [
        {value for value, narrow in zip(values, windowed, strict=True) if narrow == kind}
        for kind in (False, True)
    ]
    if any(len(found) != 1 for found in kinds):
        raise model.keys.unsupported(key, list(values)[:8], "equal layers of each kind")
    return kinds[0].pop(), kinds[1].pop()


def heads_of_both_kinds(
    model: Decoder, windowed: Sequence[bool]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the numbers of heads of the layers that see everything, and of the windowed ones.

    Each kind has query heads, and key heads that divide them.
    """
    found = []
    for key in ("attention.head_count", "attention.head_count_kv"):
        counts = model.keys.layer_integers(key, model.num_layers, low=1, high=MAX_HEADS)
        found.append(of_both_kinds(model, key, counts, windowed))
    heads, kv_heads = found
    for count, kv_count in zip(heads, kv_heads, strict=True):
        if count % kv_count:
            raise model.keys.error("attention.head_count_kv", kv_count, f"a divisor of {count}")
    return heads, kv_heads
