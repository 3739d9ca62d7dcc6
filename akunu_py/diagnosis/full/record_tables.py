"""Tables of dataclasses, whose names of fields say how values are written.

Properties and the fields of the repr are columns; records in a tuple make a table of their own. As
in the JSON, names that end in _s and `seconds` are seconds, those with "bytes" are bytes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from akunu_py.bench.tables import Column, Table
from akunu_py.diagnosis.advice import size

_MOST_ROWS = 20
_LARGE = 1000
"""Numbers from here are written without decimals."""


def description(*records: object) -> str:
    """Return a table with a row for each value that is known."""
    cells = [pair for record in records for pair in _cells(record).items() if pair[1] is not None]
    columns = (Column("name", ""), Column("value", ""))
    return Table("description", "", columns, tuple(cells)).markdown().strip()


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
            yield Table.escape("; ".join(f"{heading}: {cell or '-'}" for heading, cell in pairs))
            continue
        left_out = len(rows) - _MOST_ROWS
        yield (
            Table(
                "records",
                "",
                tuple(Column(heading, heading) for heading in headings),
                tuple(rows[:_MOST_ROWS]),
                note=f"The file of figures has {left_out} more." if left_out > 0 else "",
            )
            .markdown()
            .strip()
        )


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
