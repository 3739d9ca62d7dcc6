"""Plans the cells of a sweep, with defaults for open choices."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from akunu_lab.replay.baseline import baselines
from akunu_lab.replay.cells import METHODS, PLAIN, Cell, Choices, Setting, default_cell
from akunu_lab.replay.trace_drafters import not_replayable
from akunu_lab.sweep.grid import AxisValues, Grid, check_values, make_grid
from akunu_py.api import ConfigError, DrafterKind, GenerationConfig, make_drafter

_DEFAULT = "auto"
_REPLAYED = ("ngram", "ngram-window", "lookup", _DEFAULT)
_LIVE = ("ngram", "recycling", _DEFAULT)

_GRID: AxisValues = {
    "num_draft_tokens": (1, 2, 3, 4, 6, 8, 12, 16),
    "order": (2, 3, 4, 5),
    "window": (128, 512, 2048),
    "min_match": (1, 2, 3),
}
_QUICK_GRID: AxisValues = {
    "num_draft_tokens": (2, 4, 8),
    "order": (3, 4),
    "min_match": (1, 2),
}
_LIVE_GRID: AxisValues = {
    "num_draft_tokens": (2, 4, 8),
    "draft_length": ("budget", "fixed"),
}

_BY_PROBABILITIES = ("entropy", "lower-bound")
"""Length rules of drafters that draw from probabilities."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The cells; `default` is akunu's default, `own` are the drafters as they ship."""

    grid: Grid
    default: Cell
    own: Mapping[str, Cell]


def make_plan(
    drafters: Sequence[str],
    values: AxisValues,
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
        if live:
            _check_live(name, has_draft_model=has_draft_model, has_counts=has_counts)
        elif (reason := not_replayable(name)) is not None:
            raise ConfigError(f"{name} cannot be replayed: {reason}; decode with --live")
    names = [name for name in dict.fromkeys((*drafters, default_drafter)) if name != PLAIN.drafter]
    check_values(values)
    for axis in METHODS:
        if axis in values and not live:
            raise ConfigError(
                f"{axis} needs the models themselves, which a replay does not have; decode with "
                "--live"
            )
    choices = drafter_choices(names, values, live=live)
    own = {name: default_cell(name, choices) for name in names}
    own[PLAIN.drafter] = PLAIN

    def works(cell: Cell) -> bool:
        try:
            cell.config(config)
        except ConfigError:
            return False
        return True

    always = (own[default_drafter], PLAIN)
    grid = make_grid(drafters, values, always=always, choices=choices, works=works)
    _check_rules(values.get("draft_length", ()), choices)
    _check_methods(values, grid, config)
    return Plan(grid, own[default_drafter], own)


def _check_live(name: str, *, has_draft_model: bool, has_counts: bool) -> None:
    if name in baselines():
        raise ConfigError(f"{name} is a baseline of replays: it cannot be decoded with")
    needs = DrafterKind.named(name).needs
    if needs == "draft model" and not has_draft_model:
        raise ConfigError(f"{name} asks a draft model; give one with --draft-model")
    if needs == "prediction head":
        raise ConfigError(f"{name} asks a prediction head, and a sweep has none; leave it out")
    if needs == "file" and not has_counts:
        raise ConfigError(f"{name} needs counts of a corpus; give them with --counts")
    if needs in {"text", "candidates"}:
        make_drafter(name)


def _has(drafter: str, option: str) -> bool:
    return DrafterKind.named(drafter, [option]).has(option)


def drafter_choices(drafters: Iterable[str], values: AxisValues, *, live: bool) -> Choices:
    """Return the named settings of these drafters, each with its own value first.

    They have all their rules of length, and those of METHODS that are in `values`.
    """
    choices: dict[str, dict[str, Sequence[Setting]]] = {}
    for drafter in drafters:
        if drafter in baselines():
            continue
        found: dict[str, Sequence[Setting]] = {}
        own = ("budget", "fixed") if live else ("fixed",)
        more = _BY_PROBABILITIES if _has(drafter, "draft_length") else ()
        if live or more:
            found["draft_length"] = (*own, *more)
        for axis, default in METHODS.items():
            if axis in values and (axis != "num_proposals" or _has(drafter, axis)):
                found[axis] = tuple(dict.fromkeys((default, *values[axis])))
        choices[drafter] = found
    return choices


def _check_methods(values: AxisValues, grid: Grid, config: GenerationConfig) -> None:
    """Raise ConfigError for a value that no cell has, with the reason."""
    for axis in METHODS:
        for value in values.get(axis, ()):
            if any(cell.setting(axis) == value for cell in grid.cells):
                continue
            if axis == "num_proposals":
                raise ConfigError("no drafter of the sweep proposes several tokens for a position")
            # Alone it does not go together with the temperature, or with comparing drafts.
            Cell(PLAIN.drafter, **{axis: value}).config(config)  # type: ignore[arg-type]
            raise ConfigError(f"no drafter of the sweep can have {axis} {value}")


def _check_rules(wanted: Iterable[Setting], choices: Choices) -> None:
    known = dict.fromkeys(
        rule for found in choices.values() for rule in found.get("draft_length", ())
    )
    for rule in wanted:
        if rule not in known:
            raise ConfigError(
                f"no drafter of the sweep has the length rule {rule!r}"
                + (f"; they have {', '.join(map(str, known))}" if known else "; decode with --live")
            )
