"""Figures with bootstrap intervals: sessions are resampled."""

from collections.abc import Iterable, Sequence

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


class Ratio(Row, frozen=True):
    """A sum over items divided by another, such as a speed by a speed, and its 95 % interval.

    `pairs` is the number of items. With too few of them all three numbers are None: a ratio of
    times is never given without an interval.
    """

    ratio: float | None
    low: float | None
    high: float | None
    pairs: Count

    def range_text(self, form: str) -> str:
        """Return the interval as text, its ends in this format; NOT_ENOUGH if there is none."""
        if self.low is None or self.high is None:
            return NOT_ENOUGH
        return f"{self.low:{form}}-{self.high:{form}}"

    @property
    def is_better(self) -> bool:
        """Whether the whole interval is above 1."""
        return self.low is not None and self.low > 1

    def change(self) -> str:
        """Return the difference from 1 as text: "+3.0% (-1.0% to +7.0%)"."""
        assert self.ratio is not None  # noqa: S101 - asked of ratios that exist
        text = f"{self.ratio - 1:+.1%}"
        if self.low is None or self.high is None:
            return f"{text} ({NOT_ENOUGH} for an interval)"
        return f"{text} ({self.low - 1:+.1%} to {self.high - 1:+.1%})"


def session_weights(sessions: Sequence[str], *, name: str, resamples: int = RESAMPLES) -> Floats:
    """Return how often each item counts in each resample, [resamples, items].

    Sessions are drawn with replacement and bring all their items, since turns of one conversation
    are not independent. The same `name` and sessions give the same weights, so that two drafters
    are compared on the same resamples. Row 0 counts every item once: the figure itself.
    """
    distinct = {session: index for index, session in enumerate(dict.fromkeys(sessions))}
    generator = np.random.default_rng([_SEED, *name.encode()])
    size = len(distinct)
    drawn = generator.multinomial(size, np.full(size, 1 / size), size=resamples - 1)
    drawn = np.concatenate((np.ones((1, size), dtype=drawn.dtype), drawn))
    of_item = [distinct[session] for session in sessions]
    return np.asarray(drawn[:, of_item], dtype=np.float64)


def interval(samples: Floats) -> Interval:
    """Return the 95 % percentile interval of a figure's resamples, without undefined ones."""
    finite = samples[np.isfinite(samples)]
    if not finite.size:
        return (float("nan"), float("nan"))
    low, high = np.percentile(finite, (_LOW, _HIGH))
    return (float(low), float(high))


def estimate(samples: Floats, pairs: int) -> Ratio:
    """Return a figure and its interval from its resamples, of which the first is the figure."""
    if not np.isfinite(samples[0]):
        return Ratio(None, None, None, pairs)
    return Ratio(float(samples[0]), *interval(samples), pairs)


def mean_speed(traces: Iterable[tuple[Floats, Floats]]) -> Floats:
    """Return the geometric mean over traces of tokens / cost, both given for each resample."""
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = [np.log(tokens / cost) for tokens, cost in traces]
        return np.asarray(np.exp(np.mean(logs, axis=0)))
