"""Decoding with verifiers by probability: rejection sampling, lenience, sampled trees.

The loop is that of `akunu_py.decoding.loop`, with another rule. The target returns distributions
instead of choices, and the budget never cuts a draft after it was drawn.
"""

from collections.abc import Callable, Iterator
from typing import Any

from akunu_lab.verifying.draft_law import asked, certain, draft_law
from akunu_lab.verifying.verdict import LawVerifier, Verdict
from akunu_py.decoding.budget import Budget, BudgetState, OwnCost, VerifyAll
from akunu_py.decoding.loop import Step, decode
from akunu_py.protocols import Drafter, Target, as_drafter, as_target
from akunu_py.system.errors import ContractError
from akunu_py.values.types import Draft


def decode_by_law(
    target: Target,
    drafter: Drafter,
    last: int,
    *,
    rule: LawVerifier,
    budget: Budget | VerifyAll | None = None,
    **settings: Any,
) -> Iterator[Step]:
    """Yield steps as `akunu_py.decoding.loop.decode` does; `rule` accepts drafted tokens.

    `budget` comes from `law_budget`; without one, whole drafts are verified. `settings` are those
    of `decode`. A step's verification is a `Verdict`.

    Raises ContractError as `decode` does, and for a target without distributions.
    """
    target = as_target(target)
    if not target.has_distributions:
        raise ContractError(
            f"the verifier {rule.name!r} needs a target with distributions; this one has none"
        )
    drafter = as_drafter(drafter)
    drawn = rule.uses_q and drafter.draws
    budget = budget or (VerifyAllDrawn(target, drafter) if drawn else VerifyAll(target))

    def verify(last: int, draft: Draft, position: int) -> Verdict:
        law = draft_law(drafter, draft) if rule.uses_q else certain(draft)
        return rule.verify(draft, law, target.distributions(last, draft), position)

    return decode(target, drafter, last, verify=verify, budget=budget, **settings)


class VerifyAllDrawn(VerifyAll):
    """Stands in for a budget where drafts are drawn: whole drafts are verified."""

    def __init__(self, target: Target, drafter: Drafter) -> None:
        super().__init__(target)
        self._without_branches = _without_branches(target, drafter)

    def trim(self, draft: Draft) -> Draft:
        """Return the draft, or the drafter's chain in place of a tree that the target refuses."""
        return self._without_branches(draft)


class DrawnBudget(Budget):
    """Decides how many tokens a drafter that samples from q may draw.

    The decision comes before the draw: cutting a draft because of what was drawn would bias the
    output of rejection sampling. So the estimate uses only the drafter's record and its time per
    token.
    """

    def __init__(
        self, state: BudgetState, *, context: int, target: Target, drafter: Drafter, name: str = ""
    ) -> None:
        # Without the drafter: no rule that sees the drawn tokens may end its draft.
        super().__init__(state, context=context, target=target, pipelined=False, name=name)
        self._without_branches = _without_branches(target, drafter)

    def limit(self, most: int) -> int:
        """Return how many tokens to draw, at most `most`."""
        most = super().limit(most)
        if most <= 0:
            return 0
        probabilities = self._acceptance.probabilities(Draft.chain(range(most), self._source))
        own = OwnCost(self._drafter.a_token)
        size, _ = self._best_size(probabilities, self.rate, own)
        return size or int(self._may_try(probabilities[0]))

    def _may_try(self, probability: float) -> bool:
        loss = self._trial_loss(probability, self._drafter.a_token)
        if loss >= self._allowance:
            return False
        self._allowance -= max(0.0, loss)
        return True

    def trim(self, draft: Draft) -> Draft:
        """Return the draft, or the drafter's chain in place of a tree that the target refuses."""
        kept = self._without_branches(draft)
        self._proposed = len(kept)
        if kept.tokens:
            self._source = kept.source
            self._shadow = Draft(kept.tokens, kept.parents, kept.source)
            self._chosen = []
        return kept


def law_budget(
    state: BudgetState,
    *,
    context: int,
    target: Target,
    drafter: Drafter,
    name: str = "",
    rule: LawVerifier,
) -> Budget:
    """Return the budget of a reply whose drafts are verified by `rule`."""
    if rule.uses_q and as_drafter(drafter).draws:
        return DrawnBudget(state, context=context, target=target, drafter=drafter, name=name)
    return Budget(
        state, context=context, target=target, drafter=drafter, pipelined=False, name=name
    )


def _without_branches(target: Target, drafter: Drafter) -> Callable[[Draft], Draft]:
    """Return a function that turns a tree into a chain where the target refuses the tree."""
    target = as_target(target)
    without_branches: Callable[[Draft], Draft] = asked(as_drafter(drafter), "without_branches")

    def chain(draft: Draft) -> Draft:
        # Equal draws share a node, so a sampled tree may be a chain by chance. Chance must not
        # decide how often a token is tried: that would bias the distribution.
        if not draft.tokens or target.takes_tree(draft):
            return draft
        return without_branches(draft)

    return chain
