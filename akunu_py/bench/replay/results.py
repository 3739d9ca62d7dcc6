"""What the replays came to: each arm's figures over any choice of items, with intervals."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from akunu_py.bench.bootstrap import Floats, Interval, interval, session_weights
from akunu_py.bench.replay.baseline import baselines
from akunu_py.bench.replay.jobs import JobResult, Trace
from akunu_py.bench.replay.runner import ItemCounts, ReplayItem
from akunu_py.cost_curve import CostCurve

TUNING_HALF, REPORTED_HALF = 0, 1

Chosen = Callable[[ReplayItem], bool]
"""Which items count."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One arm over some items under one curve; rates are over all their passes and tokens.

    `speed` is tokens over the cost of the passes, of several traces the geometric mean; 1 is plain
    decoding. `us_a_pass` are the drafter's microseconds, the prompt's intake left out. Rates that
    do not exist are None, intervals are 95 %.
    """

    limit: int
    items: int
    tokens_per_pass: float
    tokens_per_pass_interval: Interval
    fire_rate: float
    hit_rate: float | None
    alpha: float | None
    mean_draft: float | None
    speed: float
    speed_interval: Interval
    us_a_pass: float
    samples: Floats = field(repr=False, compare=False)

    def to_dict(self) -> dict[str, object]:
        """Return the figures as JSON-ready values."""
        names = [name for name in self.__slots__ if name != "samples"]
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class Ratio:
    """One speed over another on the same items; below 1: slower. The interval is 95 %."""

    value: float
    interval: Interval
    against: str

    def to_dict(self) -> dict[str, object]:
        """Return the ratio as JSON-ready values."""
        return {"value": self.value, "interval": self.interval, "against": self.against}


def ratio(figures: Figures, other: Figures, against: str) -> Ratio:
    """Compare two arms on the same resamples of the same items."""
    samples = figures.samples / other.samples
    return Ratio(float(samples[0]), interval(samples), against)


class Results:
    """The counts of all arms on all traces, and the figures to be had from them.

    Args:
        traces: the items by trace.
        curves: by name; figures are under one of them.
        results: of `run_jobs`.
        tune: whether each baseline's draft length is the best on the tuning half and all is
            reported on the other; otherwise every item is reported at the arm's own length.

    """

    def __init__(
        self,
        traces: Mapping[str, Trace],
        curves: Mapping[str, CostCurve],
        results: Iterable[JobResult],
        *,
        tune: bool,
    ) -> None:
        self.traces = traces
        self.curves = curves
        self.tune = tune
        self._results: dict[tuple[str, str | None, str], JobResult] = {
            (result.job.arm, result.job.curve, result.job.trace): result for result in results
        }
        self._weights: dict[str, Floats] = {}
        self._costs: dict[tuple[str, str, str, int], Floats] = {}
        self._limits: dict[tuple[str, str, str | None], int] = {}

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms there are counts of."""
        return tuple(dict.fromkeys(arm for arm, _, _ in self._results))

    def reported(self, item: ReplayItem) -> bool:
        """Return whether an item is one of those reported."""
        return not self.tune or item.half == REPORTED_HALF

    def figures(
        self,
        arm: str,
        curve: str,
        chosen: Chosen | None = None,
        traces: Sequence[str] | None = None,
        index: int | None = None,
    ) -> Figures | None:
        """Return an arm's figures over the chosen items of some traces; None without any.

        `index` is that of the draft length; left out, it is the arm's best, or its only one.
        """
        if index is None:
            index = self.best_index(arm, curve)
        chosen = chosen or self.reported
        total = ItemCounts()
        logs: list[Floats] = []
        passes_samples: list[tuple[Floats, Floats]] = []
        size = 0
        for name in traces or self.traces:
            picked = [i for i, item in enumerate(self.traces[name]) if chosen(item)]
            if not picked:
                continue
            size += len(picked)
            counts = [self._result(arm, curve, name).counts[index][i] for i in picked]
            total = sum(counts, total)
            weights = self._trace_weights(name)[:, picked]
            tokens = weights @ np.array([float(c.stats.output_tokens) for c in counts])
            passes = weights @ np.array([float(c.stats.steps) for c in counts])
            with np.errstate(invalid="ignore", divide="ignore"):
                logs.append(
                    np.log(tokens / (weights @ self._cost(arm, curve, name, index)[picked]))
                )
            passes_samples.append((tokens, passes))
        if not size:
            return None
        with np.errstate(invalid="ignore", divide="ignore"):
            speeds = np.exp(np.mean(logs, axis=0))
            per_pass = sum(t for t, _ in passes_samples) / sum(p for _, p in passes_samples)
        stats = total.stats
        return Figures(
            limit=self.limits(arm, curve)[index],
            items=size,
            tokens_per_pass=stats.output_tokens / stats.steps,
            tokens_per_pass_interval=interval(np.asarray(per_pass)),
            fire_rate=stats.steps_with_draft / stats.steps,
            hit_rate=stats.hit_rate,
            alpha=stats.alpha,
            mean_draft=stats.drafted / stats.steps_with_draft if stats.steps_with_draft else None,
            speed=float(speeds[0]),
            speed_interval=interval(speeds),
            us_a_pass=1e6 * (stats.propose_s + total.observe_s) / stats.steps,
            samples=speeds,
        )

    def limits(self, arm: str, curve: str) -> tuple[int, ...]:
        """Return the draft lengths an arm was replayed with."""
        return self._result(arm, curve, next(iter(self.traces))).limits

    def best_index(self, arm: str, curve: str, trace: str | None = None) -> int:
        """Return which draft length is best on the tuning half, of one trace or of all.

        Of equal ones the shortest; an arm that was replayed with one length has that.
        """
        size = len(self.limits(arm, curve))
        if size == 1:
            return 0
        key = (arm, curve, trace)
        if key not in self._limits:
            names = list(self.traces) if trace is None else [trace]
            speeds = [self._tuning_speed(arm, curve, names, index) for index in range(size)]
            self._limits[key] = speeds.index(max(speeds))
        return self._limits[key]

    def _tuning_speed(self, arm: str, curve: str, names: Iterable[str], index: int) -> float:
        """Return the log of the speed on the tuning half: the mean over the traces."""
        logs: list[float] = []
        for name in names:
            picked = [i for i, item in enumerate(self.traces[name]) if item.half == TUNING_HALF]
            if picked:
                tokens = sum(len(self.traces[name][i].output) for i in picked)
                cost = float(self._cost(arm, curve, name, index)[picked].sum())
                logs.append(math.log(tokens / cost))
        return sum(logs) / len(logs) if logs else 0.0

    def best_baseline(self, curve: str) -> str | None:
        """Return the baseline that is fastest over the reported items; None without any."""
        speeds = {
            arm: figures.speed
            for arm in self.arms
            if arm in baselines() and (figures := self.figures(arm, curve)) is not None
        }
        return max(speeds, key=lambda arm: speeds[arm]) if speeds else None

    def best_of_trace(self, curve: str, trace: str) -> tuple[str, int] | None:
        """Return the baseline and the draft length that are best on one trace.

        Both are chosen on the tuning half where there is one to tune on, else on what is reported.
        """
        speeds: dict[tuple[str, int], float] = {}
        for arm in self.arms:
            if arm in baselines():
                index = self.best_index(arm, curve, trace)
                if self.tune:
                    speeds[arm, index] = self._tuning_speed(arm, curve, [trace], index)
                elif (figures := self.figures(arm, curve, traces=[trace])) is not None:
                    speeds[arm, index] = figures.speed
        return max(speeds, key=lambda key: speeds[key]) if speeds else None

    def _result(self, arm: str, curve: str, trace: str) -> JobResult:
        bound = self._results.get((arm, curve, trace))
        return self._results[arm, None, trace] if bound is None else bound

    def _trace_weights(self, name: str) -> Floats:
        if name not in self._weights:
            # Only reported items are resampled: the halves are samples of their own.
            items = self.traces[name]
            reported = [i for i, item in enumerate(items) if self.reported(item)]
            weights = session_weights([items[i].session for i in reported], name=name)
            full = np.zeros((len(weights), len(items)))
            full[:, reported] = weights
            self._weights[name] = full
        return self._weights[name]

    def _cost(self, arm: str, curve: str, trace: str, index: int) -> Floats:
        key = (arm, curve, trace, index)
        if key not in self._costs:
            counts = self._result(arm, curve, trace).counts[index]
            table = self.curves[curve]
            self._costs[key] = np.array([item.cost(table) for item in counts])
        return self._costs[key]
