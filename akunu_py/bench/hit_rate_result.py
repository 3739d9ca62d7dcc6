"""A hit-rate run as a result: figures that repeat, figures that do not, and tables."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from akunu_py.bench import metrics
from akunu_py.bench.bootstrap import LEAST_SESSIONS
from akunu_py.bench.exactness import NOT_EXACT
from akunu_py.bench.measured_model import Model
from akunu_py.bench.metrics import NOT_ENOUGH, Speedup, TimedPair
from akunu_py.bench.report import HitRateReport, Outcome, Summary
from akunu_py.bench.result_file import BenchResult, Costs, Failure
from akunu_py.bench.tables import Cell, Column, Table
from akunu_py.models.traffic import MemoryTraffic

Figures = dict[str, object]

_COLUMNS = (
    Column("category", "category"),
    Column("prompts", "prompts", detail=True),
    Column("fire_rate", "fire\nrate", ".0%"),
    Column("hit_rate", "hit\nrate", ".0%"),
    Column("alpha", "alpha", ".0%", detail=True),
    Column("tokens_per_pass", "tokens\na pass", ".2f"),
    Column("tokens_per_pass_macro", "tokens a pass, macro", ".2f", detail=True),
    Column("mean_acceptance_vllm", "mean acceptance, vLLM", ".2f", detail=True),
    Column("mean_acceptance_spec_bench", "mean acceptance, Spec-Bench", ".2f", detail=True),
    Column("coverage", "coverage", ".0%", detail=True),
    Column("off_tokens_per_s", "off\ntok/s", ".1f"),
    Column("on_tokens_per_s", "on\ntok/s", ".1f"),
    Column("speedup", "speedup", ".2f", "x"),
    Column("speedup_range", "95 %"),
    Column("speedup_low", "speedup, low", ".2f", "x", detail=True),
    Column("speedup_high", "speedup, high", ".2f", "x", detail=True),
    Column("end_to_end", "end to end", ".2f", "x", detail=True),
    Column("end_to_end_range", "end to end, 95 %", detail=True),
    Column("end_to_end_low", "end to end, low", ".2f", "x", detail=True),
    Column("end_to_end_high", "end to end, high", ".2f", "x", detail=True),
    Column("normalised_speed", "normalised speed", ".2f", detail=True),
    Column("normalised_range", "normalised speed, 95 %", detail=True),
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


def hit_rate_result(
    report: HitRateReport,
    arguments: Mapping[str, object],
    *,
    draft_model: Model | None = None,
    failures: Sequence[Failure] = (),
) -> BenchResult:
    """Return a run as a result; `arguments` are the command's settled options.

    `failures` are those from before the run, of prompts that could not be read.

    Where the budget decides how much is drafted, counts of drafts depend on times: they are then
    under `timing`, as "drafting".
    """
    counted = _by_category(report, _drafting_figures)
    replies = _by_category(report, _reply_figures)
    timing: Figures = {"ratios": _ratios(report), **_by_category(report, _timing_figures)}
    if report.deterministic_passes:
        replies = _by_category(
            report, lambda item: {**_reply_figures(item), **_drafting_figures(item)}
        )
    else:
        timing["drafting"] = counted
    times, curve = report.times, report.curve
    if times is not None and times.traffic is not None:
        timing["roofline"] = _roofline_figures(report.outcomes, times.traffic)
    return BenchResult(
        command="hit-rate",
        arguments=arguments,
        environment=report.environment,
        model=report.model,
        draft_model=draft_model,
        costs=None if times is None or curve is None else Costs(times.unit_s, curve.points),
        deterministic={
            **replies,
            "token_hash": _token_hash(report.outcomes),
            "first_differences": {item.id: item.first_difference for item in report.differences},
        },
        timing=timing,
        tables=tuple(_tables(report)),
        items=tuple(item.to_dict() for item in report.outcomes),
        failures=(*failures, *report.failures),
        started=report.started,
        seconds=report.seconds,
        finished=report.finished,
    )


def speedup_line(report: HitRateReport) -> str:
    """Return the speedup of all prompts, with its interval, in a sentence."""
    decode, whole = report.total.decode, report.total.end_to_end
    if decode.ratio is None or whole.ratio is None:
        return f"Speedup of all: {NOT_ENOUGH}; an interval takes {LEAST_SESSIONS} sessions."
    return (
        f"Speedup of all: {decode.ratio:.2f}x, 95 % interval {decode.low:.2f}x to "
        f"{decode.high:.2f}x; prefill included {whole.ratio:.2f}x, {whole.low:.2f}x to "
        f"{whole.high:.2f}x."
    )


def roofline_line(report: HitRateReport) -> str:
    """Return what memory bandwidth allows plain decoding, in a sentence; "" if not measured."""
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

    `off_share` and `on_share` are what decoding reaches of it, without and with drafting. With
    drafting it may be above 1: a pass that brings several tokens reads the weights once.
    """

    tokens_per_s: float | None
    off_share: Speedup
    on_share: Speedup


