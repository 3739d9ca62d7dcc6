"""The time that drafting saved in a reply, as precisely as the measured times allow."""

from akunu_py.decoding.pass_costs import PassCosts
from akunu_py.values.decode_stats import DecodeStats

Range = tuple[float, float]


class TimeSaved:
    """The share of plain decoding's time that drafts saved in one reply, as a range.

    A draft saves the plain steps of its tokens and costs its passes, by the curve of `PassCosts`.
    A stall could distort the times of a single reply. So the cost is multiplied by the ratio of
    real to expected times of recent passes, once with each end of `PassCosts.spread`, between which
    8 in 10 ratios lie. Steps without a draft are plain decoding itself. The drafter's time is a
    cost too, but only at the lower end of the range if a pass may have hidden it. A pass takes at
    least a plain step, so the saved share is at most 1 - passes / tokens.
    """

    def __init__(self, costs: PassCosts) -> None:
        self._costs = costs
        # Passes with a draft, and the plain steps after them, which find nothing in flight.
        self._passes = 0
        self._cost = 0.0
        self._after_draft = False
        self._drafter_s = self._hidden_s = 0.0

    def add(self, cost: float, seconds: float, *, drafted: bool, settled: bool) -> None:
        """Add a step: its expected cost in plain steps, and the seconds of its pass.

        A step that is not `settled` leaves nothing in flight, which makes the next one more
        expensive.
        """
        if drafted or self._after_draft:
            self._passes += 1
            self._cost += cost
            self._costs.add_draft(seconds, cost)
            self._after_draft = not settled

    def add_drafter(self, seconds: float, *, hidden: bool) -> None:
        """Add the drafter's own time in a step; `hidden`: a pass may have run meanwhile."""
        if hidden:
            self._hidden_s += seconds
        else:
            self._drafter_s += seconds

    def share(self, stats: DecodeStats) -> Range | None:
        """Return the range for a reply with these counts; negative if drafting cost time.

        None if nothing was drafted, or if too few drafts were timed so far.
        """
        spread, plain_s = self._costs.spread, self._costs.plain_s
        if not (self._passes and stats.output_tokens) or spread is None or plain_s is None:
            return None
        low, high = (self._cost * factor for factor in spread)
        replaced = stats.output_tokens - (stats.steps - self._passes)
        sure = replaced - self._drafter_s / plain_s
        most = min(sure - low, stats.output_tokens - stats.steps)
        least = min(sure - high - self._hidden_s / plain_s, most)
        return least / stats.output_tokens, most / stats.output_tokens
