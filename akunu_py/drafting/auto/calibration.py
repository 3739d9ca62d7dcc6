"""An online estimate of the probability that the target takes a candidate token.

Additive logistic: sigmoid(bias + the weights of the token's features). Every token the target has
decided on moves the weights of its features by the error of the estimate, right or wrong alike; the
bias belongs to one reply. How often a token, what it follows, and the two together were right
before are features too.
"""

import math
from collections.abc import Sequence

from akunu_py.drafting.auto import features

WEIGHT_RATE = 0.02
BIAS_RATE = 0.1
BIAS_LIMIT = 1.5
LEARNED_IN_FULL = 8  # positions of a chain; of those behind, every fourth counts four times
EVERY = 4
OUTCOME_DECAY = 0.9
MAX_OUTCOMES = 60_000  # tokens and pairs remembered; then all are forgotten

_PAIR_SHIFT = 24
_UNSEEN = tuple(features.OUTCOMES + i * features.NUM_OUTCOMES for i in range(3))


class _Outcome:
    """How often a prediction was right lately, and the feature that stands for it."""

    __slots__ = ("feature", "hits", "uses")

    def __init__(self) -> None:
        self.hits = 0.0
        self.uses = 0.0
        self.feature = 0

    def add(self, right: bool, first_feature: int) -> None:
        self.hits = hits = self.hits * OUTCOME_DECAY + right
        self.uses = uses = self.uses * OUTCOME_DECAY + 1.0
        level = min(4, int(5 * (hits + 0.5) / (uses + 1)))
        self.feature = first_feature + 1 + 5 * (uses > 1) + 5 * (uses > 3) + level


class Calibration:
    """Weights and outcomes; they outlive a reply.

    Raises ValueError for start weights of another number than there are features.
    """

    __slots__ = ("by_pair", "by_previous", "by_token", "weights")

    def __init__(self, start: Sequence[float]) -> None:
        if len(start) != features.NUM_WEIGHTS:
            raise ValueError(f"{len(start)} start weights for {features.NUM_WEIGHTS} features")
        self.weights = list(start)
        # Each holds the outcomes of the first tokens of chains: predicted, before it, both.
        self.by_token: dict[int, _Outcome] = {}
        self.by_previous: dict[int, _Outcome] = {}
        self.by_pair: dict[int, _Outcome] = {}

    def outcome_features(self, previous: int, token: int) -> tuple[int, int, int]:
        """Return the features of what became of this prediction before."""
        a = self.by_token.get(token)
        b = self.by_previous.get(previous)
        c = self.by_pair.get(previous << _PAIR_SHIFT ^ token)
        return (
            _UNSEEN[0] if a is None else a.feature,
            _UNSEEN[1] if b is None else b.feature,
            _UNSEEN[2] if c is None else c.feature,
        )

    def learn(  # noqa: PLR0917 - once a pass, where keywords would cost
        self,
        tokens: Sequence[int],
        probabilities: Sequence[float],
        features_of: Sequence[tuple[int, ...]],
        output: Sequence[int],
        previous: int,
        bias: float,
    ) -> tuple[int, float]:
        """Learn from what the target made of a chain: tokens, their probabilities and features.

        `output` is what it committed, `previous` the token before. Returns how many tokens were
        right from the first on, and the new bias.
        """
        weights = self.weights
        for position, (token, decided) in enumerate(zip(tokens, output, strict=False)):
            right = token == decided
            # Which are learned from may not depend on the outcome, or the estimates would be off.
            if position < LEARNED_IN_FULL or not position % EVERY:
                error = right - probabilities[position]
                if position >= LEARNED_IN_FULL:
                    error *= EVERY
                step = WEIGHT_RATE * error
                for feature in features_of[position]:
                    weights[feature] += step
                bias = max(-BIAS_LIMIT, min(BIAS_LIMIT, bias + BIAS_RATE * error))
            if position < features.EARLY:
                self._count(previous, token, right)
                previous = token
            if not right:
                return position, bias
        return min(len(tokens), len(output)), bias

    def _count(self, previous: int, token: int, right: bool) -> None:
        if len(self.by_pair) >= MAX_OUTCOMES:
            for table in (self.by_token, self.by_previous, self.by_pair):
                table.clear()
        for table, key, unseen in (
            (self.by_token, token, _UNSEEN[0]),
            (self.by_previous, previous, _UNSEEN[1]),
            (self.by_pair, previous << _PAIR_SHIFT ^ token, _UNSEEN[2]),
        ):
            outcome = table.get(key)
            if outcome is None:
                outcome = table[key] = _Outcome()
            outcome.add(right, unseen)


def sigmoid(value: float) -> float:
    """Return 1 / (1 + exp(-value))."""
    return 1.0 / (1.0 + math.exp(-value)) if value > -700 else 0.0
