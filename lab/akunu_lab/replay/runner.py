"""One recorded item, played back as the target's choices, with one drafter.

After each committed token the target chooses the recorded one, so every pass can be counted without
a model. The rule of the decode loop verifies a draft; tokens beyond the end of the output count as
drafted, but are never tested.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from msgspec import field

from akunu_lab.replay.baseline import Baseline, TraceDrafter
from akunu_lab.study.values import Number
from akunu_py.api import CostCurve, DecodeStats, Drafter, Row
from akunu_py.testing import play_back


@dataclass(frozen=True, slots=True)
class ReplayItem:
    """A trace item in token ids; the output ends with an end-of-generation id, or was cut."""

    id: str
    category: str
    session: str
    half: int
    prompt: tuple[int, ...]
    output: tuple[int, ...]


class ItemCounts(Row, frozen=True):
    """One item with one drafter: its passes and seconds."""

    stats: DecodeStats = field(default_factory=DecodeStats)
    observe_s: Number = 0.0
    """The drafter's seconds to observe, without the prompt."""
    decode_s: Number | None = None
    """Seconds of decoding; None in a replay, which decodes nothing."""
    identical: bool | None = None
    """Whether the reply equals plain decoding's; None in a replay."""

    @property
    def drafter_s(self) -> float:
        """The drafter's seconds to propose and to observe."""
        return self.stats.propose_s + self.observe_s

    def cost(self, curve: CostCurve) -> float:
        """Return the cost of all passes: the sum of C(1 + k), with k drafted tokens for a pass."""
        stats = self.stats
        at_least = (stats.steps, *stats.drafted_per_position, 0)
        return sum(
            (more - fewer) * curve.cost(1 + drafted)
            for drafted, (more, fewer) in enumerate(pairwise(at_least))
            if more != fewer
        )


def replay_item(item: ReplayItem, drafter: Drafter | TraceDrafter, limit: int) -> ItemCounts:
    """Play an item back with at most `limit` tokens drafted for a pass.

    The drafter must be new; it observes the prompt here. `target_s` and `commit_s` of the
    statistics are 0.
    """
    drafter.observe(item.prompt)
    return ItemCounts(*play_back(item.output, drafter, limit))


def replay_lengths(item: ReplayItem, baseline: Baseline, limits: Sequence[int]) -> list[ItemCounts]:
    """Play an item back with each of the ascending `limits`, in one walk over the output.

    A baseline's drafts depend on the text alone, so replays with different limits share one call at
    a common position. The results equal those of `replay_item`, except for the seconds: each pass
    is charged the time of the longest draft at its position.
    """
    baseline.observe(item.prompt)
    output, clock = item.output, time.perf_counter
    size = len(output)
    walks = [_Walk(limit) for limit in limits]
    waiting: list[list[_Walk]] = [[] for _ in range(size)]
    waiting[0] = list(walks)
    observe_s = 0.0
    for position in range(size):
        here = waiting[position]
        if here:
            asked = sorted({walk.limit for walk in here})
            started = clock()
            drafts = dict(zip(asked, baseline.drafts(asked), strict=True))
            propose_s = clock() - started
            for walk in here:
                ahead = walk.step(drafts[walk.limit], output, position, propose_s)
                if ahead < size:
                    waiting[ahead].append(walk)
        waiting[position] = []
        started = clock()
        baseline.observe(output[position : position + 1])
        observe_s += clock() - started
    return [ItemCounts(walk.stats(size, baseline.name), observe_s) for walk in walks]


class _Walk:
    """The passes of one limit over an output, counted by drafted and accepted tokens."""

    __slots__ = ("accepted", "drafted", "limit", "propose_s", "rejections", "steps")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.steps = 0
        self.rejections = 0
        self.propose_s = 0.0
        # Entry k: passes in which k tokens were drafted, accepted.
        self.drafted = [0] * (limit + 1)
        self.accepted = [0] * (limit + 1)

    def step(
        self, draft: Sequence[int], output: Sequence[int], position: int, propose_s: float
    ) -> int:
        """Count the pass at a position; return the position of the next one."""
        left = len(output) - position
        accepted = 0
        for token in draft[:left]:
            if token != output[position + accepted]:
                break
            accepted += 1
        self.steps += 1
        self.propose_s += propose_s
        self.drafted[len(draft)] += 1
        self.accepted[accepted] += 1
        self.rejections += accepted < len(draft) and accepted < left
        return position + accepted + 1

    def stats(self, output_tokens: int, source: str) -> DecodeStats:
        """Return the totals over an output of this many tokens; `source` drafted."""
        drafted, accepted = _at_least(self.drafted), _at_least(self.accepted)
        return DecodeStats(
            steps=self.steps,
            steps_with_draft=self.steps - self.drafted[0],
            drafted=sum(drafted),
            accepted=sum(accepted),
            tested=sum(accepted) + self.rejections,
            output_tokens=output_tokens,
            drafted_per_position=drafted,
            accepted_per_position=accepted[: len(drafted)] + (0,) * (len(drafted) - len(accepted)),
            propose_s=self.propose_s,
        ).of_source(source)


def _at_least(counts: Sequence[int]) -> tuple[int, ...]:
    """Return, for i = 1, 2, ..., the number of passes with i or more, up to the last above 0."""
    totals: list[int] = []
    total = 0
    for count in reversed(counts[1:]):
        total += count
        if total:
            totals.append(total)
    return tuple(reversed(totals))
