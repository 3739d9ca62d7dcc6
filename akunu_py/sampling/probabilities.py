"""Log-probabilities on the device to probabilities on the host."""

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from akunu_py.system.errors import ModelFormatError


def probabilities(
    row: mx.array, *, greedy: bool, kind: mx.Dtype | None = None
) -> NDArray[np.float64]:
    """Return the distribution [vocab] from which an adjusted row [vocab] is drawn.

    The row is log q up to a constant, -inf where q is 0. Probabilities are float64 and sum to 1 up
    to the last bits, whatever the row's type. `greedy` gives the likeliest token, the lowest id
    among equals, probability 1. `kind` is the type of the model's logits, by default the row's.

    Raises ModelFormatError for a row of NaN, or without an entry above -inf.
    """
    wide = np.array(row.astype(mx.float32), dtype=np.float64)
    top = wide.max()
    if not np.isfinite(top):
        raise no_choice(kind or row.dtype)
    if greedy:
        certain = np.zeros_like(wide)
        certain[wide.argmax()] = 1.0
        return certain
    found: NDArray[np.float64] = np.exp(wide - top)
    found /= found.sum()
    return found


def no_choice(kind: mx.Dtype) -> ModelFormatError:
    """Return the error for a row of logits of type `kind` from which no token can be chosen."""
    if kind == mx.float32:
        advice = "the model's file is damaged: download or convert it again"
    else:
        advice = (
            "load it with compute_type 'float32' (akunu config set compute-type float32) in case "
            "16 bits overflowed; otherwise its file is damaged"
        )
    return ModelFormatError(
        f"the model's logits are not numbers, so no token can be chosen; {advice}"
    )
