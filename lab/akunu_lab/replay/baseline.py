"""Drafters over many replies, and the baselines: those that persist over all items of a trace.

A package offers baselines by an entry point of the group "akunu.baselines", whose object maps names
to their makers.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points

from akunu_py.api import Draft


class TraceDrafter(ABC):
    """Drafts for all items of a trace, and is told when replies begin and end.

    The calls for each reply are `begin`, `observe` (the prompt, then each step's output) and `end`.
    """

    def begin(self) -> None:  # noqa: B027 - most need nothing here
        """Start a reply."""

    @abstractmethod
    def observe(self, tokens: Sequence[int]) -> None:
        """Take in committed tokens, in order."""

    @abstractmethod
    def propose(self, limit: int) -> Draft:
        """Guess at most `limit` tokens."""

    def end(self) -> None:  # noqa: B027 - most carry nothing over
        """Finish a reply, and add it to the state that outlives it."""

    def reset(self) -> None:  # noqa: B027 - most carry nothing over
        """Forget earlier replies."""


class Baseline(TraceDrafter):
    """A drafter by published rules.

    Its drafts depend only on the tokens it observed, not on the passes, so all draft lengths can be
    replayed in one walk over a text.

    `name` is its name in reports, `default_limit` its authors' default draft length.
    """

    name: str
    default_limit: int

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
        return Draft.chain(self.draft(limit), self.name)


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
