"""The report on disk: as JSON, and as a Markdown page that explains each figure.

The page's tables are made from dataclasses, whose names of fields say how values are written.
Properties and the fields of the repr are columns; records in a tuple make a table of their own. As
in the JSON, names that end in _s and `seconds` are seconds, those with "bytes" are bytes.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from itertools import count, groupby
from pathlib import Path
from typing import Any

from akunu_lab.machine.parts import TITLES
from akunu_lab.machine.privacy import without_paths
from akunu_lab.machine.report import FullReport, size
from akunu_lab.pages.forms import html_of_markdown
from akunu_lab.study.files import write_text
from akunu_lab.study.markdown import escape, markdown_of
from akunu_py.api import Column, ConfigError, Ratio, Table

_MOST_ROWS = 20
_LARGE = 1000
"""Numbers from here are written without decimals."""


def description(*records: object) -> str:
    """Return a table with a row for each value that is known."""
    cells = [pair for record in records for pair in _cells(record).items() if pair[1] is not None]
    columns = (Column("name", ""), Column("value", ""))
    return markdown_of(Table("description", "", columns, tuple(cells))).strip()


def record_tables(records: Iterable[tuple[str, object]], *, labelled: bool) -> Iterator[str]:
    """Yield a table for each kind of record, or a line if there is one of it.

    Where `labelled`, the first column has the names.
    """
    tables: dict[tuple[str, ...], list[tuple[str | None, ...]]] = {}
    for name, record in records:
        label = {"part": name} if labelled else {}
        for one in (record, *_nested(record)):
            cells = label | _cells(one)
            if len(cells) > len(label):
                tables.setdefault(tuple(cells), []).append(tuple(cells.values()))
    for headings, rows in tables.items():
        if len(rows) == 1:
            pairs = zip(headings, rows[0], strict=True)
            yield escape("; ".join(f"{heading}: {cell or '-'}" for heading, cell in pairs))
            continue
        left_out = len(rows) - _MOST_ROWS
        table = Table(
            "records",
            "",
            tuple(Column(heading, heading) for heading in headings),
            tuple(rows[:_MOST_ROWS]),
            note=f"The file of figures has {left_out} more." if left_out > 0 else "",
        )
        yield markdown_of(table).strip()


def _values(record: Any) -> dict[str, Any]:
    names = [one.name for one in fields(record) if one.repr]
    names += [name for name, found in vars(type(record)).items() if isinstance(found, property)]
    return {name: getattr(record, name) for name in names}


def _nested(record: object) -> list[object]:
    found = [value for value in _values(record).values() if isinstance(value, tuple)]
    return [one for values in found for one in values if is_dataclass(one)]


def _cells(record: object) -> dict[str, str | None]:
    """Return texts by heading, without nested records."""
    cells: dict[str, str | None] = {}
    for name, value in _values(record).items():
        if isinstance(value, dict):
            cells |= {key: entry or "missing" for key, entry in value.items()}
        elif isinstance(value, tuple):
            if value and not is_dataclass(value[0]):
                cells[_heading(name)] = ", ".join(str(_text(name, one)) for one in value)
        elif not is_dataclass(value):
            cells[_heading(name)] = _text(name, value)
    return cells


def _heading(name: str) -> str:
    name = {"seconds": "time"}.get(name, name).replace("_bytes_per_s", "").replace("_per_s", "/s")
    return name.removesuffix("_s").removesuffix("_bytes").replace("_", " ")


def _text(name: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if "bytes" in name:
        return size(round(value)) + "/s" * name.endswith("_per_s")
    if name == "seconds" or (name.endswith("_s") and not name.endswith("_per_s")):
        return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.3g} ms"
    if name.startswith("pays_from"):  # a probability
        return f"{value:.0%}"
    if isinstance(value, int) or abs(value) >= _LARGE:
        return f"{value:,.0f}"
    return f"{value:.3g}"


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
    yield "# akunu bench machine"
    yield (
        f"Measured on {escape(report.started)}. It took {report.seconds:.0f} s; about "
        f"{report.limit_s:.0f} s were planned. {_ENDS[report.state]}"
    )
    yield (
        "This page contains no paths, no user or host names, and none of your text: the prompts "
        "ship with akunu. Times and speeds depend on what else this machine was doing. Every ratio "
        "is followed by its 95 % interval, from *low* to *high*, from resampled prompts or rounds; "
        f"with fewer than {Ratio.LEAST_SESSIONS} of them there is no ratio."
    )


def _in_short(report: FullReport) -> Iterator[str]:
    yield "## In short"
    yield "\n".join(f"- {escape(line)}" for line in summary(report))
    if report.findings:
        yield "Findings:"
        yield "\n".join(
            f"- **{finding.severity}**: {escape(f'{finding.text}. {finding.advice}')}"
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


NAME = "akunu-machine"


class KeptReport:
    """`page` and `record`: `akunu-machine.md` and `.json` in a folder, numbered if these exist.

    The page is `akunu-machine.html` where `as_html`.

    Both are created empty at once, so that an unwritable folder is reported before anything is
    measured. Raises ConfigError.
    """

    def __init__(self, folder: Path, *, as_html: bool = False) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.page, self.record = _new_files(folder, "html" if as_html else "md")
        except OSError as error:
            raise ConfigError(
                f"the report cannot be kept in {folder}: {error.strerror or error}; give --output "
                "another folder"
            ) from None

    def write(self, report: FullReport) -> None:
        """Replace both files; raises ConfigError if they cannot be written."""
        text = page(report)
        if self.page.suffix == ".html":
            text = html_of_markdown(f"akunu on {report.machine.device}", text)
        write_text(self.page, text)
        write_text(self.record, json_text(report) + "\n")


def json_text(report: FullReport) -> str:
    """Return the figures as one line of JSON without any path; null for NaN and infinities."""
    return json.dumps(_publishable(report.to_dict()), allow_nan=False)


def _publishable(value: object) -> object:
    if isinstance(value, dict):
        return {key: _publishable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_publishable(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return without_paths(value) if isinstance(value, str) else value


def _new_files(folder: Path, kind: str) -> tuple[Path, Path]:
    """Create the first pair of files whose names are both free."""
    names = (NAME if number == 1 else f"{NAME}-{number}" for number in count(1))
    pairs = ((folder / f"{name}.{kind}", folder / f"{name}.json") for name in names)
    page_path, record = next(pair for pair in pairs if not any(map(os.path.lexists, pair)))
    page_path.touch(exist_ok=False)
    record.touch(exist_ok=False)
    return page_path, record
