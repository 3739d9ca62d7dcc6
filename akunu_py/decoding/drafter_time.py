"""The drafter's own time: the cost of a draft and of a token, and when to ask less often."""

import math
import statistics
from collections import deque

_CHEAP_DRAFT = 0.01
"""A drafter that takes a smaller share of a plain step than this is always asked."""

_CHEAP_IN_COMPANY = 0.0015
"""The same in company, where the time of each drafter is added to that of all: a share of the time
that a token takes."""

_BROUGHT_MEMORY = 0.9
_BROUGHT_START = 0.2
"""Decay of the drafter's recent gain, in tokens: about the last ten drafts count."""

_LONGEST_PAUSE = 64
_SAMPLES = 9


class DrafterTimes:
    """Recent times of a drafter over its replies, in plain steps: of a draft, and of a token."""

    def __init__(self) -> None:
        self.drafts: deque[float] = deque(maxlen=_SAMPLES)
        self.tokens: deque[float] = deque(maxlen=_SAMPLES)

    def begin_reply(self) -> None:
        """Keep only the shortest times, so that no stall of the machine is remembered for good."""
        for taken in (self.drafts, self.tokens):
            if taken:
                least = min(taken)
                taken.clear()
                taken.append(least)


class DrafterTime:
    """A drafter's time in one reply, in plain steps, and its pauses while it does not pay.

    `times` are the drafter's times in earlier replies. Without them the first draft of each reply
    would be as long as if its tokens cost nothing.
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
        """Return the cost of a drafted token; 0 before the first measurement."""
        return statistics.median_high(self._tokens) if self._tokens else 0.0

    def may_ask(self) -> bool:
        """Return whether to ask the drafter now; each call shortens a pause by one step."""
        if self.resting:
            self._paused += 1
            return False
        return True

    @property
    def resting(self) -> bool:
        """Return whether the next step is part of a pause."""
        return self._paused < self._pause

    def add(self, taken: float, num_proposed: int, *, drafted: bool) -> None:
        """Add the drafter's time in a step and the number of tokens that it proposed.

        A step without a draft (`drafted` is False) counts only if its time was considerable.
        """
        if not drafted and taken <= _CHEAP_DRAFT:
            return
        self._drafts.append(taken)
        if num_proposed:
            self._tokens.append(taken / num_proposed)

    def pace(self, gain: float, rate: float, *, in_company: bool = False) -> None:
        """Lengthen the pauses of a drafter that lately cost more than it brought.

        `gain` is the expected gain of its draft and `rate` the yield of a plain step, both in
        tokens. A pause is at most so long that the drafter's share of the time is as small as that
        of a cheap drafter.
        """
        own = statistics.median_high(self._drafts) if self._drafts else 0.0
        self._brought = self._brought * _BROUGHT_MEMORY + gain * (1 - _BROUGHT_MEMORY)
        cheap = _CHEAP_IN_COMPANY / rate if in_company else _CHEAP_DRAFT
        if own < cheap or max(gain, self._brought) > rate * own:
            self._pause = 0
        else:
            enough = math.ceil(own / cheap)
            self._pause = min(_LONGEST_PAUSE, 2 * self._pause + 1, enough)
        self._paused = 0

    def resume(self) -> None:
        """End the pauses: the drafter may pay again."""
        self._pause = 0
