"""Results of replays: figures of each arm over any items, with intervals."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from akunu_py.bench.bootstrap import Floats, Ratio, estimate, mean_speed, session_weights
from akunu_py.bench.replay.arms import not_replayable
from akunu_py.bench.replay.baseline import baselines
from akunu_py.bench.replay.jobs import JobResult, Memory, Trace
from akunu_py.bench.replay.runner import ItemCounts, ReplayItem
from akunu_py.bench.rows import Row
from akunu_py.values.cost_curve import CostCurve

TUNING_HALF, REPORTED_HALF = 0, 1

Chosen = Callable[[ReplayItem], bool]
"""Which items count."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One arm over some items under one curve; rates are over all their passes and tokens.

    `speed` is tokens / cost of the passes, over several traces the geometric mean; 1 is plain
    decoding. `us_a_pass` is the drafter's time in microseconds, without reading the prompt.
    Undefined rates are None. `samples` is the speed in each resample.
    """

    limit: int
    items: int
    tokens_per_pass: Ratio
    fire_rate: float
    hit_rate: float | None
    alpha: float | None
    mean_draft: float | None
    speed: Ratio
    us_a_pass: float
    samples: Floats = field(repr=False, compare=False)

    @property
    def repeating(self) -> dict[str, object]:
        """The figures that are the same in every run."""
        left_out = {"us_a_pass", "samples"}
        return {name: getattr(self, name) for name in self.__slots__ if name not in left_out}


class Against(Row, frozen=True):
    """The ratio of an arm's speed to that of `against`, on the same items."""

    speed: Ratio
    against: str


def compared(figures: Figures, other: Figures, against: str) -> Against:
    """Compare two arms on the same resamples of the same items."""
    return Against(estimate(figures.samples / other.samples, figures.items), against)


