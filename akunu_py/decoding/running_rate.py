"""lambda: the running ratio of tokens to cost."""

_MEMORY = 0.98
_START = 8.0


class RunningRate:
    """Tokens for the time of a plain step, over about the last fifty steps added; at least 1.

    It starts from 8 tokens in 8 plain steps, and each step discounts the past by 0.98.
    """

    def __init__(self) -> None:
        self._tokens = self._cost = _START

    @property
    def value(self) -> float:
        """Return the rate."""
        return max(1.0, self._tokens / self._cost)

    def add(self, tokens: int, cost: float) -> None:
        """Add a step: the tokens that it brought, and its cost in plain steps."""
        self._tokens = self._tokens * _MEMORY + tokens
        self._cost = self._cost * _MEMORY + cost
