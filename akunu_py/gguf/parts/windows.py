"""Layers that see only a window of the last tokens."""

from collections.abc import Sequence

from akunu_py.gguf.parts import attention
from akunu_py.gguf.parts.decoder import MAX_CONTEXT, MAX_LAYERS, Decoder
from akunu_py.system.errors import UnsupportedArchitectureError

WINDOW = "attention.sliding_window"
PATTERN = "attention.sliding_window_pattern"


def size(model: Decoder, default: int | None = None) -> int:
    """Return the number of tokens, itself included, that a token of a windowed layer sees.

    With a default there may be no windows, which files also state as 0.
    """
    return model.keys.integer(WINDOW, default, low=1 if default is None else 0, high=MAX_CONTEXT)


def windowed_layers(model: Decoder, period: int, *, first: bool = False) -> list[bool]:
    """Return for each layer whether it is windowed.

    The file lists the layers, or states a period p: the last, or with `first` the first, of each p
    layers sees everything, no layer for 0. `period` applies if the file states neither.
    """
    keys, layers = model.keys, model.num_layers
    if isinstance(keys.value(PATTERN), int | None):
        period = keys.integer(PATTERN, period, low=int(first), high=MAX_LAYERS)
        return [period == 0 or (layer + (not first)) % period > 0 for layer in range(layers)]
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


def by_kind(
    model: Decoder, key: str, values: Sequence[int], windowed: Sequence[bool]
) -> dict[bool, int]:
    """Return the common value of all layers of a kind, of windowed ones (True) and others."""
    found = {}
    for kind in set(windowed):
        of_kind = {value for value, flag in zip(values, windowed, strict=True) if flag == kind}
        if len(of_kind) > 1:
            raise model.keys.unsupported(key, sorted(of_kind), "one number for layers of a kind")
        found[kind] = of_kind.pop()
    return found


def heads_by_kind(
    model: Decoder, windowed: Sequence[bool]
) -> tuple[dict[bool, int], dict[bool, int]]:
    """Return the numbers of query heads of each kind of layers, and of key heads."""
    heads, kv_heads = attention.heads_of_layers(model)
    return (
        by_kind(model, attention.HEADS, heads, windowed),
        by_kind(model, attention.KEY_HEADS, kv_heads, windowed),
    )
