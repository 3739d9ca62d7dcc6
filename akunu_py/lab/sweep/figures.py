"""The figures of a cell over some items, with intervals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from akunu_py.bench.bootstrap import Floats, Interval, interval, session_weights
from akunu_py.bench.replay.runner import ReplayItem
from akunu_py.cost_curve import CostCurve
from akunu_py.lab.sweep.outcomes import ItemOutcome
from akunu_py.lab.sweep.replayed import TraceOutcomes
from akunu_py.types import DecodeStats

Traces = Mapping[str, Sequence[ReplayItem]]
Cost = Callable[[ItemOutcome, ItemOutcome], float]
"""What an item cost in plain steps, from its outcome and that of plain decoding."""


@dataclass(frozen=True, slots=True)
class CellFigures:
    """One cell over some items; rates are over all their passes and tokens.

    Attributes:
        items: how many.
        stats: added up.
        speed: tokens over cost, 1 being plain decoding; of several traces the geometric mean.
        speed_interval: 95 %, sessions resampled.
        drafter_s: the drafter's seconds, added up.
        decode_s: seconds of decoding; None where nothing was decoded.
        identical: replies equal to those of plain decoding; None where nothing was decoded.
        samples: the speed and its resamples, [RESAMPLES].

    """

    items: int
    stats: DecodeStats
    speed: float
    speed_interval: Interval
    drafter_s: float
    decode_s: float | None
    identical: int | None
    samples: Floats = field(repr=False, compare=False)

    @property
    def us_a_pass(self) -> float:
        """The drafter's microseconds a pass."""
        return 1e6 * self.drafter_s / self.stats.steps


@dataclass(frozen=True, slots=True)
class Comparison:
    """One speed over another on the same items; the interval is 95 %."""

    ratio: float
    interval: Interval
    items: int

    @property
    def is_better(self) -> bool:
        """Whether it is above 1 beyond the interval."""
        return self.interval[0] > 1


def compare(figures: CellFigures, other: CellFigures) -> Comparison:
    """Compare two cells on the same resamples of the same items."""
    samples = figures.samples / other.samples
    return Comparison(float(samples[0]), interval(samples), figures.items)


def cost_by_curve(curve: CostCurve) -> Cost:
    """Return what an item cost by a curve of costs."""
    return lambda outcome, _plain: outcome.cost(curve)


def cost_by_clock(outcome: ItemOutcome, plain: ItemOutcome) -> float:
    """Return the seconds of an item, in seconds that a token of its plain reply took."""
    assert outcome.decode_s is not None  # noqa: S101 - of replies that were decoded
    assert plain.decode_s is not None  # noqa: S101
    return outcome.decode_s / plain.decode_s * plain.stats.output_tokens


class Figures:
    """Figures of cells over the items of some traces.

    Args:
        traces: the items; those of one half are figured by giving them alone.
        chosen: which items count.

    """

    def __init__(self, traces: Traces, chosen: Callable[[ReplayItem], bool]) -> None:
        self._picked = {
            name: [index for index, item in enumerate(items) if chosen(item)]
            for name, items in traces.items()
        }
        self._picked = {name: picked for name, picked in self._picked.items() if picked}
        self._weights = {
            name: session_weights([traces[name][i].session for i in picked], name=name)
            for name, picked in self._picked.items()
        }

    @property
    def num_items(self) -> int:
        """Return how many items count."""
        return sum(map(len, self._picked.values()))

    def of(self, outcomes: TraceOutcomes, plain: TraceOutcomes, cost: Cost) -> CellFigures:
        """Return a cell's figures; there must be an item."""
        logs: list[Floats] = []
        listed: list[ItemOutcome] = []
        for name, picked in self._picked.items():
            here = [outcomes[name][index] for index in picked]
            listed += here
            weights = self._weights[name]
            tokens = weights @ np.array([float(o.stats.output_tokens) for o in here])
            costs = weights @ np.array(
                [cost(outcomes[name][index], plain[name][index]) for index in picked]
            )
            logs.append(np.log(tokens / costs))
        speeds = np.exp(np.mean(logs, axis=0))
        decoded = all(outcome.decode_s is not None for outcome in listed)
        return CellFigures(
            items=len(listed),
            stats=sum((outcome.stats for outcome in listed), DecodeStats()),
            speed=float(speeds[0]),
            speed_interval=interval(speeds),
            drafter_s=sum(outcome.drafter_s for outcome in listed),
            decode_s=sum(outcome.decode_s or 0.0 for outcome in listed) if decoded else None,
            identical=sum(bool(outcome.identical) for outcome in listed) if decoded else None,
            samples=speeds,
        )
