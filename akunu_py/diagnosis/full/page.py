"""The report as a Markdown page that explains each figure."""

from collections.abc import Iterator
from itertools import groupby

from akunu_py.bench.bootstrap import LEAST_SESSIONS
from akunu_py.bench.tables import Table
from akunu_py.diagnosis.full.parts import TITLES
from akunu_py.diagnosis.full.privacy import without_paths
from akunu_py.diagnosis.full.record_tables import description, record_tables
from akunu_py.diagnosis.full.report import FullReport

_ENDS = {
    "finished": "The last table says what there was no time for, and why a part is missing.",
    "interrupted": "**Interrupted:** the page has what was measured until then.",
    "unfinished": "**Unfinished:** the process is still running, or it was killed during the part "
    "that the last table calls running.",
}


def page(report: FullReport) -> str:
    """Return the page, without any path, whatever texts from outside contain."""
    blocks = [*_head(report), *_in_short(report), *_machine(report), *_measured(report)]
    blocks += _parts(report)
    return without_paths("\n\n".join(filter(None, blocks))) + "\n"


def summary(report: FullReport) -> list[str]:
    """Return the answers of the report as sentences."""
    return [answer for _, figures in report.measured() for answer in figures.answers()]


def _head(report: FullReport) -> Iterator[str]:
    yield "# akunu doctor --full"
    yield (
        f"Measured on {Table.escape(report.started)}. It took {report.seconds:.0f} s; about "
        f"{report.limit_s:.0f} s were planned. {_ENDS[report.state]}"
    )
    yield (
        "This page contains no paths, no user or host names, and none of your text: the prompts "
        "ship with akunu. Times and speeds depend on what else this machine was doing. Every ratio "
        "is followed by its 95 % interval, from *low* to *high*, from resampled prompts or rounds; "
        f"with fewer than {LEAST_SESSIONS} of them there is no ratio."
    )


def _in_short(report: FullReport) -> Iterator[str]:
    yield "## In short"
    yield "\n".join(f"- {Table.escape(line)}" for line in summary(report))
    if report.findings:
        yield "Findings:"
        yield "\n".join(
            f"- **{finding.severity}**: {Table.escape(f'{finding.text}. {finding.advice}')}"
            for finding in report.findings
        )


def _machine(report: FullReport) -> Iterator[str]:
    yield "## Machine and model"
    yield description(report.machine)
    if report.model is not None:
        yield description(report.model)


def _measured(report: FullReport) -> Iterator[str]:
    section = None
    for kind, parts in groupby(report.measured(), lambda part: type(part[1])):
        if kind.section != section:
            section = kind.section
            yield f"## {section}"
        yield kind.explanation
        yield from record_tables(parts, labelled=kind.of_several_parts)


def _parts(report: FullReport) -> Iterator[str]:
    yield "## Parts"
    yield (
        "*Budget* is the share of the remaining time that a part had when it began. What one part "
        "does not use goes to later parts. A part that was *refused* failed with an error that "
        "says what to do."
    )
    yield from record_tables(
        ((TITLES[name], part) for name, part in report.parts.items()), labelled=True
    )
