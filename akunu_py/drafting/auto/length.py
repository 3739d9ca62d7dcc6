"""How many tokens of a chain to draft: the number that gains most over what passes cost."""

import math
from collections.abc import Sequence

from akunu_py.cost_curve import CostCurve

# Tokens and cost that a new average starts from, and how much each pass leaves of the past.
_START_TOKENS, _START_COST = 8.0, 6.0
_DECAY = 0.99


class Pace:
    """Lambda: the tokens a unit of cost has lately brought, 1 at least.

    A pass over k draft tokens is worth its expected tokens less lambda * C(1 + k): what the same
    time would bring elsewhere (renewal reward; Dinkelbach's ratio of sums).
    """

    __slots__ = ("cost", "tokens")

    def __init__(self) -> None:
        self.tokens = _START_TOKENS
        self.cost = _START_COST

    def begin_reply(self) -> None:
        """Keep the ratio, but let the new reply soon outweigh the old ones."""
        self.tokens *= _START_COST / self.cost
        self.cost = _START_COST

    def add(self, tokens: int, cost: float) -> None:
        """Count a pass: the tokens it committed and its cost."""
        self.tokens = self.tokens * _DECAY + tokens
        self.cost = self.cost * _DECAY + cost

    @property
    def tokens_per_cost(self) -> float:
        """Return lambda."""
        return max(1.0, self.tokens / self.cost)


class LengthRule:
    """Costs of passes as lists, for one curve and a longest draft."""

    __slots__ = ("_later_costs", "costs", "slopes")

    def __init__(self, curve: CostCurve, longest: int) -> None:
        """Take the costs of 1 to 1 + longest rows off the curve, relative to one row."""
        one = curve.cost(1)
        self.costs = [curve.cost(1 + k) / one for k in range(longest + 1)]
        self._later_costs = self.costs[1:]
        # Entry k: the least cost of a further token after k, see CostCurve.slopes; none at the end.
        self.slopes = [*(slope / one for slope in curve.slopes(longest)), math.inf, math.inf]

    def best_length(self, probabilities: Sequence[float], pace: float, limit: int) -> int:
        """Return the k, 0 to limit, with the largest expected tokens - pace * C(1 + k).

        `probabilities` are conditional: each token's, given that those before it were right. The
        shortest of equally good lengths is taken.
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
