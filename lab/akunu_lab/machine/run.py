"""The run of `akunu bench machine`: its parts within the planned time, and its findings."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from akunu_lab.machine.facts import MachineFacts
from akunu_lab.machine.parts import PARTS, TITLES, PlannedPart
from akunu_lab.machine.planning import CannotBeMeasuredError, PartRun, Subject
from akunu_lab.machine.privacy import Privacy
from akunu_lab.machine.report import (
    NO_TIME,
    REPORT_IT,
    Finding,
    FullReport,
    ReportPart,
    worst_first,
)
from akunu_py.api import AkunuError

_TOY = Finding(
    "note",
    "akunu-tiny is a toy: its figures say little of a real model",
    "Measure a real one: akunu models pull smollm2",
)


def conclusions(report: FullReport, facts: MachineFacts) -> list[Finding]:
    """Return the findings of a report, including those of its machine; the worst first."""
    found = [*facts.findings, *_failures(report)]
    for _, figures in report.measured():
        found += figures.findings()
    if report.model is not None and report.model.name == "akunu-tiny":
        found.append(_TOY)
    return worst_first([*found, *_circumstances(report)])


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


def run_full(
    path: Path,
    facts: MachineFacts,
    *,
    privacy: Privacy,
    keep: Callable[[FullReport], None],
    seconds: float,
    tell: Callable[[float], None] = lambda _seconds: None,
    clock: Callable[[], float] = time.perf_counter,
) -> FullReport:
    """Measure every part of the report for the model at `path`, in about `seconds`.

    A part that fails becomes a finding, and the next part follows. After an interrupt
    (KeyboardInterrupt) the report has the figures so far. `keep` gets the report before each part
    and at the end, so that it is on disk if the process is killed. `tell` gets the seconds that
    are over.
    """
    report = FullReport(
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        limit_s=seconds,
        machine=facts.machine,
        parts={plan.name: ReportPart() for plan in PARTS},
    )
    subject = Subject(path)
    began = clock()

    def keep_all() -> None:
        if subject.facts is not None:
            report.model = replace(subject.facts, name=privacy.clean(subject.facts.name))
        report.seconds = clock() - began
        report.findings = conclusions(report, facts)
        keep(report)

    try:
        for number, plan in enumerate(PARTS):
            left = seconds - (clock() - began)
            share = plan.share / sum(later.share for later in PARTS[number:])
            run = PartRun(max(0.0, left) * share, lambda: tell(clock() - began), clock)
            part = report.parts[plan.name]
            part.budget_s = run.seconds
            if plan.needs_model and subject.pace is None:
                part.state, part.note = "skipped", "the model was not loaded"
                continue
            if plan.needs_model and left <= 0:
                part.state, part.note = "skipped", NO_TIME
                continue
            part.state = "running"
            keep_all()
            run.tell()
            _measure_part(plan, subject, run, part, privacy)
        report.state = "finished"
    except KeyboardInterrupt:
        report.state = "interrupted"
        for part in report.parts.values():
            if part.state == "waiting":
                part.state, part.note = "skipped", "the run was interrupted"
    finally:
        if subject.engine is not None:
            subject.engine.close()
    keep_all()
    return report


def _measure_part(
    plan: PlannedPart, subject: Subject, run: PartRun, part: ReportPart, privacy: Privacy
) -> None:
    """Measure one part and note errors. Raises KeyboardInterrupt after an interrupt."""
    began = run.clock()
    try:
        part.figures = plan.measure(subject, run)
        part.state, part.note = "measured", run.note
    except CannotBeMeasuredError as reason:
        part.state, part.note = "skipped", str(reason)
    except KeyboardInterrupt:
        part.state, part.figures = "interrupted", run.so_far
        raise
    except Exception as error:  # noqa: BLE001 - any error is reported, and the other parts follow
        part.state, part.refused = "failed", isinstance(error, AkunuError)
        said = str(error) if part.refused else f"{type(error).__name__}: {error}"
        part.note = privacy.clean(said)
    finally:
        part.seconds = run.clock() - began
