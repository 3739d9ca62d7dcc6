"""A replay as a result: figures that repeat, the drafters' own times, and tables."""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from akunu_py.bench.environment import Environment
from akunu_py.bench.replay.jobs import JobResult, Trace
from akunu_py.bench.replay.report import CurveReport, ReplayReport
from akunu_py.bench.replay.results import Figures
from akunu_py.bench.result_file import BenchResult, Failure
from akunu_py.bench.tables import Cell, Column, Table
from akunu_py.cost_curve import CostCurve

_COLUMNS = (
    Column("drafter", "drafter"),
    Column("up_to", "up\nto"),
    Column("fire_rate", "fire\nrate", ".0%"),
    Column("hit_rate", "hit\nrate", ".0%"),
    Column("alpha", "alpha", ".0%"),
    Column("mean_draft", "mean\ndraft", ".1f"),
    Column("tokens_per_pass", "tok/\npass", ".2f"),
    Column("tokens_per_pass_range", "95 %"),
    Column("speed", "speed", ".3f"),
    Column("speed_range", "95 %"),
    Column("us_a_pass", "us a\npass", ".0f"),
)


def replay_result(
    report: ReplayReport,
    jobs: Iterable[JobResult],
    arguments: Mapping[str, object],
    *,
    by: str,
    hashes: Mapping[str, str],
    failures: Sequence[Failure] = (),
    started: str,
    seconds: float,
    finished: bool,
) -> BenchResult:
    """Return a replay as a result.

    Args:
        report: its figures.
        jobs: what was replayed, one arm on one trace each.
        arguments: the command's settled options.
        by: what the tables are divided by, "category" or "trace".
        hashes: of `content_hashes`.
        failures: lines and items of the traces that could not be used.
        started: when.
        seconds: how long it took.
        finished: False after an interrupt: then arms are left out that lack a trace.

    """
    return BenchResult(
        command="replay",
        arguments=arguments,
        environment=Environment.current(),
        deterministic={
            "hashes": dict(hashes),
            "curves": {
                curve.curve: _without_times(_finite(curve.to_dict())) for curve in report.curves
            },
            "not_replayable": dict(report.not_replayable),
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
        started=started,
        seconds=seconds,
        finished=finished,
    )


def content_hashes(traces: Mapping[str, Trace], curves: Mapping[str, CostCurve]) -> dict[str, str]:
    """Return SHA-256 of what is replayed: each trace's token ids, each curve's costs."""
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
    """Return, a line each, how akunu's drafters do against the best baselines."""
    lines: list[str] = []
    for curve in report.curves:
        if len(report.curves) > 1 and curve.against_best:
            lines.append(f"{curve.curve}:")
        for arm, ratio in curve.against_best.items():
            low, high = ratio.interval
            lines.append(
                f"{arm}: {ratio.value - 1:+.1%} ({low - 1:+.1%} to {high - 1:+.1%}) against "
                f"{ratio.against}, the best baseline"
            )
            for trace, ratios in curve.against_best_of_trace.items():
                ours = ratios[arm]
                if ours.interval[1] < 1:
                    lines.append(
                        f"  behind on {trace}: {ours.value - 1:+.1%} against {ours.against}, the "
                        "best baseline there"
                    )
    lines += (f"{arm}: not replayable; {why}" for arm, why in report.not_replayable.items())
    return lines


def _finite(value: object) -> object:
    """Return the value with None for numbers that are none, lists for tuples."""
    if isinstance(value, Mapping):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _without_times(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _without_times(v) for name, v in value.items() if name != "us_a_pass"}
    return value


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
            rows = tuple(_row(arm, figures) for arm, figures in arms.items())
            yield Table(name, f"{prefix}{group}, {size} items", _COLUMNS, rows)


def _groups(curve: CurveReport, by: str) -> dict[str, Mapping[str, Figures]]:
    groups = curve.categories if by == "category" else curve.traces
    return {**groups, "all": curve.total}


def _free_name(text: str, taken: set[str]) -> str:
    """Return a table's name of a text that may hold anything, another one each time."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", text)[:80]
    name, number = plain, 1
    while name in taken:
        number += 1
        name = f"{plain}-{number}"
    taken.add(name)
    return name


def _row(arm: str, figures: Figures) -> tuple[Cell, ...]:
    return (
        arm,
        figures.limit,
        figures.fire_rate,
        figures.hit_rate,
        figures.alpha,
        figures.mean_draft,
        figures.tokens_per_pass,
        _range(figures.tokens_per_pass_interval),
        figures.speed,
        _range(figures.speed_interval),
        figures.us_a_pass,
    )


def _range(interval: tuple[float, float]) -> str:
    low, high = interval
    return f"{low:.2f}-{high:.2f}" if math.isfinite(low) and math.isfinite(high) else "-"
