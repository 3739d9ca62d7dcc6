"""Tables of results: named columns, so that one table serves terminal, CSV, Markdown and JSON."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from akunu_py.bench.record import Record, is_number
from akunu_py.errors import ConfigError

Cell = str | int | float | bool | None

_MARKDOWN = str.maketrans({
    "\\": "\\\\", "|": "\\|", "`": "\\`", "*": "\\*", "[": "\\[", "]": "\\]",
    "<": "&lt;", ">": "&gt;", "&": "&amp;", "\n": " ", "\r": " ",
})  # fmt: skip
"""What would end a cell or be taken for markup: names in a table may come from anywhere."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: of the column in CSV and JSON, in snake_case.
        heading: what people read above it; a line break where it may be broken.
        form: format specification of its numbers (".2f", ".0%"); "" for texts and whole numbers.
        unit: written behind each number.
        detail: left out on a terminal, where 80 columns are all there is.

    """

    name: str
    heading: str
    form: str = ""
    unit: str = ""
    detail: bool = False

    def __post_init__(self) -> None:
        try:
            format(1.0, self.form)
        except ValueError:
            raise ConfigError(
                f"the column {self.name} has the format {self.form!r}; give one for numbers"
            ) from None

    def text(self, value: Cell) -> str:
        """Return a cell as people read it: None as "-", true and false as yes and no."""
        if value is None:
            return "-"
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, str):
            return value
        return f"{value:{self.form}}{self.unit}"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns, the last `total_rows` of them totals.

    Attributes:
        name: of the table, in snake_case; with --output the name of its files.
        title: what it shows.
        columns: at least one, names all different.
        rows: each with a cell for every column.
        note: what a reader must know, printed below it.
        total_rows: how many rows at the end are totals.
        detail: left out on a terminal.

    Raises ConfigError for rows of another length, cells that are no `Cell` or not finite.

    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    total_rows: int = 0
    detail: bool = False

    def __post_init__(self) -> None:
        if not self.name or not all(c.isascii() and (c.isalnum() or c in "_-") for c in self.name):
            raise ConfigError(f"a table has the name {self.name!r}; give letters, digits, _ and -")
        names = [column.name for column in self.columns]
        if not names or len(set(names)) != len(names):
            raise ConfigError(f"the table {self.name} has no columns, or two of one name: {names}")
        if not 0 <= self.total_rows <= len(self.rows):
            raise ConfigError(
                f"the table {self.name} has {len(self.rows)} rows and {self.total_rows} totals"
            )
        for number, row in enumerate(self.rows):
            if len(row) != len(names):
                raise ConfigError(
                    f"row {number} of the table {self.name} has {len(row)} cells for "
                    f"{len(names)} columns"
                )
            for cell in row:
                if cell is not None and not isinstance(cell, str | bool) and not is_number(cell):
                    raise ConfigError(f"row {number} of the table {self.name} holds {cell!r}")

    def on_terminal(self) -> "Table":
        """Return the table without the columns that are details."""
        kept = [index for index, column in enumerate(self.columns) if not column.detail]
        if len(kept) == len(self.columns):
            return self
        return Table(
            self.name,
            self.title,
            tuple(self.columns[index] for index in kept),
            tuple(tuple(row[index] for index in kept) for row in self.rows),
            self.note,
            self.total_rows,
            self.detail,
        )

    def is_number_column(self, index: int) -> bool:
        """Return whether a column holds numbers: then it is set flush right."""
        cells = [row[index] for row in self.rows if row[index] is not None]
        return bool(cells) and not any(isinstance(cell, str) for cell in cells)

    def markdown(self) -> str:
        """Return title, table and note in GitHub's Markdown; totals are bold."""
        headings = [escape_markdown(column.heading) for column in self.columns]
        ends = ["---:" if self.is_number_column(i) else "---" for i in range(len(headings))]
        lines = [f"**{escape_markdown(self.title)}**", ""] if self.title else []
        lines += [_line(headings), _line(ends)]
        first_total = len(self.rows) - self.total_rows
        for number, row in enumerate(self.rows):
            cells = [
                escape_markdown(c.text(cell)) for c, cell in zip(self.columns, row, strict=True)
            ]
            if number >= first_total:
                cells = [f"**{cell}**" if cell else cell for cell in cells]
            lines.append(_line(cells))
        if self.note:
            lines += ["", escape_markdown(self.note)]
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """Return the table as CSV (RFC 4180): numbers with all their digits, nothing for None."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([column.name for column in self.columns])
        for row in self.rows:
            writer.writerow([_csv_cell(cell) for cell in row])
        return stream.getvalue()

    def to_dict(self) -> dict[str, object]:
        """Return everything as JSON-ready values."""
        return {
            "name": self.name,
            "title": self.title,
            "columns": [asdict(column) for column in self.columns],
            "rows": [list(row) for row in self.rows],
            "note": self.note,
            "total_rows": self.total_rows,
            "detail": self.detail,
        }

    @classmethod
    def from_dict(cls, record: Record) -> "Table":
        """Return the table of a JSON object; raises ConfigError saying what is wrong with it."""
        columns = []
        for column in record.records("columns"):
            texts = {
                field.name: column.text(field.name)
                for field in fields(Column)
                if field.name != "detail"
            }
            columns.append(Column(**texts, detail=column.flag("detail")))
            column.end()
        rows: list[tuple[Cell, ...]] = []
        for number, row in enumerate(record.values("rows")):
            if not isinstance(row, list):
                raise ConfigError(f"{record.where}: rows[{number}] is no list")
            rows.append(tuple(row))
        table = cls(
            name=record.text("name"),
            title=record.text("title"),
            columns=tuple(columns),
            rows=tuple(rows),
            note=record.text("note"),
            total_rows=record.count("total_rows"),
            detail=record.flag("detail"),
        )
        record.end()
        return table


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape_markdown(text: str) -> str:
    """Return a text in which nothing is markup, on one line."""
    return text.translate(_MARKDOWN)


def _csv_cell(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return cell if isinstance(cell, str) else repr(cell)
