"""Statistics of a step, token by token where asked for, and of a whole reply."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from akunu_py.values.decode_stats import UNNAMED, DraftedToken, StepDetail, by_source
from akunu_py.values.types import DecodeStats, Draft, LengthTrace, StepStats, Verification


def step_stats(
    draft: Draft,
    verification: Verification,
    output: Sequence[int],
    *,
    propose_s: float,
    target_s: float,
    commit_s: float,
    describe: Callable[[], StepDetail] | None = None,
) -> StepStats:
    """Return the statistics of a step that committed `output`; times are in seconds."""
    # Tokens accepted beyond the end are not part of the reply, so they count as untested.
    accepted = min(len(verification.accepted), len(output))
    rejected = verification.kind == "recovered" and len(output) > accepted
    origins = draft.origins or (draft.source or UNNAMED,) * len(draft)
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
        drafted_from=origins,
        accepted_from=tuple(origins[node] for node in verification.accepted[:accepted]),
    )


def step_detail(
    draft: Draft,
    verification: Verification,
    position: int,
    length: LengthTrace | None = None,
) -> StepDetail:
    """Return the detail of a step: what became of each drafted token.

    A token was tested if its parent was accepted or if it has none. `position` is the position of
    the step's first token, counted from the beginning of the prompt; `length` explains the length
    of the draft, where the drafter can.
    """
    accepted = set(verification.accepted)
    drafted: list[DraftedToken] = []
    for node, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
        tested = parent == -1 or parent in accepted
        origin = draft.origins[node] if draft.origins else draft.source
        place = draft.places[node] if draft.places else -1
        drafted.append(
            DraftedToken(
                token,
                parent,
                node in accepted if tested else None,
                draft.confidence[node] if draft.confidence else None,
                source=None if origin == draft.source else origin,
                place=None if place < 0 else place,
            )
        )
    if not draft.tokens:
        length = None
    detail = StepDetail(
        position=position,
        source=draft.source,
        match_length=draft.match_length,
        drafted=tuple(drafted),
        token=verification.next_token,
        kind=verification.kind,
        origin="target",
        entropy=None if length is None else length.entropy,
        gamma=None if length is None else length.num_draft_tokens,
    )
    return verification.explain(detail)


def cut_step(step: StepStats, num_output_tokens: int) -> StepStats:
    """Return the statistics of a step whose output is cut to its first tokens.

    The tokens beyond were accepted but are not part of the reply, so no rejection is counted.
    """
    if num_output_tokens >= step.num_output_tokens:
        return step
    accepted = min(step.num_accepted_tokens, num_output_tokens)
    return dataclasses.replace(
        step,
        num_tested_tokens=accepted,
        num_accepted_tokens=accepted,
        num_output_tokens=num_output_tokens,
        accepted_from=step.accepted_from[:accepted],
    )


class StatsRecorder:
    """Adds up the steps of one reply; `stats` has the totals so far."""

    def __init__(self) -> None:
        self._sums: Any = Counter()
        # By position in a draft, and by source.
        self._drafted: Counter[int] = Counter()
        self._accepted: Counter[int] = Counter()
        self._drafted_from: Counter[str] = Counter()
        self._accepted_from: Counter[str] = Counter()

    def add(self, step: StepStats) -> None:
        """Count one step."""
        self._sums.update(
            steps=1,
            steps_with_draft=int(step.num_draft_tokens > 0),
            tested=step.num_tested_tokens,
            output_tokens=step.num_output_tokens,
            propose_s=step.propose_s,
            target_s=step.target_s,
            commit_s=step.commit_s,
        )
        self._drafted.update(range(step.num_draft_tokens))
        self._accepted.update(range(step.num_accepted_tokens))
        self._drafted_from.update(step.drafted_from)
        self._accepted_from.update(step.accepted_from)

    @property
    def stats(self) -> DecodeStats:
        """Return the totals."""
        positions = range(len(self._drafted))
        return DecodeStats(
            **self._sums,
            drafted=self._drafted.total(),
            accepted=self._accepted.total(),
            drafted_per_position=tuple(self._drafted[position] for position in positions),
            accepted_per_position=tuple(self._accepted[position] for position in positions),
            sources=by_source(self._drafted_from, self._accepted_from),
        )
