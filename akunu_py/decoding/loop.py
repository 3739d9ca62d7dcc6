"""The decode loop: propose, cut to what pays, verify, commit, observe; then again.

The loop knows token ids and protocols alone. The invariant that makes the first token, a plain step
and a step with a draft one case: between steps the target's cache holds every committed token
except the last.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from akunu_py.decode_stats import StepDetail
from akunu_py.decoding.budget import Budget, VerifyAll
from akunu_py.decoding.details import step_detail
from akunu_py.decoding.stopping import LoopDetector, cut_at_end
from akunu_py.decoding.tree_choice import TreeChoice
from akunu_py.decoding.verify import verify_match
from akunu_py.errors import ContractError
from akunu_py.protocols import CandidateObserver, CandidateTarget, Drafter, Target
from akunu_py.types import Draft, FinishReason, StepStats, Verification

NUM_CANDIDATES = 8
"""Likeliest next tokens of a row that a `CandidateObserver` is told."""


@dataclass(frozen=True, slots=True)
class Step:
    """The tokens one step added, and why the reply ended with it, if it did.

    `draft` is what was verified and `verification` the result. `tree` says what was made of a tree
    that was drafted.
    """

    token_ids: tuple[int, ...]
    stats: StepStats
    finish_reason: FinishReason | None
    draft: Draft
    verification: Verification
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
    position: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Step]:
    """Yield steps until an end-of-generation id, a loop that `loops` finds, or `max_tokens`.

    The target holds the prompt without its last token, `last`; the drafter has observed the whole
    prompt. With a budget a draft is cut to the length that pays; without, all of it is verified. A
    drafter that is a `CandidateObserver` is told what a target that is a `CandidateTarget` found
    likely. `clock` gives seconds. `position` is that of the first token to come, counted from the
    beginning of the prompt. Closing the iterator between steps cancels: what was yielded is what is
    committed.

    Raises ContractError when the drafter drafts more than it may, and what `target` raises.
    """
    cut = budget or VerifyAll(target)
    observe = observer(drafter, target)
    remaining = max_tokens
    while remaining > 0:
        started = clock()
        # The pass adds its own token to the accepted ones, so one less than remains is of use.
        room = min(num_draft_tokens, target.max_draft_tokens(), remaining - 1)
        proposed = propose(drafter, cut.limit(room))
        draft = cut.trim(proposed)
        drafted = clock()
        verification = verify_match(draft, target.choose(last, draft))
        chosen = clock()
        target.commit(verification.accepted)
        committed = clock()
        output, reason = cut_at_end(verification.output(draft), end_ids, loops)
        observe(output)
        observed = clock()
        stats = step_stats(
            draft,
            verification,
            output,
            propose_s=drafted - started + observed - committed,
            target_s=chosen - drafted,
            commit_s=committed - chosen,
            describe=partial(step_detail, draft, verification, position, cut.tree, proposed.length),
        )
        cut.observe(stats, output)
        position += len(output)
        remaining -= len(output)
        last = output[-1]
        if reason is None and not remaining:
            reason = "length"
        yield Step(output, stats, reason, draft, verification, cut.tree)
        if reason is not None:
            return


def propose(drafter: Drafter, limit: int) -> Draft:
    """Return what a drafter proposes; it is not asked where nothing may be drafted.

    Raises ContractError for more tokens than the limit.
    """
    if limit <= 0:
        return _NOTHING_ASKED
    draft = drafter.propose(limit)
    if len(draft) > limit:
        raise ContractError(
            f"the drafter {draft.source!r} proposed {len(draft)} tokens where {limit} were "
            "allowed; propose(limit) must respect its limit"
        )
    return draft


_NOTHING_ASKED = Draft.empty()


def observer(drafter: Drafter, target: Target) -> Callable[[Sequence[int]], None]:
    """Return how a drafter is told what a step committed.

    A `CandidateObserver` is told the target's likeliest tokens first, if the target knows them.
    """
    if not (isinstance(drafter, CandidateObserver) and isinstance(target, CandidateTarget)):
        return drafter.observe
    target.track_candidates(NUM_CANDIDATES)

    def observe(output: Sequence[int]) -> None:
        drafter.observe_candidates(target.candidates())
        drafter.observe(output)

    return observe


def step_stats(
    draft: Draft,
    verification: Verification,
    output: Sequence[int],
    *,
    propose_s: float,
    target_s: float,
    commit_s: float,
    describe: Callable[[], StepDetail],
) -> StepStats:
    """Return the statistics of a step that committed `output`; times are in seconds."""
    # Tokens accepted beyond the end are not part of the reply: there the target's own choices
    # stop being tests of the draft.
    accepted = min(len(verification.accepted), len(output))
    rejected = verification.kind == "recovered" and len(output) > accepted
    return StepStats(
        source=draft.source,
        num_draft_tokens=len(draft),
        num_tested_tokens=accepted + rejected,
        num_accepted_tokens=accepted,
        num_output_tokens=len(output),
        kind=verification.kind,
        propose_s=propose_s,
        target_s=target_s,
        commit_s=commit_s,
        describe=describe,
    )
