"""What a cell means as a configuration, and which rules of length a drafter has.

`fixed` drafts as many tokens as the cell says; `budget` as many as pay by measured costs, which a
replay does not have: there it is no rule. `entropy` and `lower-bound` need a drafter that draws
from probabilities. Under all but `budget` nothing else ends a draft.
"""

from collections.abc import Iterable
from dataclasses import replace

from akunu_py.bench.sweep.grid import Cell, Rules
from akunu_py.drafting.registry import has_probabilities
from akunu_py.types import GenerationConfig

_BY_PROBABILITIES = ("entropy", "lower-bound")


def length_rules(drafters: Iterable[str], *, live: bool) -> Rules:
    """Return the rules of these drafters, each one's own first."""
    rules: dict[str, tuple[str, ...]] = {}
    for drafter in drafters:
        own = ("budget", "fixed") if live else ("fixed",)
        more = _BY_PROBABILITIES if has_probabilities(drafter) else ()
        if live or more:
            rules[drafter] = (*own, *more)
    return rules


def cell_config(cell: Cell, config: GenerationConfig) -> GenerationConfig:
    """Return a configuration with the drafter and the settings of a cell."""
    by_budget = cell.draft_length == "budget"
    settled = replace(
        config,
        drafter=cell.drafter,
        num_draft_tokens=cell.num_draft_tokens,
        ngram_order=cell.order,
        ngram_window=cell.window,
        ngram_min_match=cell.min_match,
        draft_budget="auto" if by_budget else "always",
    )
    if cell.draft_length is None or by_budget or not has_probabilities(cell.drafter):
        return settled
    return replace(settled, draft_length=cell.draft_length)  # type: ignore[arg-type]
