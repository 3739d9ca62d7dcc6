"""The drafters a replay compares: akunu's by their registry names, and the baselines."""

from collections.abc import Callable, Sequence
from typing import Protocol

from akunu_py.bench.replay.baseline import baselines
from akunu_py.drafting import default_num_draft_tokens, drafter_names, make_drafter
from akunu_py.drafting.auto import AutoDrafter, AutoState
from akunu_py.drafting.auto.drafter import MAX_LENGTH
from akunu_py.drafting.registry import Need, kind_of
from akunu_py.protocols import Drafter
from akunu_py.system.errors import ConfigError
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import Draft

_NOT_REPLAYABLE: dict[Need, str] = {
    "candidates": "it learns from the target's logits, and a trace has none",
    "draft model": "it is a model that would have to run, and its target's choices with it",
    "counts": "it needs counts of a corpus, and a replay loads none",
}


def not_replayable(name: str) -> str | None:
    """Return the reason why a drafter cannot be replayed on texts; None if it can.

    Raises ConfigError for a name of no drafter and no baseline.
    """
    return None if name in baselines() else _NOT_REPLAYABLE.get(kind_of(name).needs)


class Arm(Protocol):
    """A drafter over all items of a trace: a `Drafter` that is told when replies begin and end.

    `default_limit` is its draft length in a replay by default.
    """

    @property
    def default_limit(self) -> int:
        """Return the maximum length of its drafts."""

    def begin(self) -> None:
        """Start a reply."""

    def observe(self, tokens: Sequence[int]) -> None:
        """Take in committed tokens."""

    def propose(self, limit: int) -> Draft:
        """Guess at most `limit` tokens."""

    def end(self) -> None:
        """Finish a reply."""

    def reset(self) -> None:
        """Forget earlier replies."""


class RegistryArm:
    """A drafter of the registry, made anew for each reply. Implements `Arm`."""

    def __init__(self, make: Callable[[], Drafter], *, default_limit: int) -> None:
        self._make = make
        self.default_limit = default_limit
        self.begin()

    def begin(self) -> None:
        """Make the drafter of the next reply."""
        self._drafter = self._make()

    def observe(self, tokens: Sequence[int]) -> None:
        self._drafter.observe(tokens)

    def propose(self, limit: int) -> Draft:
        return self._drafter.propose(limit)

    def end(self) -> None:
        """Need nothing: a drafter of one reply carries nothing over."""

    def reset(self) -> None:
        """Need nothing: a drafter of one reply carries nothing over."""


class AutoArm(RegistryArm):
    """`auto` with a given curve instead of a measured one, and one state over all replies.

    The state takes in a reply when the next one begins.
    """

    def __init__(self, curve: CostCurve) -> None:
        self._curve = curve
        self._state = AutoState()
        super().__init__(self._next, default_limit=MAX_LENGTH)

    def _next(self) -> Drafter:
        return AutoDrafter(curve=self._curve, state=self._state)

    def reset(self) -> None:
        """Start from the state of a new engine."""
        self._state = AutoState()


CURVE_BOUND: dict[str, Callable[[CostCurve], Arm]] = {"auto": AutoArm}
"""Makers of arms whose drafters choose a draft's length by the cost curve."""


def check_names(names: Sequence[str]) -> None:
    """Raise ConfigError for a name of no drafter and no baseline."""
    for name in names:
        if not_replayable(name) is None and name not in baselines():
            make_drafter(name)


def is_curve_bound(name: str) -> bool:
    """Return whether an arm drafts by the cost curve, so that each curve needs its own replay."""
    return name in CURVE_BOUND


def make_arm(name: str, curve: CostCurve | None = None) -> Arm:
    """Make an arm; `curve` is for drafters that use it.

    Raises ConfigError for an unknown name and for a drafter that cannot be replayed.
    """
    if name in baselines():
        return baselines()[name]()
    if (reason := not_replayable(name)) is not None:
        raise ConfigError(f"{name} cannot be replayed: {reason}")
    if name in CURVE_BOUND and curve is not None:
        return CURVE_BOUND[name](curve)
    return RegistryArm(lambda: make_drafter(name), default_limit=default_num_draft_tokens(name))


def known_names() -> tuple[str, ...]:
    """Return the names of all arms that can be replayed, akunu's drafters first."""
    own = (name for name in drafter_names("text") if name != "none")
    return (*own, *baselines())