class Results:
    """The counts of all arms on all traces, and their figures.

    Args:
        traces: the items by trace.
        curves: by name; each figure is under one curve.
        results: of `run_jobs`.
        tune: whether each baseline gets the draft length that is best on the tuning half, and the
            other half is reported; otherwise every item is reported at the arm's own length.

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
        """The arms that have counts."""
        return tuple(dict.fromkeys(arm for arm, _, _ in self._results))

    def reported(self, item: ReplayItem) -> bool:
        """Return whether an item is reported."""
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

        `index` is the index of the draft length, by default of the best or only one.
        """
        if index is None:
            index = self.best_index(arm, curve)
        chosen = chosen or self.reported
        counts: list[ItemCounts] = []
        speeds: list[tuple[Floats, Floats]] = []
        passes: list[Floats] = []
        for name in traces or self.traces:
            picked = [i for i, item in enumerate(self.traces[name]) if chosen(item)]
            if not picked:
                continue
            here = [self._result(arm, curve, name).counts[index][i] for i in picked]
            counts += here
            weights = self._trace_weights(name)[:, picked]
            tokens = weights @ np.array([float(c.stats.output_tokens) for c in here])
            passes.append(weights @ np.array([float(c.stats.steps) for c in here]))
            speeds.append((tokens, weights @ self._cost(arm, curve, name, index)[picked]))
        if not counts:
            return None
        total = sum(counts, ItemCounts())
        samples = mean_speed(speeds)
        with np.errstate(invalid="ignore", divide="ignore"):
            per_pass = sum(tokens for tokens, _ in speeds) / sum(passes)
        stats = total.stats
        return Figures(
            limit=self.limits(arm, curve)[index],
            items=len(counts),
            tokens_per_pass=estimate(np.asarray(per_pass), len(counts)),
            fire_rate=stats.steps_with_draft / stats.steps,
            hit_rate=stats.hit_rate,
            alpha=stats.alpha,
            mean_draft=stats.drafted / stats.steps_with_draft if stats.steps_with_draft else None,
            speed=estimate(samples, len(counts)),
            us_a_pass=1e6 * (stats.propose_s + total.observe_s) / stats.steps,
            samples=samples,
        )

    def limits(self, arm: str, curve: str) -> tuple[int, ...]:
        """Return the draft lengths of an arm's replays."""
        return self._result(arm, curve, next(iter(self.traces))).limits

    def best_index(self, arm: str, curve: str, trace: str | None = None) -> int:
        """Return the index of the best draft length on the tuning half of one or all traces.

        Among equals the shortest length wins; an arm with one length has index 0.
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
        """Return the mean over the traces of the log speed on the tuning half."""
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
            arm: figures.samples[0]
            for arm in self.arms
            if arm in baselines() and (figures := self.figures(arm, curve)) is not None
        }
        return max(speeds, key=lambda arm: speeds[arm]) if speeds else None

    def best_of_trace(self, curve: str, trace: str) -> tuple[str, int] | None:
        """Return the baseline and the draft length that are best on one trace.

        Both are chosen on the tuning half if there is one, otherwise on the reported items.
        """
        speeds: dict[tuple[str, int], float] = {}
        for arm in self.arms:
            if arm in baselines():
                index = self.best_index(arm, curve, trace)
                if self.tune:
                    speeds[arm, index] = self._tuning_speed(arm, curve, [trace], index)
                elif (figures := self.figures(arm, curve, traces=[trace])) is not None:
                    speeds[arm, index] = figures.samples[0]
        return max(speeds, key=lambda key: speeds[key]) if speeds else None

    def _result(self, arm: str, curve: str, trace: str) -> JobResult:
        bound = self._results.get((arm, curve, trace))
        return self._results[arm, None, trace] if bound is None else bound

    def _trace_weights(self, name: str) -> Floats:
        if name not in self._weights:
            # Only reported items are resampled: the halves are separate samples.
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


@dataclass(frozen=True, slots=True)
class CurveReport:
    """All arms under one curve.

    `total` and the entries of `categories` and `traces` map an arm to its figures. `best_baseline`
    is the fastest over all reported items. `against_best` compares akunu's arms with it,
    `against_best_of_trace` with the baseline and draft length that are best on each trace.
    """

    curve: str
    total: Mapping[str, Figures]
    categories: Mapping[str, Mapping[str, Figures]]
    traces: Mapping[str, Mapping[str, Figures]]
    best_baseline: str | None
    against_best: Mapping[str, Against]
    against_best_of_trace: Mapping[str, Mapping[str, Against]]


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """A whole comparison; `not_replayable` maps requested arms to the reason they are left out."""

    tune: bool
    memory: Memory
    curves: Sequence[CurveReport]
    not_replayable: Mapping[str, str]


def make_report(results: Results, arms: Sequence[str], *, memory: Memory) -> ReplayReport:
    """Compute all figures; `arms` gives the order, including arms that cannot be replayed."""
    order = [arm for arm in arms if not_replayable(arm) is None]
    return ReplayReport(
        tune=results.tune,
        memory=memory,
        curves=[_curve_report(results, order, curve) for curve in results.curves],
        not_replayable={arm: reason for arm in arms if (reason := not_replayable(arm)) is not None},
    )


def _curve_report(results: Results, arms: Sequence[str], curve: str) -> CurveReport:
    total = _all(results, arms, curve)
    traces = {name: _all(results, arms, curve, trace=name) for name in results.traces}
    categories = dict.fromkeys(item.category for items in results.traces.values() for item in items)
    best = results.best_baseline(curve)
    own = [arm for arm in total if arm not in baselines()]
    of_trace: dict[str, dict[str, Against]] = {}
    for name, figures in traces.items():
        chosen = results.best_of_trace(curve, name)
        if chosen is None or not figures:
            continue
        baseline, index = chosen
        other = results.figures(baseline, curve, traces=[name], index=index)
        if other is not None:
            label = f"{baseline}@{other.limit}"
            of_trace[name] = {arm: compared(figures[arm], other, label) for arm in own}
    return CurveReport(
        curve=curve,
        total=total,
        categories={name: _all(results, arms, curve, category=name) for name in categories},
        traces=traces,
        best_baseline=best,
        against_best={}
        if best is None
        else {arm: compared(total[arm], total[best], f"{best}@{total[best].limit}") for arm in own},
        against_best_of_trace=of_trace,
    )


def _all(
    results: Results,
    arms: Sequence[str],
    curve: str,
    *,
    trace: str | None = None,
    category: str | None = None,
) -> dict[str, Figures]:
    """Return the figures of all arms over a trace, a category or all reported items."""
    figures = (
        results.figures(
            arm,
            curve,
            lambda item: results.reported(item) and category in {None, item.category},
            None if trace is None else [trace],
        )
        for arm in arms
    )
    return {arm: item for arm, item in zip(arms, figures, strict=True) if item is not None}
