"""The figures of a cell over some items, with intervals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from akunu_py.bench.bootstrap import Floats, Ratio, estimate, mean_speed, session_weights
from akunu_py.bench.replay.runner import ItemCounts, ReplayItem
from akunu_py.lab.sweep.replayed import TraceOutcomes
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import DecodeStats

Traces = Mapping[str, Sequence[ReplayItem]]
Cost = Callable[[ItemCounts, ItemCounts], float]
"""The cost of an item in plain steps, from its counts and the counts of plain decoding."""


@dataclass(frozen=True, slots=True)
class CellFigures:
    """One cell over some items; rates are over all their passes and tokens.

    Attributes:
        items: their number.
        stats: the sum over the items.
        speed: tokens / cost, where plain decoding is 1; over traces the geometric mean.
        drafter_s: the drafter's seconds, added up.
        decode_s: seconds of decoding; None if nothing was decoded.
        identical: replies equal to plain decoding's; None if nothing was decoded.
        samples: the speed in each resample, [RESAMPLES].

    """

    items: int
    stats: DecodeStats
    speed: Ratio
    drafter_s: float
    decode_s: float | None
    identical: int | None
    samples: Floats = field(repr=False, compare=False)

    @property
    def us_a_pass(self) -> float:
        """The drafter's microseconds a pass."""
        return 1e6 * self.drafter_s / self.stats.steps


def compare(figures: CellFigures, other: CellFigures) -> Ratio:
    """Compare two cells on the same resamples of the same items."""
    return estimate(figures.samples / other.samples, figures.items)


def cost_by_curve(curve: CostCurve) -> Cost:
    """Return the cost of an item by a curve of costs."""
    return lambda counts, _plain: counts.cost(curve)


def cost_by_clock(counts: ItemCounts, plain: ItemCounts) -> float:
    """Return the time of an item, in units of a token of its plain reply."""
    assert counts.decode_s is not None  # noqa: S101 - of replies that were decoded
    assert plain.decode_s is not None  # noqa: S101
    return counts.decode_s / plain.decode_s * plain.stats.output_tokens


class Figures:
    """Figures of cells over the items of some traces.

    Args:
        traces: the items.
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
        speeds: list[tuple[Floats, Floats]] = []
        listed: list[ItemCounts] = []
        for name, picked in self._picked.items():
            here = [outcomes[name][index] for index in picked]
            listed += here
            costs = [cost(outcomes[name][index], plain[name][index]) for index in picked]
            weights = self._weights[name]
            tokens = np.array([float(counts.stats.output_tokens) for counts in here])
            speeds.append((weights @ tokens, weights @ np.array(costs)))
        samples = mean_speed(speeds)
        decoded = all(counts.decode_s is not None for counts in listed)
        return CellFigures(
            items=len(listed),
            stats=sum((counts.stats for counts in listed), DecodeStats()),
            speed=estimate(samples, len(listed)),
            drafter_s=sum(counts.drafter_s for counts in listed),
            decode_s=sum(counts.decode_s or 0.0 for counts in listed) if decoded else None,
            identical=sum(bool(counts.identical) for counts in listed) if decoded else None,
            samples=samples,
        )
