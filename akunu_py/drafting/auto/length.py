"""The length of a draft: the number of tokens with the largest gain over the cost of a pass."""

import math
from collections.abc import Sequence

from akunu_py.values.cost_curve import CostCurve

# Start of the average, and the factor by which each pass discounts the past.
_START_TOKENS, _START_COST = 8.0, 6.0
_DECAY = 0.99


class TokenRate:
    """lambda: recent tokens per unit of cost, at least 1.

    The gain of a pass over k draft tokens is its expected tokens less lambda * C(1 + k), the tokens
    that the same time would bring elsewhere (renewal reward; Dinkelbach's ratio of sums).
    """

    __slots__ = ("cost", "tokens")

    def __init__(self) -> None:
        self.tokens = _START_TOKENS
        self.cost = _START_COST

    def begin_reply(self) -> None:
        """Keep the ratio with little weight, so that the new reply soon outweighs earlier ones."""
        self.tokens *= _START_COST / self.cost
        self.cost = _START_COST

    def add(self, tokens: int, cost: float) -> None:
        """Add a pass: the tokens that it committed, and its cost."""
        self.tokens = self.tokens * _DECAY + tokens
        self.cost = self.cost * _DECAY + cost

    @property
    def tokens_per_cost(self) -> float:
        """Return lambda."""
        return max(1.0, self.tokens / self.cost)


class PayingLength:
    """Finds the length of a draft that pays best, for one cost curve."""

    __slots__ = ("_later_costs", "costs", "slopes")

    def __init__(self, curve: CostCurve, longest: int) -> None:
        """Read the costs of 1 to 1 + longest rows off the curve, relative to one row."""
        one = curve.cost(1)
        self.costs = [curve.cost(1 + k) / one for k in range(longest + 1)]
        self._later_costs = self.costs[1:]
        # Entry k: the least cost per further token after k (`CostCurve.slopes`); at the end inf.
        self.slopes = [*(slope / one for slope in curve.slopes(longest)), math.inf, math.inf]

    def best_length(self, probabilities: Sequence[float], pace: float, limit: int) -> int:
        """Return the k, 0 to limit, with the largest expected tokens - pace * C(1 + k).

        `probabilities` are conditional on all earlier tokens being right. Among equally good
        lengths the shortest wins.
        """
        best, length = 1.0 - pace * self.costs[0], 0
        expected = reach = 1.0
        # The probabilities may be fewer than the costs that follow C(1), or more.
        for k, (probability, cost) in enumerate(
            zip(probabilities[:limit], self._later_costs, strict=False), start=1
        ):
            reach *= probability
            expected += reach
            value = expected - pace * cost
            if value > best:
                best, length = value, k
        return length
