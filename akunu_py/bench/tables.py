"""Tables of results; the same table goes to the terminal and into JSON."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Self

from msgspec import Meta
from msgspec.structs import replace

from akunu_py.bench.bootstrap import Ratio
from akunu_py.bench.rows import Count, Row
from akunu_py.system.errors import ConfigError

Cell = str | int | float | bool | None


class Column(Row, frozen=True):
    """One column.

    Attributes:
        name: of the column in CSV and JSON, in snake_case.
        heading: text above the column; it may be wrapped at its line breaks.
        form: format specification of numbers (".2f", ".0%"); "" for texts and whole numbers.
        unit: written after each number.
        detail: left out on a terminal, which may have only 80 columns.

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

    @staticmethod
    def ratio(
        name: str,
        heading: str,
        form: str,
        unit: str = "",
        *,
        range_form: str = "",
        detail: bool = False,
    ) -> "tuple[Column, ...]":
        """Return the columns of a `Ratio`: its value, its interval for people, and its two ends.

        The ends are details; `range_form` is the format of the interval if it differs. `Table.of`
        fills all four columns from one value of a record.
        """
        words = " ".join(heading.split())
        return (
            Column(name, heading, form, unit, detail),
            Column(
                f"{name}_range",
                f"{words}, 95 %" if detail else "95 %",
                range_form or form,
                detail=detail,
            ),
            Column(f"{name}_low", f"{words}, low", form, unit, detail=True),
            Column(f"{name}_high", f"{words}, high", form, unit, detail=True),
        )

    def text(self, value: Cell) -> str:
        """Return a cell as text: None as "-", true and false as yes and no."""
        if value is None:
            return "-"
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, str):
            return value
        return f"{value:{self.form}}{self.unit}"


class Table(Row, frozen=True):
    """Rows under columns, the last `total_rows` of them totals.

    Attributes:
        name: of the table, in snake_case; with --output the name of its files.
        title: what it shows.
        columns: at least one, names all different.
        rows: each with a cell for every column.
        note: a remark for the reader, printed below the table.
        total_rows: number of rows at the end that are totals.
        detail: left out on a terminal.

    Raises ConfigError for rows of another length.

    """

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]+$")]
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    total_rows: Count = 0
    detail: bool = False

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ConfigError(
                    f"row {number} of the table {self.name} has {len(row)} cells for "
                    f"{len(self.columns)} columns"
                )

    @classmethod
    def of(
        cls,
        name: str,
        title: str,
        columns: Sequence[Column],
        records: Iterable[Mapping[str, Any]],
        **more: Any,
    ) -> Self:
        """Return a table with a row for each record; columns take the record's values by name.

        A value may be a `Ratio`. `more` are further fields of the table. Raises KeyError for a
        column that a record lacks.
        """
        rows = tuple(tuple(_cell(record, column) for column in columns) for record in records)
        return cls(name, title, tuple(columns), rows, **more)

    def on_terminal(self) -> "Table":
        """Return the table without the columns that are details."""
        kept = [index for index, column in enumerate(self.columns) if not column.detail]
        if len(kept) == len(self.columns):
            return self
        return replace(
            self,
            columns=tuple(self.columns[index] for index in kept),
            rows=tuple(tuple(row[index] for index in kept) for row in self.rows),
        )

    def is_number_column(self, index: int) -> bool:
        """Return whether a column has numbers, which are aligned to the right."""
        cells = [row[index] for row in self.rows if row[index] is not None]
        return bool(cells) and not any(isinstance(cell, str) for cell in cells)


def _cell(record: Mapping[str, Any], column: Column) -> Cell:
    if column.name in record:
        value = record[column.name]
        return value.ratio if isinstance(value, Ratio) else value
    name, _, part = column.name.rpartition("_")
    ratio: Ratio | None = record[name]
    if ratio is None:
        return None
    ends = {"low": ratio.low, "high": ratio.high}
    return ratio.range_text(column.form) if part == "range" else ends[part]
