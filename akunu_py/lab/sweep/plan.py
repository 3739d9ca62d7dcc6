"""Plans the cells of a sweep, with defaults for open choices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from akunu_py.drafting.registry import check_drafter, kind_of
from akunu_py.lab.baselines import BASELINES
from akunu_py.lab.sweep.grid import (
    METHODS,
    PLAIN,
    Axes,
    Cell,
    Choices,
    Grid,
    Setting,
    default_cell,
    make_grid,
)
from akunu_py.lab.sweep.replayed import check_replayable
from akunu_py.lab.sweep.settings import cell_config, drafter_choices, is_configuration
from akunu_py.system.errors import ConfigError
from akunu_py.values.types import GenerationConfig

_DEFAULT = "auto"
_REPLAYED = ("ngram", "ngram-window", "lookup", _DEFAULT)
_LIVE = ("ngram", "recycling", _DEFAULT)

_GRID: Mapping[str, Sequence[Setting]] = {
    "num_draft_tokens": (1, 2, 3, 4, 6, 8, 12, 16),
    "order": (2, 3, 4, 5),
    "window": (128, 512, 2048),
    "min_match": (1, 2, 3),
}
_QUICK_GRID: Mapping[str, Sequence[Setting]] = {
    "num_draft_tokens": (2, 4, 8),
    "order": (3, 4),
    "min_match": (1, 2),
}
_LIVE_GRID: Mapping[str, Sequence[Setting]] = {
    "num_draft_tokens": (2, 4, 8),
    "draft_length": ("budget", "fixed"),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The cells; `default` is akunu's default, `own` are the drafters as they ship."""

    grid: Grid
    default: Cell
    own: Mapping[str, Cell]


def make_plan(
    drafters: Sequence[str],
    values: Mapping[str, Sequence[Setting]],
    *,
    live: bool,
    temperature: float = 0.0,
    has_draft_model: bool = False,
    has_counts: bool = False,
    quick: bool = False,
) -> Plan:
    """Plan a sweep of these drafters over these values; both may be empty.

    Without values the grid suits the way the cells are measured. With a draft model the default
    drafter asks it. Raises ConfigError for drafters or values that are impossible at this
    temperature.
    """
    config = GenerationConfig(temperature=temperature)
    default_drafter = "draft-model" if live and has_draft_model else _DEFAULT
    if not drafters:
        drafters = (*_LIVE, default_drafter) if live else _REPLAYED
    if not values:
        values = _LIVE_GRID if live else _QUICK_GRID if quick else _GRID
    for name in drafters:
        if not live:
            check_replayable(name)
        elif name in BASELINES:
            raise ConfigError(f"{name} is a baseline of replays: it cannot be decoded with")
        elif kind_of(name).needs == "draft model" and not has_draft_model:
            raise ConfigError(f"{name} asks a draft model; give one with --draft-model")
        elif kind_of(name).needs == "prediction head":
            raise ConfigError(f"{name} asks a prediction head, and a sweep has none; leave it out")
        elif kind_of(name).needs == "counts" and not has_counts:
            raise ConfigError(f"{name} needs counts of a corpus; give them with --counts")
        else:
            check_drafter(name)
    names = [name for name in dict.fromkeys((*drafters, default_drafter)) if name != PLAIN.drafter]
    axes = Axes(values)
    for axis in METHODS:
        if axis in values and not live:
            raise ConfigError(
                f"{axis} needs the models themselves, which a replay does not have; decode with "
                "--live"
            )
    choices = drafter_choices(names, values, live=live)
    own = {name: default_cell(name, choices) for name in names}
    own[PLAIN.drafter] = PLAIN
    grid = make_grid(
        drafters,
        axes,
        always=(own[default_drafter], PLAIN),
        choices=choices,
        works=lambda cell: is_configuration(cell, config),
    )
    if "draft_length" in values:
        _check_rules(values["draft_length"], choices)
    _check_methods(values, grid, config)
    return Plan(grid, own[default_drafter], own)


def _check_methods(
    values: Mapping[str, Sequence[Setting]], grid: Grid, config: GenerationConfig
) -> None:
    """Raise ConfigError for a value that no cell has, with the reason."""
    for axis in METHODS:
        for value in values.get(axis, ()):
            if any(cell.setting(axis) == value for cell in grid.cells):
                continue
            if axis == "num_proposals":
                raise ConfigError("no drafter of the sweep proposes several tokens for a position")
            # Alone it does not go together with the temperature, or with comparing drafts.
            cell_config(Cell(PLAIN.drafter, **{axis: value}), config)  # type: ignore[arg-type]
            raise ConfigError(f"no drafter of the sweep can have {axis} {value}")


def _check_rules(wanted: Sequence[Setting], choices: Choices) -> None:
    known = dict.fromkeys(
        rule for found in choices.values() for rule in found.get("draft_length", ())
    )
    for rule in wanted:
        if rule not in known:
            raise ConfigError(
                f"no drafter of the sweep has the length rule {rule!r}"
                + (f"; they have {', '.join(map(str, known))}" if known else "; decode with --live")
            )
