"""Figures of a replay, deterministic and timed, and its tables."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from akunu_lab.metrics import change_text
from akunu_lab.replay.baseline import baselines
from akunu_lab.replay.cells import Cell, default_cell
from akunu_lab.replay.results import (
    REPORTED_HALF,
    TUNING_HALF,
    Chosen,
    Figures,
    Results,
    compare,
    cost_by_curve,
)
from akunu_lab.replay.runner import ReplayItem
from akunu_lab.replay.trace_drafters import drafts_by_curve
from akunu_lab.replay.trace_replays import Counts, Traces
from akunu_py.api import Column, CostCurve, Ratio, Row, Table

LIMITS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 31, 40, 64)
"""The draft lengths that are tried for a baseline; 0 means no drafts."""

_COLUMNS = (
    Column("drafter", "drafter"),
    *Column.ratio("speed", "speed", ".3f", range_form=".2f"),
    Column("up_to", "up\nto"),
    Column("fire_rate", "fire\nrate", ".0%"),
    Column("hit_rate", "hit\nrate", ".0%"),
    Column("alpha", "alpha", ".0%"),
    Column("mean_draft", "mean\ndraft", ".1f"),
    *Column.ratio("tokens_per_pass", "tok/\npass", ".2f"),
    Column("us_a_pass", "us a\npass", ".0f"),
)


def replay_cells(drafters: Iterable[str], curves: Iterable[str], *, tune: bool) -> list[Cell]:
    """Return the cells of a replay: with `tune` each baseline has one for each of LIMITS."""
    cells: list[Cell] = []
    for name in drafters:
        own = default_cell(name)
        if tune and name in baselines():
            cells += (replace(own, num_draft_tokens=limit) for limit in LIMITS)
        elif drafts_by_curve(name):
            cells += (replace(own, curve=curve) for curve in curves)
        else:
            cells.append(own)
    return cells


class Against(Row, frozen=True):
    """The ratio of a drafter's speed to that of `against`, on the same items."""

    speed: Ratio
    against: str


Group = Mapping[str, tuple[Cell, Figures]]
"""Each drafter at its best length, with its figures over a group of items."""


@dataclass(frozen=True, slots=True)
class CurveReport:
    """All drafters under one curve, over all reported items, by category and by trace.

    `best_baseline` is the fastest over all reported items. `against_best` compares akunu's drafters
    with it, `against_best_of_trace` with the baseline and draft length that are best on each trace.
    """

    curve: str
    total: Group
    categories: Mapping[str, Group]
    traces: Mapping[str, Group]
    best_baseline: str | None
    against_best: Mapping[str, Against]
    against_best_of_trace: Mapping[str, Mapping[str, Against]]

    def record(self) -> dict[str, object]:
        """Return the figures that are the same in every run."""
        return {
            "total": _records(self.total),
            "categories": {name: _records(group) for name, group in self.categories.items()},
            "traces": {name: _records(group) for name, group in self.traces.items()},
            "best_baseline": self.best_baseline,
            "against_best": self.against_best,
            "against_best_of_trace": self.against_best_of_trace,
        }


def report_curve(
    name: str,
    curve: CostCurve,
    cells: Sequence[Cell],
    counts: Counts,
    traces: Traces,
    *,
    tune: bool,
) -> CurveReport:
    """Return the figures of the cells under a curve.

    With `tune` each baseline gets the draft length that is best on the tuning half, and the other
    half is reported. The baseline that is best on a trace is chosen likewise.
    """

    def tuning(item: ReplayItem) -> bool:
        return not tune or item.half == TUNING_HALF

    def reported(item: ReplayItem) -> bool:
        return not tune or item.half == REPORTED_HALF

    results = Results(traces, counts, cost_by_curve(curve), reported)

    def best_of(among: Iterable[Cell], names: Sequence[str] = ()) -> Cell:
        return max(among, key=lambda cell: results.log_speed(cell, tuning, names))

    lengths: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.curve in {"", name}:
            lengths.setdefault(cell.drafter, []).append(cell)
    best = {drafter: best_of(among) for drafter, among in lengths.items()}

    def group(chosen: Chosen | None = None, names: Sequence[str] = ()) -> Group:
        found = {drafter: results.figures(cell, chosen, names) for drafter, cell in best.items()}
        return {
            drafter: (best[drafter], figures)
            for drafter, figures in found.items()
            if figures is not None
        }

    total = group()
    by_trace = {trace: group(names=[trace]) for trace in traces}
    known = [drafter for drafter in total if drafter in baselines()]
    own = [drafter for drafter in total if drafter not in baselines()]

    def against(group: Group, cell: Cell, figures: Figures) -> dict[str, Against]:
        label = f"{cell.drafter}@{cell.num_draft_tokens}"
        return {drafter: Against(compare(group[drafter][1], figures), label) for drafter in own}

    fastest = max(known, key=lambda drafter: total[drafter][1].samples[0], default=None)
    of_trace: dict[str, dict[str, Against]] = {}
    for trace, found in by_trace.items():
        if found and known:
            cell = best_of((best_of(lengths[drafter], [trace]) for drafter in known), [trace])
            figures = results.figures(cell, traces=[trace])
            assert figures is not None  # noqa: S101 - other drafters have figures of this trace
            of_trace[trace] = against(found, cell, figures)
    categories = dict.fromkeys(item.category for items in traces.values() for item in items)
    return CurveReport(
        curve=name,
        total=total,
        categories={
            category: group(lambda item, category=category: item.category == category)  # type: ignore[misc]
            for category in categories
        },
        traces=by_trace,
        best_baseline=fastest,
        against_best={} if fastest is None else against(total, *total[fastest]),
        against_best_of_trace=of_trace,
    )


