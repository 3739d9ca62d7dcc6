"""Trials of a model: whether passes of a kind give what plain passes give.

A trial feeds a few rows to throwaway caches. A model that fails it does without that kind.
"""

from collections.abc import Callable, Iterable
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn

from akunu_py.models.cache import make_caches
from akunu_py.models.rollback.caches import RollbackCaches
from akunu_py.system.errors import AkunuError, ContractError

TOLERANCE = 1e-4
HALF_TOLERANCE = 2e-2
"""Largest difference of logits, relative to a row's largest logit, for float32 and for 16-bit
types, whose rows differ by up to 0.012 between passes of other sizes. The latter serves trees over
quantized caches, too, where a last digit may change a code. On a CPU trees and joined passes of
most families are bit-equal to plain ones. A wrong position, a visible sibling or a window too wide
makes a difference of at least 0.27, and of 0.12 over quantized caches."""

_FAILURES = (AkunuError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError,
             ValueError)  # fmt: skip
"""Errors of models that compute something in a way of their own."""

Pair = tuple[mx.array, mx.array]
"""Logits found in a trial, and those of plain passes."""


def refusal(compare: Callable[[], Iterable[Pair]], differs: str, *, quantized: bool = False) -> str:
    """Return why a model fails a trial, in the words of `differs` or of its error; "" if not.

    `quantized` says whether its caches are.
    """
    try:
        pairs = list(compare())
        # Python's own max passes a NaN over.
        largest = float(np.max([distance(*pair) for pair in pairs]))
    except _FAILURES as error:
        return f"{type(error).__name__}: {error}"
    exact = pairs[0][0].dtype == mx.float32 and not quantized
    allowed = TOLERANCE if exact else HALF_TOLERANCE
    # Written so that a NaN is refused.
    return "" if largest <= allowed else f"{differs} by {largest:.1e} of the largest"


def distance(found: mx.array, expected: mx.array) -> float:
    """Return the largest difference of logits, relative to the largest magnitude of its row."""
    found, expected = found.astype(mx.float32), expected.astype(mx.float32)
    largest = mx.abs(expected).max(axis=-1)
    return float((mx.abs(found - expected).max(axis=-1) / largest).max())


def varied(count: int, size: int, first: int = 0) -> list[int]:
    """Return ids that are not all equal; any others would serve."""
    # 7919 is a prime that no vocabulary divides.
    return [(1 + 7919 * number) % size for number in range(first, first + count)]


def replays(model: nn.Module) -> str:
    """Return why a recorded pass of the model cannot be undone, an empty text if it can."""
    return refusal(lambda: _replayed(model), "logits behind a replayed state differ")


def _replayed(model: nn.Module) -> list[Pair]:
    """Undo a part of a pass and go on, and feed only the rows that stay to other caches."""
    lead, recorded, kept, after = (0, 1), (2, 3, 0), 1, (1,)

    def feed(rows: tuple[int, ...], caches: list[Any]) -> mx.array:
        logits: mx.array = model(mx.array(rows)[None], cache=caches)
        return logits[0]

    caches, others = make_caches(model), make_caches(model)
    rollback = RollbackCaches(caches)
    feed(lead, caches)
    with rollback.record(len(recorded)) as record:
        feed(recorded, caches)
    record.close()
    undone = rollback.undo(len(recorded) - kept)
    # Also where that is known to fail: other ranks take part in these passes.
    found = feed(after, caches)
    expected = [feed(rows, others) for rows in (lead, recorded[:kept], after)]
    if not undone:
        raise ContractError("how the layers make their states is not known")
    return [(found, expected[-1])]
