"""Intervals by resampling sessions: how far a figure would move with other items of the kind."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000

LEAST_SESSIONS = 5
"""Sessions below which a ratio of times has no interval: the whole range of n independent values
misses the one they vary about in 1 case of 2 ** (n - 1), and a resample cannot leave that range."""

_SEED = 20240917
_LOW, _HIGH = 2.5, 97.5

Interval = tuple[float, float]
Floats = NDArray[np.float64]


def session_weights(sessions: Sequence[str], *, name: str, resamples: int = RESAMPLES) -> Floats:
    """Return how often each item counts in each resample, [resamples, items].

    Sessions are drawn with replacement and bring all their items, since turns of one conversation
    are no independent samples. The same `name` and sessions give the same weights, so that two
    drafters are compared on the same resamples. Row 0 counts every item once: the figure itself.
    """
    distinct = {session: index for index, session in enumerate(dict.fromkeys(sessions))}
    generator = np.random.default_rng([_SEED, *name.encode()])
    size = len(distinct)
    drawn = generator.multinomial(size, np.full(size, 1 / size), size=resamples - 1)
    drawn = np.concatenate((np.ones((1, size), dtype=drawn.dtype), drawn))
    of_item = [distinct[session] for session in sessions]
    return np.asarray(drawn[:, of_item], dtype=np.float64)


def interval(samples: Floats) -> Interval:
    """Return the 95 % percentile interval of a figure's resamples; those without one left out."""
    finite = samples[np.isfinite(samples)]
    if not finite.size:
        return (float("nan"), float("nan"))
    low, high = np.percentile(finite, (_LOW, _HIGH))
    return (float(low), float(high))
