"""Heat maps: the best speed for each pair of values of two axes, as a table and in colour."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from akunu_py.bench.tables import Column, Table
from akunu_py.cli.terminal import printable
from akunu_py.errors import ConfigError
from akunu_py.lab.sweep.grid import HEADINGS, Cell, Setting, varied

if TYPE_CHECKING:
    from rich.table import Table as RichTable

_NAMES = ("x", "y", "value")
_MOST = 1e9
_LOW, _HIGH = (0, 34, 78), (254, 232, 56)
"""Dark blue to yellow: the ends of cividis, whose lightness also rises for the colour-blind."""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Values by (x, y), such as the best speeds; a pair may lack a value.

    `x_heading`, `y_heading` and `value_heading` name the columns, the rows and the colours.
    """

    x_heading: str
    y_heading: str
    value_heading: str
    columns: tuple[Setting, ...]
    rows: tuple[Setting, ...]
    values: Mapping[tuple[Setting, Setting], float]

    def table(self) -> Table:
        """Return the map as a table of a result, with a row for each pair."""
        headings = (self.x_heading, self.y_heading, self.value_heading)
        columns = tuple(
            Column(name, heading, ".3f" if name == "value" else "")
            for name, heading in zip(_NAMES, headings, strict=True)
        )
        pairs = [(x, y) for y in self.rows for x in self.columns if (x, y) in self.values]
        return Table(
            "heat_map",
            f"The best speed by {self.x_heading} and {self.y_heading}",
            columns,
            tuple((x, y, self.values[x, y]) for x, y in pairs),
            detail=True,
        )


def heat_map_of(table: Table) -> HeatMap | None:
    """Return the map in such a table, with settings as texts; None for another table."""
    if tuple(column.name for column in table.columns) != _NAMES:
        return None
    x, y, value = table.columns
    values: dict[tuple[Setting, Setting], float] = {}
    for left, right, cell in table.rows:
        if isinstance(cell, int | float) and not isinstance(cell, bool) and 0 <= cell <= _MOST:
            values[x.text(left), y.text(right)] = cell
    if not values:
        return None
    return HeatMap(
        x.heading,
        y.heading,
        value.heading,
        columns=tuple(dict.fromkeys(column for column, _ in values)),
        rows=tuple(dict.fromkeys(row for _, row in values)),
        values=values,
    )


def choose_axes(cells: Mapping[Cell, float], wanted: str | None) -> tuple[str, str] | None:
    """Return the axes of a heat map: the requested ones, "X,Y", or the first two that are varied.

    Among varied axes the longest draft comes first and the drafter last; None if fewer than two
    are varied. Raises ConfigError for axes that are not varied.
    """
    found = list(varied(cells))
    if wanted is None:
        found = [*(axis for axis in found if axis != "drafter"), *found[:1]]
        found = list(dict.fromkeys(found))
        return (found[0], found[1]) if len(found) > 1 else None
    axes = [axis.strip().replace("-", "_") for axis in wanted.split(",")]
    if len(axes) != 2 or axes[0] == axes[1] or not set(axes) <= set(found):
        raise ConfigError(
            f"the heat map is of {wanted!r}; give two of what is varied, with a comma: "
            f"{', '.join(axis.replace('_', '-') for axis in found) or 'nothing is'}"
        )
    return axes[0], axes[1]


def make_heat_map(speeds: Mapping[Cell, float], axes: tuple[str, str]) -> HeatMap:
    """Return the best speeds by these axes; cells that lack one of them are left out."""
    x_axis, y_axis = axes
    best: dict[tuple[Setting, Setting], float] = {}
    for cell, speed in speeds.items():
        at = (cell.setting(x_axis), cell.setting(y_axis))
        if None not in at:
            best[at] = max(speed, best.get(at, 0.0))
    values = varied(speeds)
    return HeatMap(
        HEADINGS[x_axis],
        HEADINGS[y_axis],
        "best speed",
        columns=tuple(value for value in values[x_axis] if any(x == value for x, _ in best)),
        rows=tuple(value for value in values[y_axis] if any(y == value for _, y in best)),
        values=best,
    )


def on_terminal(heat_map: HeatMap) -> "RichTable":
    """Return numbers on coloured cells for rich's console; the best one is marked with *."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - 0.1 s that --help must not pay
    from rich.table import Table as RichTable  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    low, high = min(heat_map.values.values()), max(heat_map.values.values())
    drawn = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0)
    drawn.add_column(Text(f"{heat_map.y_heading} \\ {heat_map.x_heading} "), no_wrap=True)
    for x in heat_map.columns:
        drawn.add_column(Text(f" {printable(str(x))} "), justify="right")
    for y in heat_map.rows:
        cells: list[Text] = []
        for x in heat_map.columns:
            speed = heat_map.values.get((x, y))
            if speed is None:
                cells.append(Text(" - "))
                continue
            mark = "*" if speed == high else " "
            cells.append(Text(f" {speed:.2f}{mark}", style=_style(speed, low, high)))
        drawn.add_row(Text(printable(str(y))), *cells)
    return drawn


def _style(speed: float, low: float, high: float) -> str:
    share = (speed - low) / (high - low) if high > low else 1.0
    red, green, blue = (round(a + share * (b - a)) for a, b in zip(_LOW, _HIGH, strict=True))
    ink = "black" if share > 0.5 else "white"
    return f"{ink} on rgb({red},{green},{blue})"
