"""The protocol of verifiers by probability, and the records of their decisions."""

from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from akunu_lab.verifying.draft_law import DraftLaw
from akunu_lab.verifying.rejection import Rows
from akunu_py.api import Draft, Verification

Origin = Literal["target", "residual"]
"""Origin of a step's last token: the target's row, or the residual after rejections."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One draw that was tried."""

    node: int
    token: int
    position: int
    p: float
    """Probability in what earlier rejections at the position left of the target's distribution."""

    q: float
    """Probability with which the token was drawn."""

    uniform: float | None
    """The uniform number that decided; None if nothing is random."""

    accepted: bool

    @property
    def ratio(self) -> float | None:
        """Return p / q; None if q is 0."""
        return self.p / self.q if self.q > 0 else None


@dataclass(frozen=True, slots=True)
class Verdict(Verification):
    """A verifier's decision on a draft, with its trials in order."""

    trials: tuple[Trial, ...]
    origin: Origin

    def explain(self, detail: Any) -> Any:
        """Return a step's detail with the trial of each token; of several trials, the last."""
        trials = {trial.node: trial for trial in self.trials}
        drafted = tuple(
            replace(token, accepted=trial.accepted, p=trial.p, q=trial.q, uniform=trial.uniform)
            if (trial := trials.get(node)) is not None
            else replace(token, accepted=None)
            for node, token in enumerate(detail.drafted)
        )
        return replace(detail, drafted=drafted, origin=self.origin)


class LawVerifier(Protocol):
    """Accepts or rejects drafted tokens by the target's probabilities."""

    @property
    def name(self) -> str:
        """Return the name used in traces and statistics."""

    @property
    def exact(self) -> bool:
        """Return whether the output follows the target's distribution."""

    @property
    def uses_q(self) -> bool:
        """Return whether the verifier uses the distributions of draws."""

    def verify(self, draft: Draft, law: DraftLaw, rows: Rows, position: int) -> Verdict:
        """Verify a draft drawn by `law` with the target's distributions [len + 1, vocab].

        `position` is the position of the token after the last committed one, counted from the
        beginning of the prompt.

        Raises ContractError for rows of a wrong shape or that are not distributions.
        """