def _records(group: Group) -> dict[str, dict[str, object]]:
    return {
        drafter: {"limit": cell.num_draft_tokens, **figures.rates}
        for drafter, (cell, figures) in group.items()
    }


def content_hashes(traces: Traces, curves: Mapping[str, CostCurve]) -> dict[str, str]:
    """Return the SHA-256 of the inputs: each trace's token ids, each curve's costs."""
    contents: dict[str, object] = {
        f"trace {name}": [[item.id, item.session, item.prompt, item.output] for item in items]
        for name, items in traces.items()
    }
    contents |= {
        f"curve {name}": [sorted(curve.points.items()), curve.flat]
        for name, curve in curves.items()
    }
    return {
        name: hashlib.sha256(json.dumps(content).encode()).hexdigest()
        for name, content in contents.items()
    }


def comparison_lines(curves: Sequence[CurveReport]) -> list[str]:
    """Return a line for each of akunu's drafters against the best baselines."""
    lines: list[str] = []
    for curve in curves:
        if len(curves) > 1 and curve.against_best:
            lines.append(f"{curve.curve}:")
        for drafter, found in curve.against_best.items():
            lines.append(
                f"{drafter}: {change_text(found.speed)} against {found.against}, the best baseline"
            )
            for trace, ratios in curve.against_best_of_trace.items():
                ours = ratios[drafter]
                ratio, high = ours.speed.ratio, ours.speed.high
                if ratio is not None and high is not None and high < 1:
                    lines.append(
                        f"  behind on {trace}: {ratio - 1:+.1%} against {ours.against}, the "
                        "best baseline there"
                    )
    return lines


def replay_rows(counts: Counts) -> list[dict[str, object]]:
    """Return a row of sums for each cell on each trace."""
    found = [(trace, cell, items) for cell, on in counts.items() for trace, items in on.items()]
    found.sort(key=lambda row: (row[0], row[1].drafter, row[1].curve))
    return [
        {
            "id": f"{cell.drafter}@{cell.num_draft_tokens} on {trace}"
            + (f" by {cell.curve}" if cell.curve else ""),
            "category": trace,
            "drafter": cell.drafter,
            "curve": cell.curve or None,
            "num_draft_tokens": cell.num_draft_tokens,
            "replies": len(items),
            "tokens": sum(item.stats.output_tokens for item in items),
            "passes": sum(item.stats.steps for item in items),
            "drafted": sum(item.stats.drafted for item in items),
            "accepted": sum(item.stats.accepted for item in items),
        }
        for trace, cell, items in found
    ]


def replay_tables(curves: Sequence[CurveReport], by: str) -> tuple[Table, ...]:
    """Return a table for each curve and group, by "category" or "trace", and over all items."""
    tables: list[Table] = []
    names: set[str] = set()
    for curve in curves:
        prefix = f"{curve.curve}: " if len(curves) > 1 else ""
        groups = curve.categories if by == "category" else curve.traces
        for title, group in (*groups.items(), ("all", curve.total)):
            if not group:
                continue
            size = max(figures.items for _, figures in group.values())
            records = (
                {
                    **figures.rates,
                    "drafter": drafter,
                    "up_to": cell.num_draft_tokens,
                    "us_a_pass": figures.us_a_pass,
                }
                for drafter, (cell, figures) in group.items()
            )
            name = _free_name(f"{curve.curve}-{title}", names)
            tables.append(Table.of(name, f"{prefix}{title}, {size} items", _COLUMNS, records))
    return tuple(tables)


def _free_name(text: str, taken: set[str]) -> str:
    """Return a unique name of a table, made from any text."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", text)[:80]
    name, number = plain, 1
    while name in taken:
        number += 1
        name = f"{plain}-{number}"
    taken.add(name)
    return name
