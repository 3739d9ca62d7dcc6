"""lambda: the running ratio of tokens to cost."""

_MEMORY = 0.98
_START = 8.0


class RunningRate:
    """Tokens for the time of a plain step, over about the last fifty steps added.

    `plain` is how many tokens a plain step brings, and the rate is at least that. It starts from 8
    plain steps, and each step discounts the past by 0.98.
    """

    def __init__(self, plain: int = 1) -> None:
        self._plain = plain
        self._tokens, self._cost = _START * plain, _START

    @property
    def value(self) -> float:
        """Return the rate."""
        return max(self._plain, self._tokens / self._cost)

    def add(self, tokens: int, cost: float) -> None:
        """Add a step: the tokens that it brought, and its cost in plain steps."""
        self._tokens = self._tokens * _MEMORY + tokens
        self._cost = self._cost * _MEMORY + cost
