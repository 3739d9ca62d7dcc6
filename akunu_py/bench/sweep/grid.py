"""The cells of a sweep: drafters, and the settings that each of them has.

A setting that a drafter does not have is not varied for it, and a combination that no drafter could
have, such as a least match as long as the order, is no cell; both are said.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from akunu_py.bench.replay.baselines import BASELINES
from akunu_py.drafting.ngram_settings import NGRAM_DEFAULTS
from akunu_py.drafting.registry import default_num_draft_tokens
from akunu_py.errors import ConfigError

Setting = int | str | None

AXES = ("num_draft_tokens", "order", "window", "min_match", "draft_length")
"""What may be varied besides the drafter, by the names of `Cell`'s fields."""

HEADINGS = {
    "drafter": "drafter",
    "num_draft_tokens": "draft tokens",
    "order": "order",
    "window": "window",
    "min_match": "least match",
    "draft_length": "length rule",
}

_OPTIONS = {
    "num_draft_tokens": "num-draft-tokens",
    "order": "ngram-order",
    "window": "ngram-window",
    "min_match": "ngram-min-match",
}
"""What the settings are called by `akunu generate`."""

MOST_CELLS = 5000
_RANGE = re.compile(r"([0-9]{1,6})\.\.([0-9]{1,6})", re.ASCII)
_MOST = {"num_draft_tokens": 64, "order": 16, "window": 1_000_000, "min_match": 15}


@dataclass(frozen=True, slots=True)
class Cell:
    """One drafter with all of its settings; None for those that it does not have."""

    drafter: str
    num_draft_tokens: int | None = None
    order: int | None = None
    window: int | None = None
    min_match: int | None = None
    draft_length: str | None = None

    @property
    def key(self) -> str:
        """The cell as a text, no two alike: "ngram num_draft_tokens=4 order=4 min_match=1"."""
        settings = (
            f"{axis}={getattr(self, axis)}" for axis in AXES if self.setting(axis) is not None
        )
        return " ".join((self.drafter, *settings))

    @property
    def options(self) -> str:
        """The cell as options of `akunu generate`."""
        options = [f"--drafter {self.drafter}"]
        for axis in AXES:
            value = self.setting(axis)
            if axis != "draft_length" and value is not None:
                options.append(f"--{_OPTIONS[axis]} {value}")
        if self.draft_length not in {None, "budget", "fixed"}:
            options.append(f"--draft-length {self.draft_length}")
        if self.draft_length not in {None, "budget"}:
            options.append("--draft-budget always")
        return " ".join(options)

    def setting(self, axis: str) -> Setting:
        """Return the value of one of AXES, or the drafter's name for "drafter"."""
        value: Setting = getattr(self, axis)
        return value


PLAIN = Cell("none")
"""Plain decoding."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The cells of a sweep in their order, and what could not be varied, in words."""

    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Axes:
    """What to vary: values by the names in AXES; of an axis left out each drafter has its own."""

    values: Mapping[str, Sequence[Setting]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for axis, values in self.values.items():
            if axis not in AXES:
                raise ConfigError(f"there is no axis {axis!r}; choose from {', '.join(AXES)}")
            for value in values:
                number = isinstance(value, int) and 1 <= value <= _MOST.get(axis, 0)
                if axis in _MOST and not number:
                    raise ConfigError(f"{axis} is {value!r}; give 1 to {_MOST[axis]}")


def parse_numbers(texts: Iterable[str]) -> list[int]:
    """Return the numbers of texts such as "4", "1..8" and "2,4,8", ascending, each once.

    Raises ConfigError for what is none of these.
    """
    numbers: set[int] = set()
    for text in texts:
        for part in text.split(","):
            found = _RANGE.fullmatch(part.strip())
            if found is not None:
                low, high = int(found[1]), int(found[2])
                if low > high or high - low > MOST_CELLS:
                    raise ConfigError(f"{part!r} is no range; give the smaller number first")
                numbers.update(range(low, high + 1))
            elif re.fullmatch(r"[0-9]{1,7}", part.strip(), re.ASCII):
                numbers.add(int(part))
            else:
                raise ConfigError(f"{part!r} is no number; give such as 4, 1..8 or 2,4,8")
    return sorted(numbers)


Rules = Mapping[str, Sequence[str]]
"""By drafter the rules that may end its drafts, its own first; drafters without a choice lack."""


def own_settings(drafter: str, rules: Rules) -> dict[str, Setting]:
    """Return the settings a drafter has, and its own values."""
    if drafter == PLAIN.drafter:
        return {}
    own: dict[str, Setting]
    if drafter in NGRAM_DEFAULTS:
        own = dict(NGRAM_DEFAULTS[drafter])
    elif drafter in BASELINES:
        own = {"num_draft_tokens": BASELINES[drafter]().default_limit}
    else:
        own = {"num_draft_tokens": default_num_draft_tokens(drafter)}
    if drafter in rules:
        own["draft_length"] = rules[drafter][0]
    return own


def default_cell(drafter: str, rules: Rules) -> Cell:
    """Return a drafter as it ships."""
    return Cell(drafter, **own_settings(drafter, rules))  # type: ignore[arg-type]


def make_grid(
    drafters: Sequence[str],
    axes: Axes,
    *,
    always: Sequence[Cell] = (),
    rules: Rules | None = None,
) -> Grid:
    """Return every drafter with every combination of the axes that it has, and as it ships.

    The cells in `always` come first, then each drafter's own settings before the others: where two
    are equally good the earlier one is taken. Raises ConfigError for more than MOST_CELLS.
    """
    rules = rules or {}
    cells: dict[Cell, None] = dict.fromkeys(always)
    notes: list[str] = []
    impossible: dict[str, int] = {}
    for drafter in dict.fromkeys(drafters):
        own = own_settings(drafter, rules)
        cells[default_cell(drafter, rules)] = None
        missing = [HEADINGS[axis] for axis in axes.values if axis not in own]
        if missing and drafter != PLAIN.drafter:
            notes.append(f"{drafter} has no {' and no '.join(missing)}: not varied")
        choices = [axes.values.get(axis, (value,)) for axis, value in own.items()]
        for values in product(*choices):
            cell = Cell(drafter, **dict(zip(own, values, strict=True)))  # type: ignore[arg-type]
            if _is_possible(cell, rules):
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


def _is_possible(cell: Cell, rules: Rules) -> bool:
    if cell.draft_length is not None and cell.draft_length not in rules[cell.drafter]:
        return False
    if cell.order is None:
        return True
    if cell.order < 2 or (cell.window is not None and cell.window < cell.order):
        return False
    return cell.min_match is None or 1 <= cell.min_match < cell.order


def varied(cells: Iterable[Cell]) -> dict[str, tuple[Setting, ...]]:
    """Return the axes, "drafter" included, on which cells differ, and their values in order.

    Numbers ascend, names keep the order of the cells; that a drafter lacks a setting is no value.
    """
    listed = list(cells)
    found: dict[str, tuple[Setting, ...]] = {}
    for axis in ("drafter", *AXES):
        values = dict.fromkeys(cell.setting(axis) for cell in listed)
        values.pop(None, None)
        if len(values) > 1:
            found[axis] = tuple(sorted(values, key=_rank))
    return found


def _rank(value: Setting) -> int:
    # sorted() keeps names in the order in which they came.
    return value if isinstance(value, int) else 0
