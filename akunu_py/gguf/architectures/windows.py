"""Which layers of a model see a window of the last tokens only."""

from akunu_py.errors import UnsupportedArchitectureError
from akunu_py.gguf.architectures.decoder import MAX_CONTEXT, MAX_LAYERS
from akunu_py.gguf.keys import Keys

WINDOW = "attention.sliding_window"
PATTERN = "attention.sliding_window_pattern"


def read_window(keys: Keys, default: int | None = None) -> int:
    """Return how many tokens, itself included, a token of a windowed layer sees; 0 for all."""
    return keys.integer(WINDOW, default, low=0, high=MAX_CONTEXT)


def windowed_layers(keys: Keys, layers: int, period: int) -> list[bool]:
    """Return for each layer whether it is windowed.

    The file lists the layers, or says after how many windowed ones comes one that sees everything
    (of each p layers the last; 0 for never); `period` is taken where it says neither.
    """
    if isinstance(keys.metadata.get(f"{keys.architecture}.{PATTERN}"), int | None):
        period = keys.integer(PATTERN, period, low=0, high=MAX_LAYERS)
        return [period == 0 or layer % period < period - 1 for layer in range(layers)]
    return keys.layer_flags(PATTERN, layers)


def period_of(keys: Keys, windowed: list[bool]) -> int:
    """Return p, where of each p layers exactly the last sees everything.

    Raises UnsupportedArchitectureError for layers in another order.
    """
    period = windowed.index(False) + 1 if False in windowed else 0
    if period == 0 or windowed != [layer % period < period - 1 for layer in range(len(windowed))]:
        raise UnsupportedArchitectureError(
            f"{keys.architecture}.{PATTERN} has windowed layers in an order that does not repeat "
            "with one layer that sees everything at each end; use another model"
        )
    return period
