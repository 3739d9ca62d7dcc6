"""Which cells a sweep has where the command leaves that open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from akunu_py.bench.replay.baselines import BASELINES
from akunu_py.bench.sweep.grid import PLAIN, Axes, Cell, Grid, Setting, default_cell, make_grid
from akunu_py.bench.sweep.replayed import check_replayable
from akunu_py.bench.sweep.settings import length_rules
from akunu_py.drafting.registry import WITH_COUNTS, WITH_DRAFT_MODEL, check_drafter
from akunu_py.errors import ConfigError

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
    """The cells; `default` is taken where nobody says, `own` are the drafters as they ship."""

    grid: Grid
    default: Cell
    own: Mapping[str, Cell]


def make_plan(
    drafters: Sequence[str],
    values: Mapping[str, Sequence[Setting]],
    *,
    live: bool,
    has_draft_model: bool = False,
    has_counts: bool = False,
    quick: bool = False,
) -> Plan:
    """Plan a sweep of these drafters over these values; both may be left out.

    Without values the grid is one that fits the way the cells are measured. With a draft model the
    default is to ask it. Raises ConfigError for drafters or values that do not go.
    """
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
        elif name in WITH_DRAFT_MODEL and not has_draft_model:
            raise ConfigError(f"{name} asks a draft model; give one with --draft-model")
        elif name in WITH_COUNTS and not has_counts:
            raise ConfigError(f"{name} needs counts of a corpus; give them with --counts")
        else:
            check_drafter(name)
    names = [name for name in dict.fromkeys((*drafters, default_drafter)) if name != PLAIN.drafter]
    rules = length_rules(names, live=live)
    own = {name: default_cell(name, rules) for name in names}
    own[PLAIN.drafter] = PLAIN
    axes = Axes(values)
    grid = make_grid(drafters, axes, always=(own[default_drafter], PLAIN), rules=rules)
    if "draft_length" in values:
        _check_rules(values["draft_length"], rules)
    return Plan(grid, own[default_drafter], own)


def _check_rules(wanted: Sequence[Setting], rules: Mapping[str, Sequence[str]]) -> None:
    known = dict.fromkeys(rule for found in rules.values() for rule in found)
    for rule in wanted:
        if rule not in known:
            raise ConfigError(
                f"no drafter of the sweep has the length rule {rule!r}"
                + (f"; they have {', '.join(known)}" if known else "; decode with --live")
            )
