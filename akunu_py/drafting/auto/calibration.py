"""An online estimate of the probability that the target takes a candidate token.

It is an additive logistic model: sigmoid(bias + the weights of the token's features). Every token
that the target decides on, right or wrong, moves the weights of its features by the error of the
estimate. The bias belongs to one reply. Further features are the past outcomes of the token, of the
token before it, and of the pair.
"""

from collections.abc import Sequence

from akunu_py.drafting.auto import features

WEIGHT_RATE = 0.03
BIAS_RATE = 0.05
BIAS_LIMIT = 1.5
OUTCOME_DECAY = 0.9
MAX_OUTCOMES = 60_000  # most tokens and pairs that are remembered; beyond it all are forgotten

PAIR_SHIFT = 24
# A history of outcomes: a 1 and then a bit per outcome, the latest lowest, at most twelve.
UNSEEN = 1
_FULL = 1 << 12


def _levels() -> list[int]:
    """Return the bucket of each history, by its number of outcomes and recent hits."""
    levels, hits, uses = [0, 0], [0.0, 0.0], [0.0, 0.0]
    for history in range(2, 2 * _FULL):
        h = hits[history >> 1] * OUTCOME_DECAY + (history & 1)
        u = uses[history >> 1] * OUTCOME_DECAY + 1.0
        hits.append(h)
        uses.append(u)
        levels.append(1 + 5 * (u > 1) + 5 * (u > 3) + min(4, int(5 * (h + 0.5) / (u + 1))))
    return levels


_LEVELS = _levels()
TOKEN_ROWS, PREVIOUS_ROWS, PAIR_ROWS = (
    [features.OUTCOMES + i * features.NUM_OUTCOMES + level for level in _LEVELS] for i in range(3)
)
# A history after one more outcome; a full one loses its oldest.
_AFTER_WRONG = [
    history << 1 if history < _FULL else (history << 1 & _FULL - 1) | _FULL
    for history in range(2 * _FULL)
]
_AFTER_RIGHT = [history | 1 for history in _AFTER_WRONG]


class Calibration:
    """Weights and outcomes; they outlive a reply.

    Raises ValueError unless there is one start weight for each feature.
    """

    __slots__ = ("by_pair", "by_previous", "by_token", "weights")

    def __init__(self, start: Sequence[float]) -> None:
        if len(start) != features.NUM_WEIGHTS:
            raise ValueError(f"{len(start)} start weights for {features.NUM_WEIGHTS} features")
        self.weights = list(start)
        # Histories of the tokens of chains: by token, by the token before, and by pair.
        self.by_token: dict[int, int] = {}
        self.by_previous: dict[int, int] = {}
        self.by_pair: dict[int, int] = {}

    def learn(  # noqa: PLR0917 - called once per pass, where keywords would cost time
        self,
        tokens: list[int],
        probabilities: Sequence[float],
        features_of: Sequence[tuple[int, ...]],
        output: Sequence[int],
        previous: int,
        bias: float,
    ) -> tuple[int, float]:
        """Learn from a chain's tokens up to the first wrong one, drafted or not.

        `output` has the committed tokens and `previous` is the token before them. Returns the
        number of right tokens before the first wrong one, and the new bias.
        """
        weights = self.weights
        by_token, by_previous, by_pair = self.by_token, self.by_previous, self.by_pair
        if len(by_pair) > MAX_OUTCOMES - len(tokens):
            for table in (by_token, by_previous, by_pair):
                table.clear()
        right = 0
        for token, decided, probability, found in zip(
            tokens, output, probabilities, features_of, strict=False
        ):
            hit = token == decided
            error = hit - probability
            bias += BIAS_RATE * error
            step = WEIGHT_RATE * error
            for feature in found:
                weights[feature] += step
            after = _AFTER_RIGHT if hit else _AFTER_WRONG
            pair = previous << PAIR_SHIFT ^ token
            by_token[token] = after[by_token.get(token, UNSEEN)]
            by_previous[previous] = after[by_previous.get(previous, UNSEEN)]
            by_pair[pair] = after[by_pair.get(pair, UNSEEN)]
            if not hit:
                break
            right += 1
            previous = token
        return right, max(-BIAS_LIMIT, min(BIAS_LIMIT, bias))
