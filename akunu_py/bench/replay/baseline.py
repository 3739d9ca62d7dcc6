"""Baselines: drafters that persist over all items of a trace.

A package offers baselines by an entry point of the group "akunu.baselines", whose object maps names
to their makers.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points

from akunu_py.values.types import Draft


class Baseline(ABC):
    """A drafter by published rules. Implements `Drafter`, over many replies.

    The calls for each reply are `begin`, `observe` (the prompt, then each step's output) and `end`.
    `reset` drops the state that outlives a reply. The drafts of a baseline depend only on the
    tokens it observed, not on the passes, so all draft lengths can be replayed in one walk over a
    text.

    `name` is its name in reports, `default_limit` its authors' default draft length.
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
        """Return at most `limit` tokens to follow the observed ones."""

    def drafts(self, limits: Sequence[int]) -> list[Sequence[int]]:
        """Return `draft(limit)` for each of the ascending `limits`.

        This default is for baselines whose shorter drafts are prefixes of the longer ones.
        """
        longest = self.draft(limits[-1])
        return [longest[:limit] for limit in limits]

    def propose(self, limit: int) -> Draft:
        """Return the draft as the protocol requires."""
        return Draft.chain(self.draft(limit), self.name)

    def end(self) -> None:  # noqa: B027 - most carry nothing over
        """Finish a reply, and add it to the state that outlives it."""

    def reset(self) -> None:  # noqa: B027 - most carry nothing over
        """Forget earlier replies."""


@functools.cache
def baselines() -> Mapping[str, Callable[[], Baseline]]:
    """Return the makers of all installed baselines by their names in reports."""
    found: dict[str, Callable[[], Baseline]] = {}
    for point in entry_points(group="akunu.baselines"):
        try:
            found.update(point.load())
        except ModuleNotFoundError:
            continue
    return found
