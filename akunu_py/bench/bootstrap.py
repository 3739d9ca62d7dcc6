"""Figures with bootstrap intervals: sessions are resampled."""

from collections.abc import Iterable, Sequence
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from akunu_py.bench.rows import Count, Row

RESAMPLES = 1000

LEAST_SESSIONS = 5
"""Least number of sessions for an interval. The range of n independent values misses their median
in 1 case of 2 ** (n - 1), and a resample cannot leave that range."""

NOT_ENOUGH = "not enough items"
"""Text of a table cell without a ratio or an interval."""

_SEED = 20240917
_LOW, _HIGH = 2.5, 97.5

Interval = tuple[float, float]
Floats = NDArray[np.float64]

TimedPair = tuple[str, float, float, float, float]
"""The session of an item, tokens and seconds of a reply to it, and those of the reply compared."""


class Ratio(Row, frozen=True):
    """A sum over items divided by another, such as a speed by a speed, and its 95 % interval.

    `pairs` is the number of items. With too few of them all three numbers are None: a ratio of
    times is never given without an interval.
    """

    LEAST_SESSIONS: ClassVar[int] = LEAST_SESSIONS

    ratio: float | None
    low: float | None
    high: float | None
    pairs: Count

    @classmethod
    def of(cls, pairs: Iterable[TimedPair], *, median: bool = False) -> Self:
        """Return the ratio of two speeds of the same items; above 1 the second one is faster.

        An item is (session, tokens, seconds, the other's tokens, its seconds). The ratio is of all
        tokens / all seconds, or the `median` of the items' ratios, which is robust to a stall. The
        interval is from 1,000 resamples of sessions. Items with nothing to time are left out; with
        fewer than `LEAST_SESSIONS` sessions there is no ratio.
        """
        timed = [pair for pair in pairs if min(pair[1:]) > 0]
        sessions = [session for session, *_ in timed]
        if len(set(sessions)) < LEAST_SESSIONS:
            return cls(None, None, None, len(timed))
        columns = np.array([pair[1:] for pair in timed], dtype=np.float64).T
        if median:
            off, off_s, on, on_s = columns
            ratios = (on / on_s) / (off / off_s)
            drawn = cls.weights(sessions, name="speed").astype(np.int64)
            return cls.estimate([np.median(np.repeat(ratios, own)) for own in drawn], len(timed))
        weights = cls.weights(sessions, name="speedup")
        off, off_s, on, on_s = (weights @ column for column in columns)
        return cls.estimate((on / on_s) / (off / off_s), len(timed))

    @staticmethod
    def weights(sessions: Sequence[str], *, name: str, resamples: int = RESAMPLES) -> Floats:
        """Return how often each item counts in each resample, float64 [resamples, items].

        Sessions are drawn with replacement and bring all their items, since turns of one
        conversation are not independent. The same `name` and sessions give the same weights, so
        that two drafters are compared on the same resamples. Row 0 counts every item once: the
        figure itself.
        """
        distinct = {session: index for index, session in enumerate(dict.fromkeys(sessions))}
        generator = np.random.default_rng([_SEED, *name.encode()])
        size = len(distinct)
        drawn = generator.multinomial(size, np.full(size, 1 / size), size=resamples - 1)
        drawn = np.concatenate((np.ones((1, size), dtype=drawn.dtype), drawn))
        of_item = [distinct[session] for session in sessions]
        return np.asarray(drawn[:, of_item], dtype=np.float64)

    @classmethod
    def estimate(cls, samples: Sequence[float] | Floats, pairs: int) -> Self:
        """Return a figure and its interval from its resamples, of which the first is the figure."""
        found = np.asarray(samples, dtype=np.float64)
        if not np.isfinite(found[0]):
            return cls(None, None, None, pairs)
        return cls(float(found[0]), *interval(found), pairs)

    def range_text(self, form: str) -> str:
        """Return the interval as text, its ends in this format; NOT_ENOUGH if there is none."""
        if self.low is None or self.high is None:
            return NOT_ENOUGH
        return f"{self.low:{form}}-{self.high:{form}}"


def interval(samples: Floats) -> Interval:
    """Return the 95 % percentile interval of a figure's resamples, without undefined ones."""
    finite = samples[np.isfinite(samples)]
    if not finite.size:
        return (float("nan"), float("nan"))
    low, high = np.percentile(finite, (_LOW, _HIGH))
    return (float(low), float(high))
