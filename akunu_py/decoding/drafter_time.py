"""The drafter's own time: what a draft and a token of it cost, and when to ask less often."""

import math
import statistics
from collections import deque

_CHEAP_DRAFT = 0.01
"""A drafter that takes less of a plain step than this is always asked."""

_BROUGHT_MEMORY = 0.9
_BROUGHT_START = 0.2
"""What asking the drafter lately brought, in tokens: about the last ten times count."""

_LONGEST_PAUSE = 64
_SAMPLES = 9


class DrafterTimes:
    """What a drafter took lately, over its replies, in plain steps: a draft, and a token of one."""

    def __init__(self) -> None:
        self.drafts: deque[float] = deque(maxlen=_SAMPLES)
        self.tokens: deque[float] = deque(maxlen=_SAMPLES)

    def begin_reply(self) -> None:
        """Keep the least of each: a stall of the machine must not be remembered for good."""
        for taken in (self.drafts, self.tokens):
            if taken:
                least = min(taken)
                taken.clear()
                taken.append(least)


class DrafterTime:
    """Times in plain steps, and the pauses of a drafter that is not worth asking.

    `times` are those of earlier replies: without them the first draft of each reply would be as
    long as if its tokens cost nothing.

    Attributes:
        asked: whether the drafter was asked in this step.

    """

    def __init__(self, times: DrafterTimes | None = None) -> None:
        times = times or DrafterTimes()
        times.begin_reply()
        self._drafts, self._tokens = times.drafts, times.tokens
        self._brought = _BROUGHT_START
        self._pause = self._paused = 0
        self.asked = False

    @property
    def a_token(self) -> float:
        """Return what a drafted token costs; 0 before anything was measured."""
        return statistics.median_high(self._tokens) if self._tokens else 0.0

    def may_ask(self) -> bool:
        """Return whether the drafter is asked now; a pause under way gets a step shorter."""
        if self._paused < self._pause:
            self._paused += 1
            return False
        return True

    def add(self, taken: float, num_proposed: int, *, drafted: bool) -> None:
        """Take in what the drafter took in a step, and how many tokens it proposed.

        What found nothing (`drafted` is False) counts only where it took time worth naming.
        """
        if not drafted and taken <= _CHEAP_DRAFT:
            return
        self._drafts.append(taken)
        if num_proposed:
            self._tokens.append(taken / num_proposed)

    def pace(self, gain: float, rate: float) -> None:
        """Ask a drafter that has lately cost more than it brought less and less often.

        `gain` is what its draft is expected to bring, in tokens, and `rate` what a plain step
        brings. It is asked no more rarely than makes its time as small a share as that of a cheap
        one.
        """
        own = statistics.median_high(self._drafts) if self._drafts else 0.0
        self._brought = self._brought * _BROUGHT_MEMORY + gain * (1 - _BROUGHT_MEMORY)
        if own < _CHEAP_DRAFT or max(gain, self._brought) > rate * own:
            self._pause = 0
        else:
            enough = math.ceil(own / _CHEAP_DRAFT)
            self._pause = min(_LONGEST_PAUSE, 2 * self._pause + 1, enough)
        self._paused = 0

    def resume(self) -> None:
        """End the pauses: what was not worth asking for may be now."""
        self._pause = 0
