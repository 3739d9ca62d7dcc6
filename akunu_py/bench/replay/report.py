"""Figures of a replay, deterministic and timed, and its tables."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence

from akunu_py.bench.replay.jobs import JobResult, Trace
from akunu_py.bench.replay.results import CurveReport, Figures, ReplayReport
from akunu_py.bench.result_file import Failure
from akunu_py.bench.run import Findings
from akunu_py.bench.tables import Column, Table, ratio_columns, table_of
from akunu_py.values.cost_curve import CostCurve

_COLUMNS = (
    Column("drafter", "drafter"),
    *ratio_columns("speed", "speed", ".3f", range_form=".2f"),
    Column("up_to", "up\nto"),
    Column("fire_rate", "fire\nrate", ".0%"),
    Column("hit_rate", "hit\nrate", ".0%"),
    Column("alpha", "alpha", ".0%"),
    Column("mean_draft", "mean\ndraft", ".1f"),
    *ratio_columns("tokens_per_pass", "tok/\npass", ".2f"),
    Column("us_a_pass", "us a\npass", ".0f"),
)


def replay_findings(
    report: ReplayReport,
    jobs: Iterable[JobResult],
    *,
    by: str,
    hashes: Mapping[str, str],
    costs: Mapping[str, CostCurve],
    failures: Sequence[Failure] = (),
    finished: bool = True,
) -> Findings:
    """Return the figures, tables and rows of a replay.

    Args:
        report: its figures.
        jobs: the replayed jobs, each of one arm on one trace.
        by: grouping of the tables, "category" or "trace".
        hashes: of `content_hashes`.
        costs: the curves, by name.
        failures: lines and items of the traces that could not be used.
        finished: False after an interrupt; arms that lack a trace are then left out.

    """
    return Findings(
        deterministic={
            "hashes": hashes,
            "costs": {name: curve.by_rows for name, curve in costs.items()},
            "curves": {curve.curve: _repeating(curve) for curve in report.curves},
            "not_replayable": report.not_replayable,
        },
        timing={
            "us_a_pass": {
                curve.curve: {arm: figures.us_a_pass for arm, figures in curve.total.items()}
                for curve in report.curves
            },
        },
        tables=tuple(_tables(report, by)),
        items=tuple(_job_items(jobs)),
        failures=tuple(failures),
        finished=finished,
    )


def _repeating(curve: CurveReport) -> dict[str, object]:
    def each(arms: Mapping[str, Figures]) -> dict[str, object]:
        return {arm: figures.repeating for arm, figures in arms.items()}

    return {
        "total": each(curve.total),
        "categories": {name: each(arms) for name, arms in curve.categories.items()},
        "traces": {name: each(arms) for name, arms in curve.traces.items()},
        "best_baseline": curve.best_baseline,
        "against_best": curve.against_best,
        "against_best_of_trace": curve.against_best_of_trace,
    }


def content_hashes(traces: Mapping[str, Trace], curves: Mapping[str, CostCurve]) -> dict[str, str]:
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


def comparisons(report: ReplayReport) -> list[str]:
    """Return a line for each of akunu's drafters against the best baselines."""
    lines: list[str] = []
    for curve in report.curves:
        if len(report.curves) > 1 and curve.against_best:
            lines.append(f"{curve.curve}:")
        for arm, found in curve.against_best.items():
            lines.append(
                f"{arm}: {found.speed.change()} against {found.against}, the best baseline"
            )
            for trace, ratios in curve.against_best_of_trace.items():
                ours = ratios[arm]
                ratio, high = ours.speed.ratio, ours.speed.high
                if ratio is not None and high is not None and high < 1:
                    lines.append(
                        f"  behind on {trace}: {ratio - 1:+.1%} against {ours.against}, the "
                        "best baseline there"
                    )
    lines += (f"{arm}: not replayable; {why}" for arm, why in report.not_replayable.items())
    return lines


def _job_items(jobs: Iterable[JobResult]) -> Iterable[Mapping[str, object]]:
    ordered = sorted(jobs, key=lambda item: (item.job.trace, item.job.arm, item.job.curve or ""))
    for result in ordered:
        job = result.job
        curve = "" if job.curve is None else f" by {job.curve}"
        for limit, counts in zip(result.limits, result.counts, strict=True):
            yield {
                "id": f"{job.arm}@{limit} on {job.trace}{curve}",
                "category": job.trace,
                "drafter": job.arm,
                "curve": job.curve,
                "num_draft_tokens": limit,
                "replies": len(counts),
                "tokens": sum(item.stats.output_tokens for item in counts),
                "passes": sum(item.stats.steps for item in counts),
                "drafted": sum(item.stats.drafted for item in counts),
                "accepted": sum(item.stats.accepted for item in counts),
            }


def _tables(report: ReplayReport, by: str) -> Iterable[Table]:
    names: set[str] = set()
    for curve in report.curves:
        prefix = f"{curve.curve}: " if len(report.curves) > 1 else ""
        for group, arms in _groups(curve, by).items():
            if not arms:
                continue
            size = max(figures.items for figures in arms.values())
            name = _free_name(f"{curve.curve}-{group}", names)
            records = (
                {
                    **figures.repeating,
                    "drafter": arm,
                    "up_to": figures.limit,
                    "us_a_pass": figures.us_a_pass,
                }
                for arm, figures in arms.items()
            )
            yield table_of(name, f"{prefix}{group}, {size} items", _COLUMNS, records)


def _groups(curve: CurveReport, by: str) -> dict[str, Mapping[str, Figures]]:
    groups = curve.categories if by == "category" else curve.traces
    return {**groups, "all": curve.total}


def _free_name(text: str, taken: set[str]) -> str:
    """Return a unique name of a table, made from any text."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", text)[:80]
    name, number = plain, 1
    while name in taken:
        number += 1
        name = f"{plain}-{number}"
    taken.add(name)
    return name
