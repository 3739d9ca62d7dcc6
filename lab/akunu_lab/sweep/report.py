"""The report of a sweep: figures, deterministic and timed, and tables."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from akunu_lab.replay.cells import AXES, PLAIN, Cell
from akunu_lab.replay.results import Cost, Figures, Results, cost_by_clock, cost_by_curve
from akunu_lab.replay.trace_drafters import drafts_by_curve
from akunu_lab.study.values import NOT_EXACT, Exactness
from akunu_lab.sweep.grid import varied
from akunu_lab.sweep.heat_map import HeatMap, choose_axes, make_heat_map
from akunu_lab.sweep.recommend import Recommendation, recommend
from akunu_lab.sweep.run import Sweep
from akunu_py.api import Column, Findings, Ratio, Table

_SHOWN = 12
"""Most rows of the table on the terminal, the fastest cells first."""

_EXACTNESS: Mapping[Exactness, str] = {
    "stream": "stream", "distribution": "law", "none": NOT_EXACT,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Report:
    """The figures of a sweep over all items, in plain decoding's units.

    `passes` are figures with the costs of the curve; `figures` are those that judge the sweep,
    which are the same in a replay. Both are empty before plain decoding and the default are
    finished.
    """

    sweep: Sweep
    figures: Mapping[Cell, Figures] = field(default_factory=dict)
    passes: Mapping[Cell, Figures] = field(default_factory=dict)
    heat_map: HeatMap | None = None
    recommendation: Recommendation | None = None

    @property
    def ranked(self) -> list[Cell]:
        """The cells, the fastest first; among equals the order of the grid."""
        return sorted(self.figures, key=lambda cell: -self.figures[cell].samples[0])

    def identical(self, cell: Cell) -> int | None:
        """Return the number of replies equal to plain decoding's; None if that is not required."""
        has_to = self.sweep.exactness(cell) == "stream"
        return self.figures[cell].identical if has_to else None

    @property
    def words(self) -> str:
        """What to do."""
        if self.recommendation is not None:
            return self.recommendation.words
        return (
            "No recommendation: it takes finished cells and sessions in both halves, one to choose "
            "by and one to judge by."
        )


def make_report(sweep: Sweep) -> Report:
    """Work out all figures. Raises ConfigError for a heat map of axes that are not varied."""
    options, counts = sweep.options, sweep.counts
    plan = options.plan
    axes = choose_axes(dict.fromkeys(plan.grid.cells, 1.0), options.heat_axes, plan.default.drafter)
    if not {PLAIN, plan.default} <= set(counts):
        return Report(sweep)

    def figures_by(cost: Cost) -> dict[Cell, Figures]:
        results = Results(sweep.traces, counts, cost)
        return {cell: found for cell in counts if (found := results.figures(cell)) is not None}

    by_curve = cost_by_curve(sweep.curve)
    cost = cost_by_clock if options.live else by_curve
    figures = figures_by(cost)
    eligible = set(sweep.eligible())
    # A map shows eligible cells, and others that are not exact because of its own axes.
    speeds = {
        cell: float(found.samples[0])
        for cell, found in figures.items()
        if cell in eligible or (cell.relaxed and set(cell.relaxed) <= set(axes or ()))
    }
    return Report(
        sweep,
        figures,
        figures_by(by_curve) if options.live else figures,
        make_heat_map(speeds, axes, plan.default.drafter)
        if axes and set(axes) <= set(varied(speeds))
        else None,
        recommend(
            sweep.traces, counts, cost, default=plan.default, own=plan.own, eligible=eligible
        ),
    )


def sweep_findings(report: Report) -> Findings:
    """Return the figures, tables and items of a sweep."""
    sweep = report.sweep
    return Findings(
        deterministic=deterministic_figures(report),
        timing=timing_figures(report),
        tables=make_tables(report),
        items=tuple(
            {
                "id": item.id if len(sweep.traces) == 1 else f"{name}: {item.id}",
                "category": item.category,
                "session": item.session,
                "half": item.half,
                "prompt_tokens": len(item.prompt),
                "output_tokens": len(item.output),
            }
            for name, items in sweep.traces.items()
            for item in items
        ),
        failures=tuple(sweep.failures),
        costs=sweep.costs,
        finished=sweep.finished,
    )


def deterministic_figures(report: Report) -> dict[str, object]:
    """Return the deterministic figures: counts, and speeds under a named curve.

    Cells whose drafts end by measured costs are left out.
    """
    sweep, measured = report.sweep, report.sweep.costs is not None
    digest = hashlib.sha256()
    for items in sweep.traces.values():
        for item in items:
            digest.update(f"{item.id} {item.prompt} {item.output}\n".encode())
    return {
        "total": {
            "items": sum(map(len, sweep.traces.values())),
            "output_tokens": sum(len(i.output) for items in sweep.traces.values() for i in items),
            "token_ids_sha256": digest.hexdigest(),
        },
        "costs": {} if measured else {"the curve": sweep.curve.by_rows},
        "cells": {
            cell.key: _counts(report, cell)
            for cell in report.figures
            if not _depends_on_costs(sweep, cell)
        },
        "recommended": None
        if sweep.options.live or measured or report.recommendation is None
        else report.recommendation.take.key,
    }


def _depends_on_costs(sweep: Sweep, cell: Cell) -> bool:
    if sweep.options.live:
        return cell.draft_length == "budget"
    return sweep.costs is not None and drafts_by_curve(cell.drafter)


