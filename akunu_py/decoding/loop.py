"""The decode loop: propose, cut to what pays, verify, commit, observe; then again.

The loop knows token ids and protocols alone. The invariant that makes the first token, a plain step
and a step with a draft one case: between steps the target's cache holds every committed token
except the last.
"""

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

from akunu_py.decoding.budget import Budget, Carrying, TokenByToken
from akunu_py.decoding.details import LengthTeller, step_detail
from akunu_py.decoding.draft_law import BranchingDrafter, SampledDrafter, certain, draft_law
from akunu_py.decoding.stopping import LoopDetector, cut_at_end
from akunu_py.decoding.tree_choice import TreeChoice
from akunu_py.decoding.verifiers import DistributionTarget, Verdict, Verifier
from akunu_py.decoding.verify import verify_match
from akunu_py.draft_trees import best_chain
from akunu_py.errors import ContractError
from akunu_py.types import (
    CandidateObserver,
    CandidateTarget,
    Draft,
    Drafter,
    FinishReason,
    StepStats,
    Target,
    TreeTarget,
    Verification,
)

NUM_CANDIDATES = 8
"""Likeliest next tokens of a row that a `CandidateObserver` is told."""

NOTHING_ASKED = Draft.empty()
"""The draft of a step for which no drafter is asked."""


@dataclass(frozen=True, slots=True)
class Step:
    """The tokens one step added, and why the reply ended with it, if it did.

    `draft` is what was verified and `verification` what came of it, `verdict` how a verifier came
    to it; None where drafts are compared with the target's choices. `tree` says what was made of a
    tree that was drafted.
    """

    token_ids: tuple[int, ...]
    stats: StepStats
    finish_reason: FinishReason | None
    draft: Draft
    verification: Verification
    verdict: Verdict | None = None
    tree: TreeChoice | None = None


