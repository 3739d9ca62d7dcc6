"""Random choices of verifiers: keyed by seed and position, or enumerated by tests.

A verifier makes three kinds of choices, all through this interface, so that a test can try every
outcome in place of a draw and add up the probabilities.
"""

from typing import Protocol

import numpy as np

from akunu_lab.verifying.rejection import Probabilities
from akunu_py.api import NoiseKey, Purpose


class Chance(Protocol):
    """Source of random choices; `position` counts tokens from the beginning of the prompt."""

    def accepts(self, probability: float, position: int, attempt: int) -> tuple[bool, float]:
        """Return True with this probability, and the uniform number that decided.

        `attempt` counts the draws tried at the position.
        """

    def token(self, weights: Probabilities, position: int) -> int:
        """Draw the token at a position from a distribution."""

    def index(self, count: int, position: int, attempt: int) -> int:
        """Draw one of 0 .. count - 1 with equal probabilities."""


class KeyedChance:
    """Choices as functions of (seed, position, purpose, attempt), so that a run is repeatable.

    A position is decided once, so no number is used twice. Uniform numbers have 53 bits, as many as
    a float64 holds; with 32 bits a token of probability 1e-10 would be impossible.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def accepts(self, probability: float, position: int, attempt: int) -> tuple[bool, float]:
        """Compare the number of `Purpose.ACCEPTANCE` with the probability."""
        uniform = self.uniform(Purpose.ACCEPTANCE, position, attempt)
        return uniform < probability, uniform

    def token(self, weights: Probabilities, position: int) -> int:
        """Invert the cumulative weights at the number of `Purpose.RESIDUAL`."""
        cumulative = np.cumsum(weights)
        point = self.uniform(Purpose.RESIDUAL, position) * cumulative[-1]
        # The first sum above the point; a token of weight 0 adds nothing and is never chosen.
        return int(np.searchsorted(cumulative, point, side="right"))

    def index(self, count: int, position: int, attempt: int) -> int:
        """Cut [0, 1) into equal parts at the number of `Purpose.ORDER`."""
        return int(self.uniform(Purpose.ORDER, position, attempt) * count)

    def uniform(self, purpose: Purpose, position: int, attempt: int = 0) -> float:
        """Return a number in [0, 1), a multiple of 2**-53."""
        key = NoiseKey.at(self._seed, position, purpose)
        bits = key.bits(2 * attempt) << 32 | key.bits(2 * attempt + 1)
        return (bits >> 11) * 2.0**-53
