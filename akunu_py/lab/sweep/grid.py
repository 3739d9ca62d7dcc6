"""The cells of a sweep: each drafter with its settings.

A setting that a drafter lacks is not varied for it, and an impossible combination, such as a least
match as long as the order, is not a cell. The notes name both.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from akunu_py.drafting.ngram_settings import NGRAM_DEFAULTS
from akunu_py.drafting.registry import default_num_draft_tokens
from akunu_py.lab.baselines import BASELINES
from akunu_py.system.errors import ConfigError

Setting = int | float | str | None

METHODS: Mapping[str, Setting] = {
    "draft_sampling": "coupled",
    "num_proposals": 1,
    "lenience": 1.0,
    "adjust": "yes",
}
"""How drafts are drawn and accepted, with defaults.

Cells have these settings only in a sweep that varies them.
"""

AXES = ("num_draft_tokens", "order", "window", "min_match", "draft_length", *METHODS)
"""Axes besides the drafter, by the names of `Cell`'s fields."""

HEADINGS = {
    "drafter": "drafter",
    "num_draft_tokens": "draft tokens",
    "order": "order",
    "window": "window",
    "min_match": "least match",
    "draft_length": "length rule",
    "draft_sampling": "sampling",
    "num_proposals": "proposals",
    "lenience": "lenience (below 1 not exact)",
    "adjust": "residual adjusted (no: not exact)",
}

_OPTIONS = {
    "num_draft_tokens": "num-draft-tokens",
    "order": "ngram-order",
    "window": "ngram-window",
    "min_match": "ngram-min-match",
    "draft_sampling": "draft-sampling",
    "num_proposals": "num-proposals",
    "lenience": "lenience",
}
"""Options of `akunu generate` for settings with a value."""

MOST_CELLS = 5000
_RANGE = re.compile(r"([0-9]{1,6})\.\.([0-9]{1,6})", re.ASCII)
_MOST = {
    "num_draft_tokens": 64, "order": 16, "window": 1_000_000, "min_match": 15, "num_proposals": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """One drafter with all of its settings; None for a setting that it lacks."""

    drafter: str
    num_draft_tokens: int | None = None
    order: int | None = None
    window: int | None = None
    min_match: int | None = None
    draft_length: str | None = None
    draft_sampling: str | None = None
    num_proposals: int | None = None
    lenience: float | None = None
    adjust: str | None = None

    @property
    def is_exact(self) -> bool:
        """Whether its replies have at least the distribution of plain decoding."""
        return self.lenience in {None, 1} and self.adjust != "no"

    @property
    def key(self) -> str:
        """A unique text for the cell: "ngram num_draft_tokens=4 order=4 min_match=1".

        A cell that is not exact is marked.
        """
        settings = (
            f"{axis}={getattr(self, axis)}" for axis in AXES if self.setting(axis) is not None
        )
        return " ".join((self.drafter, *settings, *self._not_exact))

    @property
    def options(self) -> str:
        """The cell as options of `akunu generate`."""
        options = [f"--drafter {self.drafter}"]
        for axis, option in _OPTIONS.items():
            value = self.setting(axis)
            if value not in {None, METHODS.get(axis)}:
                options.append(f"--{option} {value}")
        if self.adjust == "no":
            options.append("--no-adjust")
        if self.draft_length not in {None, "budget", "fixed"}:
            options.append(f"--draft-length {self.draft_length}")
        if self.draft_length not in {None, "budget"}:
            options.append("--draft-budget always")
        return " ".join(options)

    @property
    def title(self) -> str:
        """The cell as options, marked if it is not exact."""
        return " ".join((self.options, *self._not_exact))

    @property
    def relaxed(self) -> tuple[str, ...]:
        """The axes on which it departs from the stream of plain decoding.

        Lenience above temperature 0 and unadjusted residuals are forms of rejection, which is
        itself an axis only without them.
        """
        found = (("lenience",) if self.lenience not in {None, 1} else ()) + (
            ("adjust",) if self.adjust == "no" else ()
        )
        return found or (("draft_sampling",) if self.draft_sampling == "rejection" else ())

    @property
    def _not_exact(self) -> tuple[str, ...]:
        return () if self.is_exact else ("(not exact)",)

    def setting(self, axis: str) -> Setting:
        """Return the value of one of AXES, or the drafter's name for "drafter"."""
        value: Setting = getattr(self, axis)
        return value


PLAIN = Cell("none")
"""Plain decoding."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The cells of a sweep in their order, and notes on settings that were not varied."""

    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Axes:
    """Values to vary, by the names in AXES; drafters keep their own values on other axes."""

    values: Mapping[str, Sequence[Setting]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for axis, values in self.values.items():
            if axis not in AXES:
                raise ConfigError(f"there is no axis named {axis!r}; choose from {', '.join(AXES)}")
            for value in values:
                number = isinstance(value, int) and 1 <= value <= _MOST.get(axis, 0)
                if axis in _MOST and not number:
                    raise ConfigError(f"{axis} is {value!r}; give 1 to {_MOST[axis]}")
                if axis == "lenience" and not (isinstance(value, float) and 0 < value <= 1):
                    raise ConfigError(f"lenience is {value!r}; give a number above 0, at most 1")


def parse_numbers(texts: Iterable[str]) -> list[int]:
    """Return the numbers of texts such as "4", "1..8" and "2,4,8", ascending, each once.

    Raises ConfigError for anything else.
    """
    numbers: set[int] = set()
    for text in texts:
        for part in text.split(","):
            found = _RANGE.fullmatch(part.strip())
            if found is not None:
                low, high = int(found[1]), int(found[2])
                if low > high or high - low > MOST_CELLS:
                    raise ConfigError(f"{part!r} is not a range; give the smaller number first")
                numbers.update(range(low, high + 1))
            elif re.fullmatch(r"[0-9]{1,7}", part.strip(), re.ASCII):
                numbers.add(int(part))
            else:
                raise ConfigError(
                    f"{part!r} is not a number; give numbers such as 4, 1..8 or 2,4,8"
                )
    return sorted(numbers)


Choices = Mapping[str, Mapping[str, Sequence[Setting]]]
"""Values of the settings chosen by name, by drafter and axis; the drafter's own value is first.

Settings that a drafter lacks are left out.
"""


def own_settings(drafter: str, choices: Choices) -> dict[str, Setting]:
    """Return a drafter's settings with its own values."""
    if drafter == PLAIN.drafter:
        return {}
    own: dict[str, Setting]
    if drafter in NGRAM_DEFAULTS:
        own = dict(NGRAM_DEFAULTS[drafter])
    elif drafter in BASELINES:
        own = {"num_draft_tokens": BASELINES[drafter]().default_limit}
    else:
        own = {"num_draft_tokens": default_num_draft_tokens(drafter)}
    own.update({axis: values[0] for axis, values in choices.get(drafter, {}).items()})
    return own


def default_cell(drafter: str, choices: Choices) -> Cell:
    """Return a drafter as it ships."""
    return Cell(drafter, **own_settings(drafter, choices))  # type: ignore[arg-type]


def make_grid(
    drafters: Sequence[str],
    axes: Axes,
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
        missing = [HEADINGS[axis] for axis in axes.values if axis not in own]
        if missing and drafter != PLAIN.drafter:
            notes.append(f"{drafter} has no {' and no '.join(missing)}: not varied")
        wanted = [axes.values.get(axis, (value,)) for axis, value in own.items()]
        for values in product(*wanted):
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
