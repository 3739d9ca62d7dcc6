"""What decides over a draft by probabilities, and how it tells what it decided."""

from dataclasses import dataclass
from typing import Protocol

from akunu_py.decode_stats import Origin
from akunu_py.lab.verifying.draft_law import DraftLaw
from akunu_py.lab.verifying.rejection import Rows
from akunu_py.types import Draft, Verification


@dataclass(frozen=True, slots=True)
class Trial:
    """One draw that was tried.

    Attributes:
        node: of the draft.
        token: its token.
        position: of the token, counted from the beginning of the prompt.
        p: the target's probability, of what earlier rejections at the position left.
        q: the probability it was drawn with.
        uniform: the number that decided; None where nothing is random.
        accepted: whether it was.

    """

    node: int
    token: int
    position: int
    p: float
    q: float
    uniform: float | None
    accepted: bool

    @property
    def ratio(self) -> float | None:
        """Return p / q; None where q is 0."""
        return self.p / self.q if self.q > 0 else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verifier decided over a draft, and how it came to it, in the order of the trials."""

    verification: Verification
    trials: tuple[Trial, ...]
    origin: Origin


class LawVerifier(Protocol):
    """Decides over drafts by probabilities."""

    @property
    def name(self) -> str:
        """Return what traces and statistics call it."""

    @property
    def exact(self) -> bool:
        """Return whether what comes out follows the target's law."""

    @property
    def uses_q(self) -> bool:
        """Return whether it looks at what a draft was drawn from."""

    def verify(self, draft: Draft, law: DraftLaw, rows: Rows, position: int) -> Verdict:
        """Decide over a draft drawn by `law` with the target's distributions [len + 1, vocab].

        `position` is that of the token after the last committed one, from the prompt's beginning.

        Raises ContractError for rows that do not fit or are no distributions.
        """
