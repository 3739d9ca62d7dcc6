"""Findings from a report, each with advice."""

from collections.abc import Iterable, Iterator

from akunu_py.diagnosis.advice import Finding, worst_first
from akunu_py.diagnosis.full.parts import TITLES
from akunu_py.diagnosis.full.report import NO_TIME, REPORT_IT, FullReport


def conclusions(report: FullReport, known: Iterable[Finding]) -> list[Finding]:
    """Return the findings of a report, including those `known` of its machine; the worst first."""
    measured = [finding for _, figures in report.measured() for finding in figures.findings()]
    return worst_first([*known, *_failures(report), *measured, *_circumstances(report)])


def _failures(report: FullReport) -> Iterator[Finding]:
    for name, part in report.parts.items():
        if part.state != "failed":
            continue
        # Without the model there is no report; other parts may meet limits of the model.
        ends = name in {"memory", "load"}
        advice = REPORT_IT
        if part.refused:
            advice = f"The other parts {'need the model' if ends else 'are not affected'}."
        yield Finding(
            "warning" if part.refused and not ends else "error",
            f"{TITLES[name]} could not be measured: {part.note}",
            advice,
        )


def _circumstances(report: FullReport) -> Iterator[Finding]:
    longer = f"Give more time: --minutes {report.limit_s / 20:.0f}."
    few = [
        TITLES[name]
        for name, part in report.parts.items()
        if part.state == "measured" and part.figures is not None and part.figures.lacks_ratios()
    ]
    if few:
        yield Finding(
            "note", f"there was no time for ratios with intervals: {', '.join(few)}", longer
        )
    late = [TITLES[name] for name, part in report.parts.items() if part.note == NO_TIME]
    if late:
        yield Finding("note", f"there was no time left for {', '.join(late)}", longer)
