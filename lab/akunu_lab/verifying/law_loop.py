"""Decoding with verifiers by probability: rejection sampling, lenience, sampled trees.

The loop is that of `akunu_py.decoding.loop`, with another rule. The target returns distributions
instead of choices, and the budget never cuts a draft after it was drawn.
"""

from collections.abc import Callable, Iterator
from typing import Any

from akunu_lab.verifying.draft_law import asked, certain, draft_law
from akunu_lab.verifying.verdict import LawVerifier, Verdict
from akunu_py.api import Budget, ContractError, Draft, Drafter, Target, decode


def decode_by_law(
    target: Target,
    drafter: Drafter,
    last: int,
    *,
    rule: LawVerifier,
    budget: Any = None,
    **settings: Any,
) -> Iterator[Any]:
    """Yield steps as `akunu_py.decoding.loop.decode` does; `rule` accepts drafted tokens.

    `budget` comes from `law_budget`; without one, whole drafts are verified. `settings` are those
    of `decode`. A step's verification is a `Verdict`.

    Raises ContractError as `decode` does, and for a target without distributions.
    """
    if not target.has_distributions:
        raise ContractError(
            f"the verifier {rule.name!r} needs a target with distributions; this one has none"
        )
    drafter = Drafter.of(drafter)
    drawn = rule.uses_q and drafter.draws
    budget = budget or (VerifyAllDrawn(target, drafter) if drawn else None)

    def verify(last: int, draft: Draft, position: int) -> Verdict:
        law = draft_law(drafter, draft) if rule.uses_q else certain(draft)
        return rule.verify(draft, law, target.distributions(last, draft), position)

    return decode(target, drafter, last, verify=verify, budget=budget, **settings)


class VerifyAllDrawn:
    """Stands in for a budget where drafts are drawn: whole drafts are verified."""

    def __init__(self, target: Target, drafter: Drafter) -> None:
        self._without_branches = _without_branches(target, drafter)

    def limit(self, most: int) -> int:
        """Return `most`."""
        return most

    def observe(self, stats: object, output: object) -> None:
        """Learn nothing."""

    def trim(self, draft: Draft) -> Draft:
        """Return the draft, or the drafter's chain in place of a tree that the target refuses."""
        return self._without_branches(draft)


class DrawnBudget(Budget):
    """Decides how many tokens a drafter that samples from q may draw.

    The decision comes before the draw: cutting a draft because of what was drawn would bias the
    output of rejection sampling. So the estimate uses only the drafter's record and its time per
    token.
    """

    def __init__(self, state: Any, *, target: Target, drafter: Drafter, **settings: Any) -> None:
        # Without the drafter: no rule that sees the drawn tokens may end its draft.
        super().__init__(state, target=target, pipelined=False, **settings)
        self._without_branches = _without_branches(target, drafter)

    def limit(self, most: int) -> int:
        """Return how many tokens to draw, at most `most`."""
        most = super().limit(most)
        if most <= 0:
            return 0
        probabilities = self._acceptance.probabilities(Draft.chain(range(most), self._source))
        size = self._size_to_draw(probabilities)
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
    state: Any, *, target: Target, drafter: Drafter, rule: LawVerifier, **settings: Any
) -> Budget:
    """Return the budget of a reply whose drafts are verified by `rule`; arguments as `Budget`'s."""
    if rule.uses_q and Drafter.of(drafter).draws:
        return DrawnBudget(state, target=target, drafter=drafter, **settings)
    return Budget(state, target=target, drafter=drafter, pipelined=False, **settings)


def _without_branches(target: Target, drafter: Drafter) -> Callable[[Draft], Draft]:
    """Return a function that turns a tree into a chain where the target refuses the tree."""
    without_branches: Callable[[Draft], Draft] = asked(Drafter.of(drafter), "without_branches")

    def chain(draft: Draft) -> Draft:
        # Equal draws share a node, so a sampled tree may be a chain by chance. Chance must not
        # decide how often a token is tried: that would bias the distribution.
        if not draft.tokens or target.takes_tree(draft):
            return draft
        return without_branches(draft)

    return chain