def roofline(outcomes: Iterable[Outcome], traffic: MemoryTraffic) -> Roofline:
    """Return what memory bandwidth allows.

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
        "off_share": found.off_share.to_dict(),
        "on_share": found.on_share.to_dict(),
    }


def _by_category(report: HitRateReport, figures: Callable[[Summary], Figures]) -> Figures:
    return {
        "total": figures(report.total),
        "categories": {name: figures(item) for name, item in report.categories.items()},
    }


def _reply_figures(summary: Summary) -> Figures:
    """Return what the replies alone say, whatever was drafted."""
    return {
        "prompts": summary.num_prompts,
        "identical": summary.num_identical,
        "tokens": summary.on_tokens,
        "off_tokens": summary.off_tokens,
        "looping_share": summary.looping_share,
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
    }


def _timing_figures(summary: Summary) -> Figures:
    normalised = summary.normalised_speed
    return {
        "off_tokens_per_s": summary.off_tokens_per_s,
        "on_tokens_per_s": summary.on_tokens_per_s,
        "off_decode_s": summary.off_decode_s,
        "on_decode_s": summary.on_decode_s,
        "off_prefill_s": sum(item.off.prefill_s for item in summary.outcomes),
        "on_prefill_s": sum(item.on.prefill_s for item in summary.outcomes),
        "off_first_token_s": summary.median_first_token_s(drafting=False),
        "on_first_token_s": summary.median_first_token_s(drafting=True),
        "normalised_speed": None if normalised is None else normalised.to_dict(),
        "propose_s": summary.stats.propose_s,
        "target_s": summary.stats.target_s,
        "commit_s": summary.stats.commit_s,
    }


def _ratios(report: HitRateReport) -> Figures:
    found = {"decode": report.total.decode, "end_to_end": report.total.end_to_end}
    for name, summary in report.categories.items():
        found[f"decode/{name}"] = summary.decode
        found[f"end_to_end/{name}"] = summary.end_to_end
    return {name: ratio.to_dict() for name, ratio in found.items()}


def _token_hash(outcomes: Iterable[Outcome]) -> str:
    """Return the SHA-256 of all replies with drafting, by prompt."""
    replies = [[item.id, list(item.on.token_ids)] for item in outcomes]
    return hashlib.sha256(json.dumps(replies, separators=(",", ":")).encode()).hexdigest()


def _tables(report: HitRateReport) -> Iterable[Table]:
    total = report.total
    rows = [_row(name, item) for name, item in report.categories.items()]
    yield Table("hit_rate", "Hit rate by category", _COLUMNS, (*rows, _row("all", total)),
                total_rows=1)  # fmt: skip
    stats = total.stats
    conditional = metrics.conditional_acceptance(stats)
    shares = metrics.accepted_per_position(stats)
    counts = zip(
        stats.drafted_per_position, stats.accepted_per_position, shares, conditional, strict=False
    )
    positions = [(number, *cells) for number, cells in enumerate(counts, start=1)]
    yield Table("positions", "Acceptance by position in the draft", _POSITIONS, tuple(positions),
                detail=True)  # fmt: skip
    if report.differences:
        differing = [
            (item.id, item.first_difference, item.top2_margin) for item in report.differences
        ]
        yield Table("differences", "Replies that differ with drafting", _DIFFERENCES,
                    tuple(differing), detail=True)  # fmt: skip


def _row(name: str, summary: Summary) -> tuple[Cell, ...]:
    figures = {**_reply_figures(summary), **_drafting_figures(summary), **_timing_figures(summary)}
    decode, whole, normalised = summary.decode, summary.end_to_end, summary.normalised_speed
    cells: dict[str, object] = {
        **figures,
        "category": name,
        "speedup": decode.ratio,
        "speedup_range": decode.range_text(".2f"),
        "speedup_low": decode.low,
        "speedup_high": decode.high,
        "end_to_end": whole.ratio,
        "end_to_end_range": whole.range_text(".2f"),
        "end_to_end_low": whole.low,
        "end_to_end_high": whole.high,
        "normalised_speed": None if normalised is None else normalised.ratio,
        "normalised_range": None if normalised is None else normalised.range_text(".2f"),
        "off_first_token_ms": _milliseconds(summary.median_first_token_s(drafting=False)),
        "on_first_token_ms": _milliseconds(summary.median_first_token_s(drafting=True)),
        "identical": _identical(summary),
    }
    return tuple(_cell(cells[column.name]) for column in _COLUMNS)


def _identical(summary: Summary) -> str | None:
    if summary.num_identical is None:
        return NOT_EXACT if summary.exactness == "none" else None
    return f"{summary.num_identical}/{summary.num_prompts}"


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds


def _cell(value: object) -> Cell:
    assert value is None or isinstance(value, str | int | float)  # noqa: S101 - cells of _COLUMNS
    return value
