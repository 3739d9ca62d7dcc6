"""The best speed for each pair of values of two axes."""

from collections.abc import Mapping
from dataclasses import dataclass

from akunu_py.errors import ConfigError
from akunu_py.lab.sweep.grid import HEADINGS, Cell, Setting, varied


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Speeds by (x, y), each the best over all that is not an axis; a pair may have no cell."""

    x_axis: str
    y_axis: str
    x_values: tuple[Setting, ...]
    y_values: tuple[Setting, ...]
    speeds: Mapping[tuple[Setting, Setting], float]

    @property
    def x_heading(self) -> str:
        """What the columns are."""
        return HEADINGS[self.x_axis]

    @property
    def y_heading(self) -> str:
        """What the rows are."""
        return HEADINGS[self.y_axis]


def choose_axes(cells: Mapping[Cell, float], wanted: str | None) -> tuple[str, str] | None:
    """Return the axes of a heat map: those asked for as "X,Y", or the first two that are varied.

    The longest draft comes first, the drafter last, of what is varied; None where fewer than two
    are. Raises ConfigError for axes that are not varied.
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
    """Return the map of these axes; cells that lack one of them are left out."""
    x_axis, y_axis = axes
    best: dict[tuple[Setting, Setting], float] = {}
    for cell, speed in speeds.items():
        at = (cell.setting(x_axis), cell.setting(y_axis))
        if None not in at:
            best[at] = max(speed, best.get(at, 0.0))
    values = varied(speeds)
    return HeatMap(
        x_axis,
        y_axis,
        tuple(value for value in values[x_axis] if any(x == value for x, _ in best)),
        tuple(value for value in values[y_axis] if any(y == value for _, y in best)),
        best,
    )
