"""The grid of a sweep: each drafter with every combination of its settings.

A setting that a drafter lacks is not varied for it, and an impossible combination, such as a least
match as long as the order, is not a cell. The notes name both.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from akunu_lab.replay.cells import (
    AXES,
    PLAIN,
    Cell,
    Choices,
    Setting,
    default_cell,
    own_settings,
)
from akunu_py.api import ConfigError

MOST_CELLS = 5000
_RANGE = re.compile(r"([0-9]{1,6})\.\.([0-9]{1,6})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Grid:
    """The cells of a sweep in their order, and notes on settings that were not varied."""

    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()


AxisValues = Mapping[str, Sequence[Setting]]
"""Values to vary, by the names in AXES; drafters keep their own values on other axes."""


def check_values(axes: AxisValues) -> None:
    """Raise ConfigError for an axis that there is not, and for a value out of its range."""
    for axis, values in axes.items():
        if axis not in AXES:
            raise ConfigError(f"there is no axis named {axis!r}; choose from {', '.join(AXES)}")
        most = AXES[axis].most
        for value in values:
            if most is not None and not (isinstance(value, int) and 1 <= value <= most):
                raise ConfigError(f"{axis} is {value!r}; give 1 to {most}")
            if axis == "lenience" and not (isinstance(value, float) and 0 < value <= 1):
                raise ConfigError(f"lenience is {value!r}; give a number above 0, at most 1")


def parse_numbers(texts: Iterable[str]) -> list[int]:
    """Return the numbers of texts such as "4", "1..8" and "2,4,8", ascending, each once.

    Raises ConfigError for anything else.
    """
    numbers: set[int] = set()
    for part in (part for text in texts for part in text.split(",")):
        found = _RANGE.fullmatch(part.strip())
        if found is not None:
            low, high = int(found[1]), int(found[2])
            if low > high or high - low > MOST_CELLS:
                raise ConfigError(f"{part!r} is not a range; give the smaller number first")
            numbers.update(range(low, high + 1))
        elif re.fullmatch(r"[0-9]{1,7}", part.strip(), re.ASCII):
            numbers.add(int(part))
        else:
            raise ConfigError(f"{part!r} is not a number; give numbers such as 4, 1..8 or 2,4,8")
    return sorted(numbers)


def make_grid(
    drafters: Sequence[str],
    axes: AxisValues,
    *,
    always: Sequence[Cell] = (),
    choices: Choices | None = None,
    works: Callable[[Cell], bool] = lambda _cell: True,
) -> Grid:
    """Return every drafter as it ships, and with every combination of its axes.

    The cells in `always` come first, then each drafter's own settings before the others; among
    equally good cells the first one is recommended. Combinations for which `works` is false are
    left out. Raises ConfigError for more than MOST_CELLS.
    """
    choices = choices or {}
    cells: dict[Cell, None] = dict.fromkeys(always)
    notes: list[str] = []
    impossible: dict[str, int] = {}
    for drafter in dict.fromkeys(drafters):
        own = own_settings(drafter, choices)
        cells[default_cell(drafter, choices)] = None
        missing = [AXES[axis].heading for axis in axes if axis not in own]
        if missing and drafter != PLAIN.drafter:
            notes.append(f"{drafter} has no {' and no '.join(missing)}: not varied")
        for values in product(*(axes.get(axis, (value,)) for axis, value in own.items())):
            cell = Cell(drafter, **dict(zip(own, values, strict=True)))  # type: ignore[arg-type]
            if _is_possible(cell, choices) and works(cell):
                cells[cell] = None
            else:
                impossible[drafter] = impossible.get(drafter, 0) + 1
            if len(cells) > MOST_CELLS:
                raise ConfigError(f"the grid has more than {MOST_CELLS} cells; vary less at once")
    notes += [
        f"{drafter}: {count} combinations left out that it cannot have"
        for drafter, count in impossible.items()
    ]
    return Grid(tuple(cells), tuple(notes))


def _is_possible(cell: Cell, choices: Choices) -> bool:
    for axis, values in choices.get(cell.drafter, {}).items():
        if cell.setting(axis) not in values:
            return False
    if cell.order is None:
        return True
    if cell.order < 2 or (cell.window is not None and cell.window < cell.order):
        return False
    return cell.min_match is None or 1 <= cell.min_match < cell.order


def varied(cells: Iterable[Cell]) -> dict[str, tuple[Setting, ...]]:
    """Return the axes, "drafter" included, on which cells differ, and their values in order.

    Numbers ascend, names keep the order of the cells. A setting that a drafter lacks is not a
    value.
    """
    listed = list(cells)
    found: dict[str, tuple[Setting, ...]] = {}
    for axis in ("drafter", *AXES):
        values = dict.fromkeys(cell.setting(axis) for cell in listed)
        values.pop(None, None)
        if len(values) > 1:
            found[axis] = tuple(sorted(values, key=_rank))
    return found


def _rank(value: Setting) -> float:
    # sorted() keeps names in the order in which they came.
    return value if isinstance(value, int | float) else 0