def decode(
    target: Target,
    drafter: Drafter,
    last: int,
    *,
    num_draft_tokens: int,
    max_tokens: int,
    end_ids: Collection[int] = (),
    loops: LoopDetector | None = None,
    budget: Budget | None = None,
    verifier: Verifier | None = None,
    position: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Step]:
    """Yield steps until an end-of-generation id, a loop that `loops` finds, or `max_tokens`.

    The target holds the prompt without its last token, `last`; the drafter has observed the whole
    prompt. With a budget a draft is cut to the length that pays; without, all of it is verified. A
    drafter that goes `TokenByToken` then drafts as far as that pays, too.
    A drafter that is a `CandidateObserver` is told what a target that is a `CandidateTarget` found
    likely. Of a tree that a `TreeTarget` does not take, the path that brings most is verified.
    `clock` gives seconds. Closing the iterator between steps cancels: what was yielded is what is
    committed.

    `position` is that of the first token to come, counted from the beginning of the prompt.

    With a verifier the target's distributions decide instead of its choices. Drafts of a
    `SampledDrafter` are not cut where the verifier goes by q: how many tokens may be drawn is
    decided before they are.

    Raises ContractError when the drafter drafts more than it may, for a verifier with a target that
    has no distributions, and what `target` raises.
    """
    remaining = max_tokens
    carried_rows = 0
    if verifier is not None:
        judged = _with_distributions(target, verifier)
    sampled = verifier is not None and verifier.uses_q and isinstance(drafter, SampledDrafter)
    carrying = target if isinstance(target, Carrying) else None
    if budget is not None and isinstance(drafter, TokenByToken) and not sampled:
        drafter.add_rule(lambda drawn: budget.pays(drawn, carrying))
    trees = target if isinstance(target, TreeTarget) else None
    branching = drafter if sampled and isinstance(drafter, BranchingDrafter) else None
    length_teller = drafter if isinstance(drafter, LengthTeller) else None
    learner = drafter if isinstance(drafter, CandidateObserver) else None
    teller = target if isinstance(target, CandidateTarget) else None
    if learner is not None and teller is not None:
        teller.track_candidates(NUM_CANDIDATES)
    while remaining > 0:
        # The pass adds its own token to the accepted ones, so one less than remains is of use.
        limit = min(num_draft_tokens, target.max_draft_tokens(), remaining - 1)
        started = clock()
        if budget is not None and limit > 0:
            limit = budget.limit(limit)
            if sampled:
                limit = budget.plan(limit, carrying)
        draft = drafter.propose(limit) if limit > 0 else NOTHING_ASKED
        if len(draft) > limit:
            raise ContractError(
                f"the drafter {draft.source!r} proposed {len(draft)} tokens where {limit} were "
                "allowed; propose(limit) must respect its limit"
            )
        proposed_draft = draft
        tree = not draft.is_chain or (branching is not None and len(draft) > 0)
        # A budget that may cut the draft asks the target of what it keeps.
        whole = budget is None or sampled
        if whole and trees is not None and tree and not trees.takes_tree(draft):
            # Equal draws are one node: a sampled tree may be a chain by chance. That must not
            # decide how often its tokens are tried, or the law is biased.
            if branching is not None:
                draft = branching.without_branches(draft)
            elif not sampled:
                draft = best_chain(draft)
        if budget is not None:
            draft = budget.expect(draft) if sampled else budget.trim(draft, carrying, trees)
            carried_rows = 0 if carrying is None else carrying.carried_rows
        choice = _choice(proposed_draft, draft, None if whole else budget)
        proposed = clock()
        verdict = None
        if verifier is None:
            verification = verify_match(draft, target.choose(last, draft))
        else:
            law = draft_law(drafter, draft) if verifier.uses_q else certain(draft)
            rows = judged.distributions(last, draft)
            verdict = verifier.verify(draft, law, rows, position)
            verification = verdict.verification
        chosen = clock()
        target.commit(verification.accepted)
        committed = clock()
        output, reason = cut_at_end(verification.output(draft), end_ids, loops)
        if learner is not None and teller is not None:
            learner.observe_candidates(teller.candidates())
        drafter.observe(output)
        observed = clock()
        # Asked now, while the draft is the drafter's latest; the rest is put together if need be.
        length = None
        if length_teller is not None and draft.tokens:
            length = length_teller.length_trace
        describe = partial(
            step_detail, draft, verification, verdict, choice, position=position, length=length
        )
        position += len(output)
        remaining -= len(output)
        last = output[-1]
        # Tokens accepted beyond the end are not part of the reply: there the target's own choices
        # stop being tests of the draft.
        accepted = min(len(verification.accepted), len(output))
        rejected = verification.kind == "recovered" and len(output) > accepted
        stats = StepStats(
            source=draft.source,
            num_draft_tokens=len(draft),
            num_tested_tokens=accepted + rejected,
            num_accepted_tokens=accepted,
            num_output_tokens=len(output),
            kind=verification.kind,
            propose_s=proposed - started + observed - committed,
            target_s=chosen - proposed,
            commit_s=committed - chosen,
            describe=describe,
        )
        if budget is not None:
            budget.observe(stats, output, carried_rows)
        if reason is None and not remaining:
            reason = "length"
        yield Step(output, stats, reason, draft, verification, verdict, choice)
        if reason is not None:
            return


def _choice(proposed: Draft, kept: Draft, budget: Budget | None) -> TreeChoice | None:
    """Return what was made of a draft that was a tree; `budget` is what cut it, if any did."""
    if proposed.is_chain:
        return None
    if budget is not None:
        return budget.tree
    return TreeChoice(proposed, kept, "all" if kept is proposed else "target")


def _with_distributions(target: Target, verifier: Verifier) -> DistributionTarget:
    if not isinstance(target, DistributionTarget):
        raise ContractError(
            f"the verifier {verifier.name!r} needs a target with distributions; this one has none"
        )
    return target
