"""A comparison in figures: every arm under every curve, by category and overall."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from akunu_py.bench.replay.arms import not_replayable
from akunu_py.bench.replay.baseline import baselines
from akunu_py.bench.replay.jobs import Memory
from akunu_py.bench.replay.results import Figures, Ratio, Results, ratio


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
    against_best: Mapping[str, Ratio]
    against_best_of_trace: Mapping[str, Mapping[str, Ratio]]

    def to_dict(self) -> dict[str, object]:
        """Return everything as JSON-ready values."""
        return {
            "total": _dicts(self.total),
            "categories": {name: _dicts(arms) for name, arms in self.categories.items()},
            "traces": {name: _dicts(arms) for name, arms in self.traces.items()},
            "best_baseline": self.best_baseline,
            "against_best": {arm: item.to_dict() for arm, item in self.against_best.items()},
            "against_best_of_trace": {
                trace: {arm: item.to_dict() for arm, item in ratios.items()}
                for trace, ratios in self.against_best_of_trace.items()
            },
        }


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """A whole comparison; `not_replayable` names arms that were asked for in vain, and why."""

    tune: bool
    memory: Memory
    curves: Sequence[CurveReport]
    not_replayable: Mapping[str, str]

    def to_dict(self) -> dict[str, object]:
        """Return everything as JSON-ready values."""
        return {
            "tune": self.tune,
            "memory": self.memory,
            "curves": {report.curve: report.to_dict() for report in self.curves},
            "not_replayable": dict(self.not_replayable),
        }


def _dicts(arms: Mapping[str, Figures]) -> dict[str, object]:
    return {arm: figures.to_dict() for arm, figures in arms.items()}


def make_report(results: Results, arms: Sequence[str], *, memory: Memory) -> ReplayReport:
    """Work out all figures; `arms` gives their order, those not replayable among them."""
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
    of_trace: dict[str, dict[str, Ratio]] = {}
    for name, figures in traces.items():
        chosen = results.best_of_trace(curve, name)
        if chosen is None or not figures:
            continue
        baseline, index = chosen
        other = results.figures(baseline, curve, traces=[name], index=index)
        if other is not None:
            label = f"{baseline}@{other.limit}"
            of_trace[name] = {arm: ratio(figures[arm], other, label) for arm in own}
    return CurveReport(
        curve=curve,
        total=total,
        categories={name: _all(results, arms, curve, category=name) for name in categories},
        traces=traces,
        best_baseline=best,
        against_best={}
        if best is None
        else {arm: ratio(total[arm], total[best], f"{best}@{total[best].limit}") for arm in own},
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
    """Return the figures of all arms over a trace, a category or everything that is reported."""
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
