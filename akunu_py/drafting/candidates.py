"""What drafters may be told of the target besides its output."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class CandidateObserver(Protocol):
    """A drafter that learns from the target's own runners-up.

    Optional: who runs the loop asks for it with `isinstance`, and computes top-k only then.
    """

    def observe_candidates(self, rows: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Take in the rows of a pass, before `observe` gets its output.

        A row is (token fed, the target's most likely next ids, best first). Rows of rejected draft
        tokens count: what the target would say after them is known all the same.
        """
