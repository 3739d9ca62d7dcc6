"""Makes the drafters of a replay: akunu's by their registry names, and the baselines."""

from collections.abc import Callable, Sequence

from akunu_lab.replay.baseline import TraceDrafter, baselines
from akunu_lab.replay.cells import Cell
from akunu_py.api import (
    AutoDrafter,
    CostCurve,
    Draft,
    Drafter,
    DrafterKind,
    GenerationConfig,
    make_drafter,
)

_NOT_REPLAYABLE: dict[str, str] = {
    "candidates": "it learns from the target's logits, and a trace has none",
    "draft model": "it is a model that would have to run, and its target's choices with it",
    "file": "it needs counts of a corpus, and a replay loads none",
}


def not_replayable(name: str) -> str | None:
    """Return the reason why a drafter cannot be replayed on texts; None if it can.

    Raises ConfigError for a name of no drafter and no baseline.
    """
    if name in baselines():
        return None
    reason = _NOT_REPLAYABLE.get(DrafterKind.named(name).needs)
    if reason is None:
        make_drafter(name)
    return reason


def drafts_by_curve(name: str) -> bool:
    """Return whether a drafter chooses lengths by the cost curve, so each needs its own replay."""
    return name == AutoDrafter.name


def replayable_names() -> tuple[str, ...]:
    """Return the names of all drafters that can be replayed, akunu's first."""
    own = (name for name in DrafterKind.names("text") if name != "none")
    return (*own, *baselines())


class _EachReply(TraceDrafter):
    """A drafter of the registry, made anew for each reply."""

    def __init__(self, make: Callable[[], Drafter]) -> None:
        self._make = make
        self._drafter = make()

    def begin(self) -> None:
        self._drafter = self._make()

    def observe(self, tokens: Sequence[int]) -> None:
        self._drafter.observe(tokens)

    def propose(self, limit: int) -> Draft:
        return self._drafter.propose(limit)


class _AutoByCurve(_EachReply):
    """`auto` with a given curve instead of a measured one, and one state over all replies.

    The state takes in a reply when the next one begins.
    """

    def __init__(self, curve: CostCurve) -> None:
        self._state = AutoDrafter().state
        super().__init__(lambda: AutoDrafter(curve=curve, state=self._state))

    def reset(self) -> None:
        self._state = AutoDrafter().state


def make_trace_drafter(
    cell: Cell, curve: CostCurve | None, vocabulary_size: int | None = None
) -> TraceDrafter:
    """Make the drafter of a cell, new for a trace; `curve` is for one that drafts by it."""
    name = cell.drafter
    if name in baselines():
        return baselines()[name]()
    if drafts_by_curve(name) and curve is not None:
        return _AutoByCurve(curve)
    config = cell.config(GenerationConfig())
    return _EachReply(
        lambda: make_drafter(
            name,
            num_draft_tokens=cell.num_draft_tokens,
            config=config,
            vocabulary_size=vocabulary_size,
        )
    )
