"""Baselines: drafters that live through all items of a trace.

A package offers some by an entry point of the group "akunu.baselines", whose object maps names to
what makes each.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points

from akunu_py.types import Draft


class Baseline(ABC):
    """A drafter after somebody's published rules. Implements `Drafter`, over many replies.

    `begin`, `observe` (the prompt, then each step's output), `end`, and again; `reset` drops what
    outlives a reply. What a baseline drafts is a function of what it observed, not of which passes
    there were: so all draft lengths can be replayed in one walk over a text.

    `name` is its name in reports, `default_limit` the draft length that its authors ship.
    """

    name: str
    default_limit: int

    def begin(self) -> None:  # noqa: B027 - most need nothing here
        """Start a reply."""

    @abstractmethod
    def observe(self, tokens: Sequence[int]) -> None:
        """Take in committed tokens, in order."""

    @abstractmethod
    def draft(self, limit: int) -> Sequence[int]:
        """Return at most `limit` tokens to follow what was observed."""

    def drafts(self, limits: Sequence[int]) -> list[Sequence[int]]:
        """Return `draft(limit)` for each of the ascending `limits`.

        Here for those whose shorter drafts are how the longer ones begin.
        """
        longest = self.draft(limits[-1])
        return [longest[:limit] for limit in limits]

    def propose(self, limit: int) -> Draft:
        """Return the draft as the protocol has it."""
        return Draft.chain(self.draft(limit), self.name)

    def end(self) -> None:  # noqa: B027 - most carry nothing over
        """Finish a reply: what outlives it takes it in."""

    def reset(self) -> None:  # noqa: B027 - most carry nothing over
        """Forget earlier replies."""


@functools.cache
def baselines() -> Mapping[str, Callable[[], Baseline]]:
    """Return the makers of all installed baselines by the names they have in reports."""
    found: dict[str, Callable[[], Baseline]] = {}
    for point in entry_points(group="akunu.baselines"):
        try:
            found.update(point.load())
        except ModuleNotFoundError:
            continue
    return found
