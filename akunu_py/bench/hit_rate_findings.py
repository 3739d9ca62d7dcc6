"""Figures of a hit-rate run, deterministic and timed, and its tables."""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence

from akunu_py.bench.bootstrap import LEAST_SESSIONS, NOT_ENOUGH
from akunu_py.bench.figures import ArmFigures
from akunu_py.bench.hit_rate import OFF, ON, HitRateFigures, HitRateReport
from akunu_py.bench.metrics import NOT_EXACT
from akunu_py.bench.result_file import Costs, Failure
from akunu_py.bench.rows import plain
from akunu_py.bench.run import Findings
from akunu_py.bench.runner import ItemReplies
from akunu_py.bench.source_table import source_table
from akunu_py.bench.tables import Column, Table
from akunu_py.values.decode_stats import source_figures

Figures = dict[str, object]

_COLUMNS = (
    Column("category", "category"),
    *Column.ratio("speedup", "speedup", ".2f", "x"),
    Column("off_tokens_per_s", "off\ntok/s", ".1f"),
    Column("on_tokens_per_s", "on\ntok/s", ".1f"),
    Column("prompts", "prompts", detail=True),
    Column("fire_rate", "fire\nrate", ".0%"),
    Column("hit_rate", "hit\nrate", ".0%"),
    Column("alpha", "alpha", ".0%", detail=True),
    Column("tokens_per_pass", "tokens\na pass", ".2f"),
    *Column.ratio("end_to_end", "end to end", ".2f", "x", detail=True),
    Column("off_first_token_ms", "first token off", ".1f", " ms", detail=True),
    Column("on_first_token_ms", "first token on", ".1f", " ms", detail=True),
    Column("looping_share", "loops", ".0%"),
    Column("identical", "same"),
)


def hit_rate_findings(report: HitRateReport, failures: Sequence[Failure] = ()) -> Findings:
    """Return the figures, tables and rows of a run; `failures` are those from before it.

    If the budget decides the length of drafts, the counts of drafts depend on times. On a device
    that rounds passes of different sizes differently, so do the tokens. All these figures are then
    in `timing`, as "drafting".
    """
    drafting: Figures = {
        **_by_category(report, lambda item: {**_reply_figures(item), **_drafting_figures(item)}),
        "token_hash": _token_hash(report.runs),
        "first_differences": {
            name: found.index for name, found in (report.differences or {}).items()
        },
    }
    timing: Figures = {"ratios": _ratios(report), **_by_category(report, _timing_figures)}
    deterministic = drafting
    if report.config.draft_budget != "always":
        deterministic = _by_category(report, _plain_figures)
        timing["drafting"] = drafting
    times = report.times
    return Findings(
        deterministic=deterministic,
        timing=timing,
        tables=tuple(_tables(report)),
        items=tuple(map(_item, report.runs)),
        failures=(*failures, *report.failures),
        costs=None if times is None else Costs(times.unit_s, {**times.costs, 1: 1.0}),
        finished=report.finished,
    )


def _item(run: ItemReplies) -> Figures:
    item = run.item
    return {
        "id": item.id,
        "category": item.category,
        "session": item.session,
        "turn": item.turn,
        "num_prompt_tokens": len(item.prompt),
        **plain(run.replies),
    }


def speedup_line(report: HitRateReport) -> str:
    """Return a sentence with the speedup over all prompts and its interval."""
    decode, whole = report.total.decode, report.total.end_to_end
    if decode.ratio is None or whole.ratio is None:
        return f"Speedup of all: {NOT_ENOUGH}; an interval takes {LEAST_SESSIONS} sessions."
    return (
        f"Speedup of all: {decode.ratio:.2f}x, 95 % interval {decode.low:.2f}x to "
        f"{decode.high:.2f}x; prefill included {whole.ratio:.2f}x, {whole.low:.2f}x to "
        f"{whole.high:.2f}x."
    )


def _by_category(report: HitRateReport, figures: Callable[[HitRateFigures], Figures]) -> Figures:
    return {
        "total": figures(report.total),
        "categories": {name: figures(item) for name, item in report.categories.items()},
    }


def _plain_figures(found: HitRateFigures) -> Figures:
    """Return the figures of the replies without drafting."""
    return {
        "prompts": len(found.runs),
        "off_tokens": found.off.tokens,
        "looping_share": found.off.looping_share,
    }


def _reply_figures(found: HitRateFigures) -> Figures:
    """Return the figures of the replies that do not depend on the drafts."""
    return {
        **_plain_figures(found),
        "identical": found.num_identical,
        "tokens": found.on.tokens,
    }


def _drafting_figures(found: HitRateFigures) -> Figures:
    stats = found.on.stats
    return {
        "passes": stats.steps,
        "passes_with_draft": stats.steps_with_draft,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "tested": stats.tested,
        "fire_rate": stats.fire_rate,
        "hit_rate": stats.hit_rate,
        "alpha": stats.alpha,
        "tokens_per_pass": stats.tokens_per_pass,
        "drafted_per_position": list(stats.drafted_per_position),
        "accepted_per_position": list(stats.accepted_per_position),
        "sources": source_figures(stats.sources),
    }


def _timing_figures(found: HitRateFigures) -> Figures:
    stats = found.on.stats
    return {
        **_arm_timing(OFF, found.off),
        **_arm_timing(ON, found.on),
        "propose_s": stats.propose_s,
        "target_s": stats.target_s,
        "commit_s": stats.commit_s,
    }


def _arm_timing(name: str, arm: ArmFigures) -> Figures:
    return {
        f"{name}_tokens_per_s": arm.tokens_per_s,
        f"{name}_decode_s": arm.decode_s,
        f"{name}_prefill_s": sum(reply.prefill_s or 0.0 for reply in arm.replies),
        f"{name}_first_token_s": arm.first_s,
    }


def _ratios(report: HitRateReport) -> Figures:
    found: Figures = {"decode": report.total.decode, "end_to_end": report.total.end_to_end}
    for name, summary in report.categories.items():
        found[f"decode/{name}"] = summary.decode
        found[f"end_to_end/{name}"] = summary.end_to_end
    return found


def _token_hash(runs: Iterable[ItemReplies]) -> str:
    """Return the SHA-256 of all replies with drafting, by prompt."""
    replies = [[run.item.id, list(run.replies[ON].token_ids)] for run in runs]
    return hashlib.sha256(json.dumps(replies, separators=(",", ":")).encode()).hexdigest()


def _tables(report: HitRateReport) -> Iterable[Table]:
    rows = [_row(name, item) for name, item in (*report.categories.items(), ("all", report.total))]
    if report.exactness == "none":
        rows = [{**row, "identical": NOT_EXACT} for row in rows]
    yield Table.of("hit_rate", "Hit rate by category", _COLUMNS, rows, total_rows=1)
    stats = report.total.on.stats
    yield source_table([(report.config.drafter or "", stats.sources, stats.output_tokens)])


def _row(name: str, found: HitRateFigures) -> Figures:
    same = found.num_identical
    return {
        **_reply_figures(found),
        **_drafting_figures(found),
        **_timing_figures(found),
        "category": name,
        "speedup": found.decode,
        "end_to_end": found.end_to_end,
        "off_first_token_ms": _milliseconds(found.off.first_s),
        "on_first_token_ms": _milliseconds(found.on.first_s),
        "identical": None if same is None else f"{same}/{len(found.runs)}",
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds
