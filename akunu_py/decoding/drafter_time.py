"""The drafter's own time: the cost of a draft and of a token, what it brought, and its pauses."""

import math
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
        # The length of a pause, and the steps of it that are left.
        self._pause = self._left = 0

    @property
    def a_token(self) -> float:
        """Return the cost of a drafted token; 0 before the first measurement."""
        return _middle(self._tokens)

    def may_ask(self) -> bool:
        """Return whether to ask the drafter now; each call shortens a pause by one step."""
        if self._left:
            self._left -= 1
            return False
        return True

    @property
    def resting(self) -> bool:
        """Return whether the next step is part of a pause."""
        return self._left > 0

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
        own = _middle(self._drafts)
        self._brought = self._brought * _BROUGHT_MEMORY + gain * (1 - _BROUGHT_MEMORY)
        cheap = _CHEAP_IN_COMPANY / rate if in_company else _CHEAP_DRAFT
        if own < cheap or max(gain, self._brought) > rate * own:
            self._pause = 0
        else:
            enough = math.ceil(own / cheap)
            self._pause = min(_LONGEST_PAUSE, 2 * self._pause + 1, enough)
        self._left = self._pause

    def resume(self) -> None:
        """End the pauses: the drafter may pay again."""
        self._pause = self._left = 0


def _middle(times: deque[float]) -> float:
    """Return the median, the higher of two; 0 without times."""
    return sorted(times)[len(times) // 2] if times else 0.0


_MEMORY = 0.98
_START_STEPS = 8.0


class RunningRate:
    """Tokens for the time of a plain step, over about the last fifty steps added.

    `plain` is how many tokens a plain step brings, and the rate is at least that. It starts from 8
    plain steps, and each step discounts the past by 0.98.
    """

    def __init__(self, plain: int = 1) -> None:
        self._plain = self.value = float(plain)
        self._tokens, self._cost = _START_STEPS * plain, _START_STEPS

    def add(self, tokens: int, cost: float) -> None:
        """Add a step: the tokens that it brought, and its cost in plain steps."""
        self._tokens = self._tokens * _MEMORY + tokens
        self._cost = self._cost * _MEMORY + cost
        self.value = max(self._plain, self._tokens / self._cost)


_START_BALANCE = 2.0
STEP_CREDIT = 0.005
"""Tokens that each step adds, with which a model that does not pay is tried again."""

_MOST_BALANCE = 16.0


class DrawingAccount:
    """What the tokens that a model drew brought, less what they cost, in tokens.

    Estimates of acceptance are noisy, and a model is asked just while they are too high. Outcomes
    do not lie: each draft is charged what it cost and credited what it brought, and a model whose
    account is empty does not draw. Over all replies it can lose `_START_BALANCE` tokens,
    `STEP_CREDIT` a step, and one draft. Of what it brought, `_MOST_BALANCE` tokens count, so that
    text that changes is noticed.
    """

    def __init__(self) -> None:
        self._balance = _START_BALANCE

    def covers(self, loss: float) -> bool:
        """Return whether a draft with this expected loss, in tokens, may be drawn."""
        return loss < self._balance

    def add_draft(self, brought: float, cost: float) -> None:
        """Credit and charge the outcome of a draft."""
        self._balance = min(_MOST_BALANCE, self._balance + brought - cost)


class DrawingState:
    """What replies teach about a model that draws: times of its passes, and its account."""

    def __init__(self) -> None:
        self.times = DrafterTimes()
        self.account = DrawingAccount()


class Drawing:
    """The drafts that a model draws in one reply."""

    def __init__(self, state: DrawingState) -> None:
        self._time = DrafterTime(state.times)
        self.account = state.account
        # Lambda over the steps without copies. A token is worth the time that it takes otherwise,
        # at its place in the text. Where nothing is copied it takes longer than over all steps:
        # copies come in their own time, whatever is drawn here.
        self.rate = RunningRate()
        self.asked = False
        # Of the step: tokens in front of the drawn ones, passes of the model, and how long those
        # waited for the step in flight.
        self.copied = self.passes = 0
        self.waited_s = 0.0

    @property
    def a_pass(self) -> float:
        """Return the cost of a pass, in plain steps; 0 before the first measurement."""
        return self._time.a_token

    def add_time(self, taken: float) -> None:
        """Add the time of the last draft's passes, in plain steps."""
        self._time.add(taken, self.passes, drafted=True)