def _counts(report: Report, cell: Cell) -> dict[str, object]:
    stats, sweep = report.figures[cell].stats, report.sweep
    return {
        "passes": stats.steps,
        "passes_with_draft": stats.steps_with_draft,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "tested": stats.tested,
        "output_tokens": stats.output_tokens,
        "tokens_per_pass": stats.tokens_per_pass,
        "hit_rate": stats.hit_rate,
        "identical": report.identical(cell),
        "normalised_speed": report.passes[cell].speed.ratio if sweep.costs is None else None,
    }


def timing_figures(report: Report) -> dict[str, object]:
    """Return the timed figures: speeds by measured costs or by the clock, and seconds."""
    found = report.recommendation
    return {
        "ratios": {}
        if found is None
        else {f"{found.best.key} over {cell.key}": one for cell, one in found.comparisons.items()},
        "recommended": None if found is None else found.take.key,
        "cells": {
            cell.key: {
                "exactness": report.sweep.exactness(cell),
                "speed": figures.speed,
                "normalised_speed": report.passes[cell].speed,
                "tokens_per_pass": figures.stats.tokens_per_pass,
                "drafter_s": figures.drafter_s,
                "decode_s": figures.decode_s,
            }
            for cell, figures in report.figures.items()
        },
    }


def make_tables(report: Report) -> tuple[Table, ...]:
    """Return the fastest cells, the recommendation, all cells and the heat map."""
    if not report.figures:
        return ()
    ranked = report.ranked
    shown = dict.fromkeys((*ranked[:_SHOWN], *report.sweep.options.plan.own.values()))
    kept = [cell for cell in ranked if cell in shown]
    tables = [
        _cells_table(report, kept, "fastest", "The fastest cells, and the drafters as they ship"),
        _recommendation_table(report),
        _cells_table(report, ranked, "cells", "All cells", detail=True),
        None if report.heat_map is None else report.heat_map.table(),
    ]
    return tuple(table for table in tables if table is not None)


def _cells_table(
    report: Report, cells: list[Cell], name: str, title: str, *, detail: bool = False
) -> Table:
    axes = [axis for axis in AXES if any(cell.setting(axis) is not None for cell in cells)]
    live = report.sweep.options.live
    columns = [
        Column("drafter", "drafter"),
        Column("speed", "speed", ".3f"),
        Column("speed_low", "low", ".3f"),
        Column("speed_high", "high", ".3f"),
        *(Column(axis, AXES[axis].short or AXES[axis].heading) for axis in axes),
        Column("fire_rate", "fire\nrate", ".0%", detail=True),
        Column("hit_rate", "hit\nrate", ".0%"),
        Column("alpha", "alpha", ".0%", detail=True),
        Column("drafted", "drafted", detail=True),
        Column("tokens_per_pass", "tok/\npass", ".2f"),
        Column("normalised_speed", "normal.\nspeed", ".3f", detail=not live),
        Column("us_a_pass", "us a\npass", ".0f", detail=live),
        Column("identical", "ident-\nical", detail=not live),
        Column("exactness", "exactness", detail=True),
    ]
    records = (
        {name: cell.setting(name) for name in ("drafter", *axes)} | _cell_record(report, cell)
        for cell in cells
    )
    note = "Speed 1 is plain decoding; low and high are a 95 % interval over sessions."
    return Table.of(name, title, columns, records, note=note, detail=detail)


def _cell_record(report: Report, cell: Cell) -> dict[str, object]:
    figures = report.figures[cell]
    exactness = report.sweep.exactness(cell)
    return {
        **figures.rates,
        "drafted": figures.stats.drafted,
        "normalised_speed": report.passes[cell].speed,
        "us_a_pass": figures.us_a_pass,
        "identical": NOT_EXACT if exactness == "none" else report.identical(cell),
        "exactness": _EXACTNESS[exactness],
    }


def _recommendation_table(report: Report) -> Table | None:
    found = report.recommendation
    if found is None:
        return None
    best, plan = found.best, report.sweep.options.plan
    roles = {
        best: "the cell",
        plan.own.get(best.drafter, best): "its drafter as it ships",
        PLAIN: "plain decoding",
        found.default: "the default",
    }
    if not best.is_exact:
        roles[best] = f"the cell, {NOT_EXACT}"
    elif roles[best] != "the cell":
        roles[best] = f"the cell; {roles[best]}"
    records = (
        {
            "role": roles[cell],
            "cell": cell.key,
            "speed": figures.speed,
            "best_against": _change(found.comparisons.get(cell)),
        }
        for cell, figures in found.figures.items()
    )
    columns = (
        Column("role", ""),
        Column("cell", "cell", detail=True),
        Column("speed", "speed", ".3f"),
        Column("speed_low", "low", ".3f", detail=True),
        Column("speed_high", "high", ".3f", detail=True),
        Column("best_against", "the cell\nagainst it", "+.1%"),
        Column("best_against_low", "low", "+.1%"),
        Column("best_against_high", "high", "+.1%"),
    )
    items = next(iter(found.figures.values())).items
    title = f"The cell that is best on half of the sessions, on the other half ({items} items)"
    return Table.of("recommendation", title, columns, records, note=report.words)


def _change(ratio: Ratio | None) -> Ratio | None:
    if ratio is None:
        return None
    low, middle, high = (
        None if end is None else end - 1 for end in (ratio.low, ratio.ratio, ratio.high)
    )
    return Ratio(middle, low, high, ratio.pairs)
