"""What a step did, token by token: put together where somebody asks for it."""

from typing import Protocol, runtime_checkable

from akunu_py.decode_stats import DraftedToken, StepDetail
from akunu_py.decoding.tree_choice import TreeChoice
from akunu_py.decoding.verifiers import Verdict
from akunu_py.types import Draft, Verification


class Length(Protocol):
    """What an entropy-adaptive length came from."""

    @property
    def entropy(self) -> float:
        """Return H, 0 to 1."""

    @property
    def num_draft_tokens(self) -> int:
        """Return gamma."""


@runtime_checkable
class LengthTeller(Protocol):
    """A drafter that can say what its latest draft's length came from."""

    @property
    def length_trace(self) -> Length | None:
        """Return it; None where the length has no such reason."""


def step_detail(
    draft: Draft,
    verification: Verification,
    verdict: Verdict | None,
    tree: TreeChoice | None,
    *,
    position: int,
    length: Length | None,
) -> StepDetail:
    """Return the detail of a step that verified a draft; `Step` says what the values are.

    `position` is that of the step's first token, from the beginning of the prompt; `length` what
    the length of its draft came from, where that is known. Of a draft that was compared with the
    target's choices all tokens that follow an accepted one, or none, were tested; of one that a
    verifier decided over those it tried, each as it was tried last.
    """
    accepted = set(verification.accepted)
    trials = {trial.node: trial for trial in verdict.trials} if verdict else {}
    drafted: list[DraftedToken] = []
    for node, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
        trial = trials.get(node)
        if verdict is None:
            tested = parent == -1 or parent in accepted
            outcome = node in accepted if tested else None
        else:
            outcome = None if trial is None else trial.accepted
        origin = draft.origins[node] if draft.origins else draft.source
        drafted.append(
            DraftedToken(
                token,
                parent,
                outcome,
                draft.confidence[node] if draft.confidence else None,
                None if trial is None else trial.p,
                None if trial is None else trial.q,
                None if trial is None else trial.uniform,
                None if origin == draft.source else origin,
            )
        )
    return StepDetail(
        position=position,
        source=draft.source,
        match_length=draft.match_length,
        drafted=tuple(drafted),
        token=verification.next_token,
        kind=verification.kind,
        origin="target" if verdict is None else verdict.origin,
        entropy=None if length is None else length.entropy,
        gamma=None if length is None else length.num_draft_tokens,
        tree=None if tree is None else tree.explain(),
    )
