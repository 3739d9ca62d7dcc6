"""Figures of a hit-rate run, deterministic and timed, and its tables."""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from akunu_py.bench import metrics
from akunu_py.bench.bootstrap import LEAST_SESSIONS, NOT_ENOUGH, Ratio
from akunu_py.bench.hit_rate_report import HitRateReport, Outcome, Summary
from akunu_py.bench.metrics import NOT_EXACT, TimedPair
from akunu_py.bench.result_file import Costs, Failure
from akunu_py.bench.run import Findings
from akunu_py.bench.source_table import source_table
from akunu_py.bench.tables import Column, Table, ratio_columns, table_of
from akunu_py.models.traffic import MemoryTraffic
from akunu_py.values.decode_stats import source_figures

Figures = dict[str, object]

_COLUMNS = (
    Column("category", "category"),
    *ratio_columns("speedup", "speedup", ".2f", "x"),
    Column("off_tokens_per_s", "off\ntok/s", ".1f"),
    Column("on_tokens_per_s", "on\ntok/s", ".1f"),
    Column("prompts", "prompts", detail=True),
    Column("fire_rate", "fire\nrate", ".0%"),
    Column("hit_rate", "hit\nrate", ".0%"),
    Column("alpha", "alpha", ".0%", detail=True),
    Column("tokens_per_pass", "tokens\na pass", ".2f"),
    Column("tokens_per_pass_macro", "tokens a pass, macro", ".2f", detail=True),
    Column("mean_acceptance_vllm", "mean acceptance, vLLM", ".2f", detail=True),
    Column("mean_acceptance_spec_bench", "mean acceptance, Spec-Bench", ".2f", detail=True),
    Column("coverage", "coverage", ".0%", detail=True),
    *ratio_columns("end_to_end", "end to end", ".2f", "x", detail=True),
    *ratio_columns("normalised_speed", "normalised speed", ".2f", detail=True),
    Column("off_first_token_ms", "first token off", ".1f", " ms", detail=True),
    Column("on_first_token_ms", "first token on", ".1f", " ms", detail=True),
    Column("looping_share", "loops", ".0%"),
    Column("identical", "same"),
)
_POSITIONS = (
    Column("position", "position"),
    Column("drafted", "drafted"),
    Column("accepted", "accepted"),
    Column("accepted_per_pass", "of passes with a draft", ".1%"),
    Column("conditional", "of those that accepted the one before", ".1%"),
)
_DIFFERENCES = (
    Column("id", "prompt"),
    Column("first_difference", "first token that differs"),
    Column("top2_margin", "margin of the likeliest there", ".2g"),
)


def hit_rate_findings(report: HitRateReport, failures: Sequence[Failure] = ()) -> Findings:
    """Return the figures, tables and rows of a run; `failures` are those from before it.

    If the budget decides the length of drafts, the counts of drafts depend on times. On a device
    that rounds passes of different sizes differently, so do the tokens. All these figures are then
    in `timing`, as "drafting".
    """
    drafting: Figures = {
        **_by_category(report, lambda item: {**_reply_figures(item), **_drafting_figures(item)}),
        "token_hash": _token_hash(report.outcomes),
        "first_differences": {item.id: item.first_difference for item in report.differences},
    }
    timing: Figures = {"ratios": _ratios(report), **_by_category(report, _timing_figures)}
    deterministic = drafting
    if not report.deterministic_passes:
        deterministic = _by_category(report, _plain_figures)
        timing["drafting"] = drafting
    times, curve = report.times, report.curve
    if times is not None and times.traffic is not None:
        timing["roofline"] = _roofline_figures(report.outcomes, times.traffic)
    return Findings(
        deterministic=deterministic,
        timing=timing,
        tables=tuple(_tables(report)),
        items=report.outcomes,
        failures=(*failures, *report.failures),
        costs=None if times is None or curve is None else Costs(times.unit_s, dict(curve.points)),
        finished=report.finished,
    )


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


def roofline_line(report: HitRateReport) -> str:
    """Return a sentence with the roofline of plain decoding; "" if it was not measured."""
    traffic = None if report.times is None else report.times.traffic
    if traffic is None:
        return ""
    found = roofline(report.outcomes, traffic)
    if found.tokens_per_s is None:
        return ""
    line = (
        f"Memory copies at {traffic.copy_bytes_per_s / 1e9:.1f} GB/s, which allows "
        f"{found.tokens_per_s:.0f} tokens/s of plain decoding"
    )
    share = found.off_share
    if share.ratio is None:
        return f"{line}."
    return f"{line}; it reaches {share.ratio:.0%} of that, 95 % interval {share.range_text('.0%')}."


@dataclass(frozen=True, slots=True)
class Roofline:
    """The speed that memory bandwidth allows plain decoding; None where nothing was decoded.

    `off_share` and `on_share` are the shares of it that decoding reaches, without and with
    drafting. With drafting the share may exceed 1: a pass for several tokens reads the weights
    once.
    """

    tokens_per_s: float | None
    off_share: Ratio
    on_share: Ratio


def roofline(outcomes: Iterable[Outcome], traffic: MemoryTraffic) -> Roofline:
    """Return the speed that memory bandwidth allows, and the shares that decoding reaches.

    A reply's steps read the cache at its mean length: the prompt and half of the reply.
    """
    off: list[TimedPair] = []
    on: list[TimedPair] = []
    for item in outcomes:
        session, size = item.session or item.id, len(item.off.token_ids)
        allowed_s = size / traffic.tokens_per_s(item.num_prompt_tokens + size / 2)
        for pairs, reply in ((off, item.off), (on, item.on)):
            made = len(reply.token_ids)
            pairs.append(TimedPair(session, size, allowed_s, made, reply.decode_s))
    allowed_s = sum(pair.off_s for pair in off)
    return Roofline(
        tokens_per_s=sum(pair.off_tokens for pair in off) / allowed_s if allowed_s else None,
        off_share=metrics.speedup(off),
        on_share=metrics.speedup(on),
    )


