"""Statistics of decoding: steps in, counts and rates out."""

import dataclasses

from akunu_py.types import DecodeStats, StepStats


def cut_step(step: StepStats, num_output_tokens: int) -> StepStats:
    """Return the statistics of a step of which the reply keeps the first tokens only.

    What lay beyond was accepted but is not part of the reply; no rejection is left to count then.
    """
    if num_output_tokens >= step.num_output_tokens:
        return step
    accepted = min(step.num_accepted_tokens, num_output_tokens)
    return dataclasses.replace(
        step,
        num_tested_tokens=accepted,
        num_accepted_tokens=accepted,
        num_output_tokens=num_output_tokens,
    )


class StatsRecorder:
    """Adds up the steps of one reply; `stats` is what they come to so far."""

    def __init__(self) -> None:
        self._steps = 0
        self._steps_with_draft = 0
        self._tested = 0
        self._output_tokens = 0
        self._drafted_per_position: list[int] = []
        self._accepted_per_position: list[int] = []
        self._propose_s = 0.0
        self._target_s = 0.0
        self._commit_s = 0.0

    def add(self, step: StepStats) -> None:
        """Count one step."""
        self._steps += 1
        self._steps_with_draft += step.num_draft_tokens > 0
        self._tested += step.num_tested_tokens
        self._output_tokens += step.num_output_tokens
        missing = step.num_draft_tokens - len(self._drafted_per_position)
        if missing > 0:
            self._drafted_per_position += [0] * missing
            self._accepted_per_position += [0] * missing
        for position in range(step.num_draft_tokens):
            self._drafted_per_position[position] += 1
        for position in range(step.num_accepted_tokens):
            self._accepted_per_position[position] += 1
        self._propose_s += step.propose_s
        self._target_s += step.target_s
        self._commit_s += step.commit_s

    @property
    def stats(self) -> DecodeStats:
        """Return the totals."""
        return DecodeStats(
            steps=self._steps,
            steps_with_draft=self._steps_with_draft,
            drafted=sum(self._drafted_per_position),
            accepted=sum(self._accepted_per_position),
            tested=self._tested,
            output_tokens=self._output_tokens,
            drafted_per_position=tuple(self._drafted_per_position),
            accepted_per_position=tuple(self._accepted_per_position),
            propose_s=self._propose_s,
            target_s=self._target_s,
            commit_s=self._commit_s,
        )
