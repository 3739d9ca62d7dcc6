"""Heat maps: the best speed for each pair of values of two axes, as a table and in colour."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, exp, log
from typing import TYPE_CHECKING

from akunu_lab.plots.canvas import INK, PAPER, SHADES
from akunu_lab.replay.cells import AXES, PLAIN, Cell, Setting
from akunu_lab.sweep.grid import varied
from akunu_py.api import Column, ConfigError, Table

if TYPE_CHECKING:
    from rich.table import Table as RichTable

_NAMES = ("x", "y", "value")
_MOST = 1e9
_STEPS = len(SHADES) // 2
"""Shades on either side of 1."""

_AS_IT_SHIPS = "as it ships"
"""Where a map has the default drafter that lacks the setting of an axis."""


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

    @property
    def _reach(self) -> float:
        """How far the logarithm of a value lies from that of 1, at most; never 0."""
        found = [abs(log(value)) for value in self.values.values() if value > 0]
        return max([*found, log(1.01)])

    def bound(self, step: int) -> float:
        """Return the value at which the shade that many steps from the middle ends."""
        return exp(self._reach * step / _STEPS)

    def shade(self, value: float) -> int:
        """Return the place in SHADES of a value's colour: the middle is 1, to two decimals."""
        if f"{value:.2f}" == "1.00":
            return _STEPS
        if value <= 0:
            return 0
        steps = log(value) / self._reach * _STEPS
        far = max(1, min(_STEPS, ceil(abs(steps) - 1e-9)))
        return _STEPS + (far if steps > 0 else -far)

    def best_of(self, row: Setting) -> float:
        """Return the highest value of a row."""
        return max(value for (_, y), value in self.values.items() if y == row)

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
        columns=tuple(sorted(dict.fromkeys(column for column, _ in values), key=_number_first)),
        rows=tuple(sorted(dict.fromkeys(row for _, row in values), key=_number_first)),
        values=values,
    )


def _number_first(setting: Setting) -> tuple[bool, float]:
    """Order numbers before names; names keep the order in which they came."""
    try:
        return False, float(str(setting))
    except ValueError:
        return True, 0.0


def choose_axes(
    cells: Mapping[Cell, float], wanted: str | None, default: str | None = None
) -> tuple[str, str] | None:
    """Return the axes of a heat map: those asked for as "X,Y", or the first two that are varied.

    These are a setting and the drafter, or two settings where one drafter is swept besides
    `default` and plain decoding; None where fewer than two are varied. Raises ConfigError for axes
    that are not varied.
    """
    found = list(varied(cells))
    if wanted is None:
        settings = [axis for axis in found if axis != "drafter"]
        compared = set(varied(cells).get("drafter", ())) - {PLAIN.drafter, default}
        rows = settings[1:2] if len(compared) == 1 and len(settings) > 1 else ["drafter"]
        return (settings[0], rows[0]) if settings and "drafter" in found else None
    axes = [axis.strip().replace("-", "_") for axis in wanted.split(",")]
    if len(axes) != 2 or axes[0] == axes[1] or not set(axes) <= set(found):
        raise ConfigError(
            f"the heat map is of {wanted!r}; give two of what is varied, with a comma: "
            f"{', '.join(axis.replace('_', '-') for axis in found) or 'nothing is'}"
        )
    return axes[0], axes[1]


def make_heat_map(
    speeds: Mapping[Cell, float], axes: tuple[str, str], default: str | None = None
) -> HeatMap:
    """Return the best speeds by these axes; cells that lack one of them are left out.

    Those of the drafter `default` are not: they get a column or a row of their own, so that what is
    found can be compared with what is taken where nobody chooses.
    """
    x_axis, y_axis = axes
    best: dict[tuple[Setting, Setting], float] = {}
    for cell, speed in speeds.items():
        at = (cell.setting(x_axis), cell.setting(y_axis))
        if cell.drafter == default:
            own = _AS_IT_SHIPS if "drafter" in axes else cell.drafter
            at = (own if at[0] is None else at[0], own if at[1] is None else at[1])
        if None not in at:
            best[at] = max(speed, best.get(at, 0.0))
    values = {axis: (*found, _AS_IT_SHIPS, default) for axis, found in varied(speeds).items()}
    columns, rows = (dict.fromkeys(values[axis]) for axis in axes)
    return HeatMap(
        _heading(x_axis),
        _heading(y_axis),
        "best speed",
        columns=tuple(value for value in columns if any(x == value for x, _ in best)),
        rows=tuple(value for value in rows if any(y == value for _, y in best)),
        values=best,
    )


def _heading(axis: str) -> str:
    return AXES[axis].heading if axis in AXES else axis


def on_terminal(heat_map: HeatMap) -> "RichTable":
    """Return numbers on coloured cells for rich's console, * at the best of each row."""
    from rich.box import SIMPLE_HEAD  # 0.1 s that --help must not pay
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0)
    drawn.add_column(Text(f"{heat_map.y_heading} \\ {heat_map.x_heading} "), no_wrap=True)
    for x in heat_map.columns:
        drawn.add_column(Text(f" {x} "), justify="right")
    for y in heat_map.rows:
        cells: list[Text] = []
        best = heat_map.best_of(y)
        for x in heat_map.columns:
            speed = heat_map.values.get((x, y))
            if speed is None:
                cells.append(Text(" - "))
                continue
            mark = "*" if speed == best else " "
            cells.append(Text(f" {speed:.2f}{mark}", style=_style(heat_map.shade(speed))))
        drawn.add_row(Text(str(y)), *cells)
    return drawn


def _style(shade: int) -> str:
    ink = PAPER if shade in {0, len(SHADES) - 1} else INK
    return f"{ink} on {SHADES[shade]}"
