"""What drafting saved of a reply's time, as far as the times it is computed from can tell."""

from akunu_py.decode_stats import DecodeStats
from akunu_py.decoding.pass_costs import PassCosts

Range = tuple[float, float]


class TimeSaved:
    """The share of plain decoding's time that drafts saved in one reply: a range, not a number.

    A draft saves the plain steps that its tokens would have taken, less what its passes cost by the
    curve (`PassCosts`). No time of this reply alone decides, since a stall would: the cost is taken
    times what recent passes really took over what they should have, 8 in 10 of which lie in
    `PassCosts.spread`. Steps without a draft are plain decoding itself. The drafter's time is a
    cost; where a pass may have hidden it, at the lower end alone. A pass takes a plain step at
    least, so no more is saved than 1 - passes / tokens.
    """

    def __init__(self, costs: PassCosts) -> None:
        self._costs = costs
        # Of passes with a draft, and of the plain step after one, which finds nothing in flight.
        self._passes = 0
        self._cost = 0.0
        self._after_draft = False
        self._drafter_s = self._hidden_s = 0.0

    def add(self, cost: float, seconds: float, *, drafted: bool, settled: bool) -> None:
        """Take in a step: what it should have cost, in plain steps, and what its pass took.

        A step that is not `settled` leaves nothing in flight: the next one is dearer for it.
        """
        if drafted or self._after_draft:
            self._passes += 1
            self._cost += cost
            self._costs.add_draft(seconds, cost)
            self._after_draft = not settled

    def add_drafter(self, seconds: float, *, hidden: bool) -> None:
        """Take in the drafter's own time in a step; `hidden`: a pass may have run meanwhile."""
        if hidden:
            self._hidden_s += seconds
        else:
            self._drafter_s += seconds

    def share(self, stats: DecodeStats) -> Range | None:
        """Return the range for a reply of these counts; it is negative where drafting cost time.

        None where nothing was drafted, or too few drafts were timed so far.
        """
        spread, plain_s = self._costs.spread, self._costs.plain_s
        if not (self._passes and stats.output_tokens) or spread is None or plain_s is None:
            return None
        cheap, dear = (self._cost * factor for factor in spread)
        replaced = stats.output_tokens - (stats.steps - self._passes)
        sure = replaced - self._drafter_s / plain_s
        most = min(sure - cheap, stats.output_tokens - stats.steps)
        least = min(sure - dear - self._hidden_s / plain_s, most)
        return least / stats.output_tokens, most / stats.output_tokens
