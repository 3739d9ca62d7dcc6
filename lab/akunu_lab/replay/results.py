"""Figures of cells over any items, with intervals, and comparisons of two cells."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from akunu_lab.replay.cells import PLAIN, Cell
from akunu_lab.replay.runner import ItemCounts, ReplayItem
from akunu_lab.replay.trace_replays import Counts, Traces
from akunu_py.api import CostCurve, DecodeStats, Ratio

Floats = NDArray[np.float64]

TUNING_HALF, REPORTED_HALF = 0, 1

Chosen = Callable[[ReplayItem], bool]
"""Which items count."""

Cost = Callable[[ItemCounts, ItemCounts | None], float]
"""The cost of an item in plain steps, from its counts and plain decoding's, if there are any."""


def cost_by_curve(curve: CostCurve) -> Cost:
    """Return the cost of an item by a curve of costs."""
    return lambda counts, _plain: counts.cost(curve)


def cost_by_clock(counts: ItemCounts, plain: ItemCounts | None) -> float:
    """Return the time of an item, in units of a token of its plain reply."""
    assert plain is not None  # noqa: S101 - plain decoding is a cell of what is decoded
    assert counts.decode_s is not None  # noqa: S101
    assert plain.decode_s is not None  # noqa: S101
    return counts.decode_s / plain.decode_s * plain.stats.output_tokens


@dataclass(frozen=True, slots=True)
class Figures:
    """One cell over some items; rates are over all their passes and tokens.

    `speed` is tokens / cost of the passes, over several traces the geometric mean; 1 is plain
    decoding. `samples` is the speed in each resample.
    """

    items: int
    stats: DecodeStats
    tokens_per_pass: Ratio
    speed: Ratio
    drafter_s: float
    """The drafter's seconds, without reading the prompt."""
    decode_s: float | None
    """None if nothing was decoded."""
    identical: int | None
    """Replies equal to plain decoding's; None if nothing was decoded."""
    samples: Floats = field(repr=False, compare=False)

    @property
    def us_a_pass(self) -> float:
        """The drafter's microseconds a pass."""
        return 1e6 * self.drafter_s / self.stats.steps

    @property
    def rates(self) -> dict[str, object]:
        """The figures that are the same in every run, by their names in tables."""
        stats = self.stats
        return {
            "items": self.items,
            "tokens_per_pass": self.tokens_per_pass,
            "fire_rate": stats.fire_rate,
            "hit_rate": stats.hit_rate,
            "alpha": stats.alpha,
            "mean_draft": stats.drafted / stats.steps_with_draft
            if stats.steps_with_draft
            else None,
            "speed": self.speed,
        }


def compare(figures: Figures, other: Figures) -> Ratio:
    """Compare two cells on the same resamples of the same items."""
    return Ratio.estimate(figures.samples / other.samples, figures.items)


class Results:
    """The counts of cells on all items of some traces, under one cost.

    `resampled` are the items that intervals are over: halves are separate samples.
    """

    def __init__(
        self, traces: Traces, counts: Counts, cost: Cost, resampled: Chosen = lambda _item: True
    ) -> None:
        self._traces = traces
        self._counts = counts
        self._cost = cost
        self._resampled = resampled
        self._weights: dict[str, Floats] = {}
        self._costs: dict[tuple[Cell, str], Floats] = {}

    def log_speed(self, cell: Cell, chosen: Chosen, traces: Iterable[str] = ()) -> float:
        """Return the mean over the traces of the log speed on the chosen items; 0 without any."""
        logs: list[float] = []
        for name in traces or self._traces:
            picked = self._picked(name, chosen)
            if picked:
                tokens = sum(self._counts[cell][name][i].stats.output_tokens for i in picked)
                logs.append(math.log(tokens / float(self._item_costs(cell, name)[picked].sum())))
        return sum(logs) / len(logs) if logs else 0.0

    def figures(
        self, cell: Cell, chosen: Chosen | None = None, traces: Iterable[str] = ()
    ) -> Figures | None:
        """Return a cell's figures over the chosen ones of the resampled items; None without any."""
        found: list[ItemCounts] = []
        speeds: list[tuple[Floats, Floats]] = []
        passes: list[Floats] = []
        for name in traces or self._traces:
            picked = self._picked(name, chosen, self._resampled)
            if not picked:
                continue
            here = [self._counts[cell][name][i] for i in picked]
            found += here
            weights = self._trace_weights(name)[:, picked]
            tokens = weights @ np.array([float(item.stats.output_tokens) for item in here])
            passes.append(weights @ np.array([float(item.stats.steps) for item in here]))
            speeds.append((tokens, weights @ self._item_costs(cell, name)[picked]))
        if not found:
            return None
        samples = _mean_speed(speeds)
        with np.errstate(invalid="ignore", divide="ignore"):
            per_pass = np.asarray(sum(tokens for tokens, _ in speeds) / sum(passes))
        decoded = all(item.decode_s is not None for item in found)
        return Figures(
            items=len(found),
            stats=sum((item.stats for item in found), DecodeStats()),
            tokens_per_pass=Ratio.estimate(per_pass, len(found)),
            speed=Ratio.estimate(samples, len(found)),
            drafter_s=sum(item.drafter_s for item in found),
            decode_s=sum(item.decode_s or 0.0 for item in found) if decoded else None,
            identical=sum(bool(item.identical) for item in found) if decoded else None,
            samples=samples,
        )

    def _picked(self, name: str, *chosen: Chosen | None) -> list[int]:
        tests = [test for test in chosen if test is not None]
        items = enumerate(self._traces[name])
        return [index for index, item in items if all(test(item) for test in tests)]

    def _trace_weights(self, name: str) -> Floats:
        if name not in self._weights:
            items, resampled = self._traces[name], self._picked(name, self._resampled)
            weights = Ratio.weights([items[i].session for i in resampled], name=name)
            self._weights[name] = np.zeros((len(weights), len(items)))
            self._weights[name][:, resampled] = weights
        return self._weights[name]

    def _item_costs(self, cell: Cell, name: str) -> Floats:
        if (cell, name) not in self._costs:
            counts = self._counts[cell][name]
            plain = self._counts[PLAIN][name] if PLAIN in self._counts else [None] * len(counts)
            self._costs[cell, name] = np.array(list(map(self._cost, counts, plain)))
        return self._costs[cell, name]


def _mean_speed(traces: Iterable[tuple[Floats, Floats]]) -> Floats:
    """Return the geometric mean over traces of tokens / cost, both given for each resample."""
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = [np.log(tokens / cost) for tokens, cost in traces]
        return np.asarray(np.exp(np.mean(logs, axis=0)))
