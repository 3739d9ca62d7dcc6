"""The decode loop: propose, trim to what pays, verify, commit, observe; then again.

The loop handles token ids and knows its partners by their protocols alone. One invariant makes the
first token, a plain step and a step with a draft the same case: between steps the target's cache
holds every committed token except the last.

Drafts are verified by the target's own choices, or by a plug-in's rule. A package offers a rule as
an entry point of the group "akunu.verifiers": a subclass of `VerifierOptions`, whose `make` returns
a `Verifier`. Replies that have one of its options are verified by it.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Required, TypedDict, Unpack

from akunu_py.decoding.budget import Budget, VerifyAll
from akunu_py.decoding.stats import step_detail, step_stats
from akunu_py.decoding.stopping import LoopDetector, cut_at_end
from akunu_py.protocols import NO_CHOICE, Drafter, Target, as_target
from akunu_py.system.errors import ContractError
from akunu_py.values.types import (
    Draft,
    FinishReason,
    GenerationConfig,
    LengthTrace,
    StepStats,
    Verification,
    VerificationKind,
)


def verify_match(draft: Draft, choices: Sequence[int]) -> Verification:
    """Accept the path of the draft that agrees with the target's own choices.

    `choices[0]` is the target's token after the last committed one, `choices[i + 1]` its token
    after node i. Every emitted token is the target's choice, so no draft can change the output. For
    drafts that are not sampled no lossless rule accepts more (Leviathan et al. 2023,
    arXiv:2211.17192, section 2.3, with a one-hot q).

    A node with `NO_CHOICE` behind it is not accepted: its token comes as the target's choice, and
    the next pass begins there.

    Raises ContractError unless there is one choice for each node and one for the root.
    """
    if len(choices) != len(draft) + 1:
        raise ContractError(f"{len(choices)} choices for a draft of {len(draft)} tokens")
    if len(choices) == 1:
        return Verification((), choices[0], "bonus")
    nodes = dict(zip(zip(draft.parents, draft.tokens, strict=True), range(len(draft)), strict=True))
    inner = set(draft.parents)
    accepted: list[int] = []
    node = -1
    while (child := nodes.get((node, choices[node + 1]))) is not None:
        if choices[child + 1] == NO_CHOICE:
            break
        accepted.append(child)
        node = child
    # At a leaf nothing was rejected.
    kind: VerificationKind = "recovered" if node in inner else "bonus"
    return Verification(tuple(accepted), choices[node + 1], kind)


NUM_CANDIDATES = 8
"""Number of likeliest next tokens of each position that a drafter gets if it reads candidates."""

Verify = Callable[[int, Draft, int], Verification]
"""Runs a pass over a token and a draft behind it, whose first position is given, and decides."""


class DecodingSettings(TypedDict, total=False):
    """Keyword arguments of a `Decoding`."""

    num_draft_tokens: Required[int]
    max_tokens: Required[int]
    end_ids: Collection[int]
    loops: LoopDetector | None
    budget: Budget | VerifyAll | None
    position: int
    clock: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Step:
    """One turn of the loop."""

    token_ids: tuple[int, ...]
    stats: StepStats
    finish_reason: FinishReason | None
    """Why the reply ends here; None if it goes on."""

    draft: Draft
    verification: Verification


class Decoding:
    """The steps of one reply, each in two halves around the target's pass.

    The target holds the prompt except its last token, `last`; the drafter has observed the whole
    prompt. A budget trims each draft to the length that pays; without one, whole drafts are
    verified. `position` is the position of the next token, counted from the beginning of the
    prompt. `clock` returns seconds.
    """

    def __init__(
        self,
        target: Target,
        drafter: Drafter,
        last: int,
        *,
        num_draft_tokens: int,
        max_tokens: int,
        end_ids: Collection[int] = (),
        loops: LoopDetector | None = None,
        budget: Budget | VerifyAll | None = None,
        position: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._target, self._drafter = as_target(target), Drafter.of(drafter)
        self._budget = budget or VerifyAll(target)
        self._observe = observer(self._drafter, self._target)
        self._last, self.position = last, position
        self._num_draft_tokens, self._remaining = num_draft_tokens, max_tokens
        self._end_ids, self._loops = end_ids, loops
        self._clock = clock
        self.over = max_tokens <= 0
        self.draft = _EMPTY
        """What the pass verifies; whoever runs it may have cut it."""
        self._length: LengthTrace | None = None
        self._started = self._drafted = 0.0

    def begin(self) -> tuple[int, Draft]:
        """Return the token and the draft of the next pass.

        Raises ContractError for a draft longer than allowed.
        """
        self._started = self._clock()
        # A pass always adds one token of its own to the accepted ones.
        room = min(self._num_draft_tokens, self._target.max_draft_tokens(), self._remaining - 1)
        most = max(self._budget.limit(room), min(self._drafter.num_sure(), room))
        self.draft, self._length = _EMPTY, None
        if most > 0:
            proposed = self._drafter.propose(most)
            if len(proposed) > most:
                raise ContractError(
                    f"the drafter {proposed.source!r} proposed {len(proposed)} tokens where {most} "
                    "were allowed; propose(limit) must respect its limit"
                )
            self.draft, self._length = self._budget.trim(proposed), proposed.length
        self._drafted = self._clock()
        return self._last, self.draft

    def finish(self, verification: Verification) -> Step:
        """Keep what was accepted of the draft; return the step."""
        draft, position, clock = self.draft, self.position, self._clock
        chosen = clock()
        self._target.commit(verification.accepted)
        committed = clock()
        output, reason = cut_at_end(verification.output(draft), self._end_ids, self._loops)
        self._observe(output)
        observed = clock()
        stats = step_stats(
            draft,
            verification,
            output,
            propose_s=self._drafted - self._started + observed - committed,
            target_s=chosen - self._drafted,
            commit_s=committed - chosen,
            describe=partial(step_detail, draft, verification, position, self._length),
        )
        self._budget.observe(stats, output)
        self.position += len(output)
        self._remaining -= len(output)
        self._last = output[-1]
        if reason is None and not self._remaining:
            reason = "length"
        self.over = reason is not None
        return Step(output, stats, reason, draft, verification)


def decode(
    target: Target,
    drafter: Drafter,
    last: int,
    *,
    verify: Verify | None = None,
    **settings: Unpack[DecodingSettings],
) -> Iterator[Step]:
    """Yield steps until an end-of-generation id, a loop that `loops` finds, or `max_tokens`.

    `verify` decides which tokens are accepted; without it, those that the target chooses are.
    `settings` are those of `Decoding`. Closing the iterator between steps cancels the reply; every
    committed token has been yielded then.

    Raises ContractError for a draft longer than allowed, and whatever `target` raises.
    """
    verify = verify or by_choice(as_target(target))
    decoding = Decoding(target, drafter, last, **settings)
    while not decoding.over:
        token, draft = decoding.begin()
        yield decoding.finish(verify(token, draft, decoding.position))


def by_choice(target: Target) -> Verify:
    """Accept the longest path of a draft whose tokens the target chooses itself."""
    return lambda last, draft, _: verify_match(draft, target.choose(last, draft))


_EMPTY = Draft.empty()


def observer(drafter: Drafter, target: Target) -> Callable[[Sequence[int]], None]:
    """Return a function that tells the drafter which tokens a step committed.

    A drafter that reads candidates first gets the likeliest tokens of each position.
    """
    if not drafter.reads_candidates:
        return drafter.observe
    target.track_candidates(NUM_CANDIDATES)

    def observe(output: Sequence[int]) -> None:
        drafter.observe_candidates(target.candidates())
        drafter.observe(output)

    return observe


@dataclass(frozen=True, slots=True)
class Verifier:
    """A rule that accepts drafted tokens, as `VerifierOptions.make` returns it."""

    decode: Callable[..., Iterator[Step]]
    """Arguments as for `akunu_py.decoding.loop.decode`."""

    budget: Callable[..., Budget]
    """Arguments as for `akunu_py.decoding.budget.Budget`."""

    sampling: GenerationConfig
    """What the target samples with."""

    by_choice: bool = False
    """Whether the rule accepts the target's choices, so that anybody may run the target's pass."""


def make_verifier(config: GenerationConfig, seed: int) -> Verifier:
    """Return the verifier of a reply; `seed` seeds its random choices."""
    made = config.verifier.make(config, seed)
    return made or Verifier(decode, Budget, config, by_choice=True)
