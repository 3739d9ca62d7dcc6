"""Log-probabilities on the device to probabilities on the host."""

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray


def probabilities(row: mx.array, *, greedy: bool) -> NDArray[np.float64]:
    """Return the distribution [vocab] that choices of an adjusted row [vocab] are drawn from.

    The row is log q up to a constant, -inf where q is 0. The sum is taken in float64, so that it is
    1 to the last bits whatever the row was computed in. `greedy` puts all on the likeliest token,
    the lowest id among equals.
    """
    wide = np.array(row.astype(mx.float32), dtype=np.float64)
    if greedy:
        certain = np.zeros_like(wide)
        certain[wide.argmax()] = 1.0
        return certain
    found: NDArray[np.float64] = np.exp(wide - wide.max())
    found /= found.sum()
    return found
