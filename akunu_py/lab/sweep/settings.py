"""Cells as configurations, and the named settings of each drafter.

`fixed` drafts the number of tokens of the cell. `budget` drafts as many tokens as pay by measured
costs; it is not available in a replay, which has none. `entropy` and `lower-bound` need a drafter
that draws from probabilities. Under all rules but `budget` nothing else ends a draft.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from akunu_py.bench.metrics import reply_exactness
from akunu_py.drafting.registry import kind_of, proposes_several
from akunu_py.lab.sweep.grid import METHODS, Cell, Choices, Setting
from akunu_py.system.errors import ConfigError
from akunu_py.values.generation_config import Exactness
from akunu_py.values.types import GenerationConfig

_BY_PROBABILITIES = ("entropy", "lower-bound")


def drafter_choices(
    drafters: Iterable[str], values: Mapping[str, Sequence[Setting]], *, live: bool
) -> Choices:
    """Return the named settings of these drafters, each with its own value first.

    They have all their rules of length, and those of METHODS that are in `values`.
    """
    choices: dict[str, dict[str, Sequence[Setting]]] = {}
    for drafter in drafters:
        found: dict[str, Sequence[Setting]] = {}
        own = ("budget", "fixed") if live else ("fixed",)
        more = _BY_PROBABILITIES if kind_of(drafter).has_q else ()
        if live or more:
            found["draft_length"] = (*own, *more)
        for axis, default in METHODS.items():
            if axis in values and (axis != "num_proposals" or proposes_several(drafter)):
                found[axis] = tuple(dict.fromkeys((default, *values[axis])))
        choices[drafter] = found
    return choices


def cell_config(cell: Cell, config: GenerationConfig) -> GenerationConfig:
    """Return a configuration with the drafter and the settings of a cell.

    Raises ConfigError for settings that do not go together at the config's temperature.
    """
    by_budget = cell.draft_length == "budget"
    settled = replace(
        config,
        drafter=cell.drafter,
        num_draft_tokens=cell.num_draft_tokens,
        ngram_order=cell.order,
        ngram_window=cell.window,
        ngram_min_match=cell.min_match,
        draft_budget="auto" if by_budget else "always",
        draft_sampling=cell.draft_sampling or "coupled",  # type: ignore[arg-type]
        num_proposals=cell.num_proposals or 1,
        lenience=1.0 if cell.lenience is None else cell.lenience,
        adjust_residual=cell.adjust != "no",
    )
    if cell.draft_length is None or by_budget or not kind_of(cell.drafter).has_q:
        return settled
    return replace(settled, draft_length=cell.draft_length)  # type: ignore[arg-type]


def is_configuration(cell: Cell, config: GenerationConfig) -> bool:
    """Return whether the settings of a cell go together at the config's temperature."""
    try:
        cell_config(cell, config)
    except ConfigError:
        return False
    return True


def cell_exactness(cell: Cell, config: GenerationConfig) -> Exactness:
    """Return how the replies of a cell relate to replies of plain decoding."""
    return reply_exactness(cell_config(cell, config))