def _roofline_figures(outcomes: Iterable[Outcome], traffic: MemoryTraffic) -> Figures:
    found = roofline(outcomes, traffic)
    return {
        "copy_bytes_per_s": traffic.copy_bytes_per_s,
        "weight_bytes": traffic.weight_bytes,
        "cache_bytes_per_token": sum(part.per_token for part in traffic.caches),
        "tokens_per_s": found.tokens_per_s,
        "off_share": found.off_share,
        "on_share": found.on_share,
    }


def _by_category(report: HitRateReport, figures: Callable[[Summary], Figures]) -> Figures:
    return {
        "total": figures(report.total),
        "categories": {name: figures(item) for name, item in report.categories.items()},
    }


def _plain_figures(summary: Summary) -> Figures:
    """Return the figures of the replies without drafting."""
    return {
        "prompts": summary.num_prompts,
        "off_tokens": summary.off_tokens,
        "looping_share": summary.looping_share,
    }


def _reply_figures(summary: Summary) -> Figures:
    """Return the figures of the replies that do not depend on the drafts."""
    return {
        **_plain_figures(summary),
        "identical": summary.num_identical,
        "tokens": summary.on_tokens,
    }


def _drafting_figures(summary: Summary) -> Figures:
    stats = summary.stats
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
        "tokens_per_pass_macro": metrics.tokens_per_pass_macro(
            item.on.stats for item in summary.outcomes
        ),
        "mean_acceptance_vllm": metrics.mean_acceptance_vllm(stats),
        "mean_acceptance_spec_bench": metrics.mean_acceptance_spec_bench(stats),
        "coverage": metrics.coverage(stats),
        "drafted_per_position": list(stats.drafted_per_position),
        "accepted_per_position": list(stats.accepted_per_position),
        "accepted_per_pass": list(metrics.accepted_per_pass(summary.passes)),
        "sources": source_figures(stats.sources),
    }


def _timing_figures(summary: Summary) -> Figures:
    return {
        "off_tokens_per_s": summary.off_tokens_per_s,
        "on_tokens_per_s": summary.on_tokens_per_s,
        "off_decode_s": summary.off_decode_s,
        "on_decode_s": summary.on_decode_s,
        "off_prefill_s": sum(item.off.prefill_s for item in summary.outcomes),
        "on_prefill_s": sum(item.on.prefill_s for item in summary.outcomes),
        "off_first_token_s": summary.median_first_token_s(drafting=False),
        "on_first_token_s": summary.median_first_token_s(drafting=True),
        "normalised_speed": summary.normalised_speed,
        "propose_s": summary.stats.propose_s,
        "target_s": summary.stats.target_s,
        "commit_s": summary.stats.commit_s,
    }


def _ratios(report: HitRateReport) -> Figures:
    found: Figures = {"decode": report.total.decode, "end_to_end": report.total.end_to_end}
    for name, summary in report.categories.items():
        found[f"decode/{name}"] = summary.decode
        found[f"end_to_end/{name}"] = summary.end_to_end
    return found


def _token_hash(outcomes: Iterable[Outcome]) -> str:
    """Return the SHA-256 of all replies with drafting, by prompt."""
    replies = [[item.id, list(item.on.token_ids)] for item in outcomes]
    return hashlib.sha256(json.dumps(replies, separators=(",", ":")).encode()).hexdigest()


def _tables(report: HitRateReport) -> Iterable[Table]:
    rows = [_row(name, item) for name, item in (*report.categories.items(), ("all", report.total))]
    yield table_of("hit_rate", "Hit rate by category", _COLUMNS, rows, total_rows=1)
    stats = report.total.stats
    yield source_table([(report.config.drafter or "", stats.sources, stats.output_tokens)])
    shares = metrics.accepted_per_position(stats)
    counts = zip(
        stats.drafted_per_position, stats.accepted_per_position, shares,
        metrics.conditional_acceptance(stats), strict=False,
    )  # fmt: skip
    positions = tuple((number, *cells) for number, cells in enumerate(counts, start=1))
    title = "Acceptance by position in the draft"
    yield Table("positions", title, _POSITIONS, positions, detail=True)
    if report.differences:
        differing = tuple(
            (item.id, item.first_difference, item.top2_margin) for item in report.differences
        )
        title = "Replies that differ with drafting"
        yield Table("differences", title, _DIFFERENCES, differing, detail=True)


def _row(name: str, summary: Summary) -> Figures:
    return {
        **_reply_figures(summary),
        **_drafting_figures(summary),
        **_timing_figures(summary),
        "category": name,
        "speedup": summary.decode,
        "end_to_end": summary.end_to_end,
        "off_first_token_ms": _milliseconds(summary.median_first_token_s(drafting=False)),
        "on_first_token_ms": _milliseconds(summary.median_first_token_s(drafting=True)),
        "identical": _identical(summary),
    }


def _identical(summary: Summary) -> str | None:
    if summary.num_identical is None:
        return NOT_EXACT if summary.exactness == "none" else None
    return f"{summary.num_identical}/{summary.num_prompts}"


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds
