"""Findings from the figures of a report, each with advice."""

from collections.abc import Iterable, Iterator

from akunu_py.bench.speed_report import BASELINE
from akunu_py.diagnosis.advice import Finding, size, worst_first
from akunu_py.diagnosis.full.report import (
    NO_TIME,
    Costs,
    PartName,
    Prefill,
    Replies,
    Report,
    Rows,
    Speed,
)

TITLES: dict[PartName, str] = {
    "memory": "the memory that the model needs",
    "start": "the start of a process",
    "load": "loading the model",
    "rows": "the bits of rows",
    "prefill": "reading prompts",
    "costs": "the costs of passes",
    "greedy": "greedy replies",
    "speed": "the speed next to mlx-lm",
    "reproducible": "reproducible replies",
    "sampled": "sampled replies",
}

_REPORT = "Please report it: paste this page into an issue."
_SLOWER = 0.97
"""Least promised share of mlx-lm's speed where nothing can be copied."""
_BUSY = 0.5
"""Load per processor from which timings count as noisy."""


def conclusions(report: Report, known: Iterable[Finding]) -> list[Finding]:
    """Return the findings of a report, including those `known` of its machine; the worst first."""
    return worst_first(
        [
            *known,
            *_failures(report),
            *_texts(report),
            *_speed(report),
            *_memory(report),
            *_circumstances(report),
        ]
    )


def _failures(report: Report) -> Iterator[Finding]:
    for name, part in report.parts.items():
        if part.state != "failed":
            continue
        # Without the model there is no report; other parts may meet limits of the model.
        ends = name in {"memory", "load"}
        advice = _REPORT
        if part.refused:
            advice = f"The other parts {'need the model' if ends else 'are not affected'}."
        yield Finding(
            "warning" if part.refused and not ends else "error",
            f"{TITLES[name]} could not be measured: {part.note}",
            advice,
        )


def _texts(report: Report) -> Iterator[Finding]:
    rows = report.figures("rows", Rows)
    if rows is not None and not rows.equal:
        yield Finding(
            "note",
            "a row's logits depend on how many rows are in its pass: where two tokens are almost "
            "equally likely, drafting can change which one is chosen",
            "Where drafting must not change a token, give --reproducible.",
        )
    if rows is not None and rows.equal and rows.different_sizes:
        listed = ", ".join(map(str, rows.different_sizes))
        yield Finding(
            "error",
            f"rows seem to be bit-equal, and in passes of {listed} rows they are not: what replies "
            "say of them (row_bits) may be wrong",
            _REPORT,
        )
    if rows is not None and rows.reproducible_equal is False:
        yield Finding("error", "rows of reproducible passes are not bit-equal", _REPORT)
    for name in ("greedy", "sampled", "reproducible"):
        replies = report.figures(name, Replies)
        if replies is None or not replies.differences:
            continue
        promised = replies.reproducible or any(
            found.row_bits == "equal" for found in replies.differences
        )
        yield Finding(
            "error" if promised else "warning",
            f"drafting changed {len(replies.differences)} of {replies.prompts} {name} replies",
            _REPORT if promised else "Give --reproducible where drafting must not change a token.",
        )


def _speed(report: Report) -> Iterator[Finding]:
    speed = report.figures("speed", Speed)
    for arm in () if speed is None else speed.arms:
        if arm.ratio is None or arm.low is None or arm.high is None or arm.high >= _SLOWER:
            continue
        what = "plain decoding" if arm.arm == "none" else "decoding with drafts"
        yield Finding(
            "warning",
            f"{what} of {arm.category} prompts ran at {arm.ratio:.2f} ({arm.low:.2f} to "
            f"{arm.high:.2f}) times the speed of mlx-lm's loop",
            f"Let nothing else run and measure again. {_REPORT}",
        )


def _memory(report: Report) -> Iterator[Finding]:
    prefill = report.figures("prefill", Prefill)
    for length in () if prefill is None else prefill.lengths:
        if length.peak_bytes > length.foreseen_bytes:
            yield Finding(
                "warning",
                f"a prompt of {length.tokens:,} tokens took {size(length.peak_bytes)} of memory, "
                f"and {size(length.foreseen_bytes)} were foreseen",
                _REPORT,
            )


def _circumstances(report: Report) -> Iterator[Finding]:
    machine = report.machine
    if machine.load is not None and machine.load > _BUSY * machine.processors:
        yield Finding(
            "note",
            f"other programs were busy: a load of {machine.load:.1f} on {machine.processors} "
            "processors, so times are noisy",
            "For better figures let nothing else run.",
        )
    longer = f"Give more time: --minutes {report.limit_s / 20:.0f}."
    few = [TITLES[name] for name in ("costs", "speed") if _has_no_ratios(report, name)]
    if few:
        yield Finding(
            "note", f"there was no time for ratios with intervals: {', '.join(few)}", longer
        )
    late = [TITLES[name] for name, part in report.parts.items() if part.note == NO_TIME]
    if late:
        yield Finding("note", f"there was no time left for {', '.join(late)}", longer)


def _has_no_ratios(report: Report, name: PartName) -> bool:
    """Return whether a finished part has too few items for some ratio."""
    if report.parts[name].state != "measured":
        return False
    costs, speed = report.figures(name, Costs), report.figures(name, Speed)
    if costs is not None:
        return any(found.cost is None for found in costs.sizes)
    arms = () if speed is None else speed.arms
    return any(arm.ratio is None for arm in arms if arm.arm != BASELINE)
