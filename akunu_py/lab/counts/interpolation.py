"""From counts to probabilities: interpolated absolute discounting.

Ney, Essen, Kneser 1994 ("On structuring probabilistic dependences in stochastic language
modelling"); the form is Chen & Goodman 1999, equation 11, with one discount D for all orders:

    P_k(w | c_k) = (n(c_k w) - D [n(c_k w) > 0]) / n(c_k) + D N(c_k) / n(c_k) P_{k-1}(w | c_{k-1})

c_k is the last k tokens, n counts, N(c_k) is the number of different tokens seen after c_k. Where
c_k was never seen P_k = P_{k-1}; below the unigrams (k = 0, the empty context) all tokens of the
vocabulary are alike. Each P_k sums to 1; with D above 0 every token has a probability above 0, with
D = 0 the longest known context alone decides (the maximum-likelihood estimate).
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from akunu_py.errors import ConfigError
from akunu_py.lab.counts.distribution import SparseDistribution

DISCOUNT = 0.75
"""Usual for text (Church & Gale 1991 found 0.75 for bigrams of newspaper text)."""

MAX_VOCABULARY = 2**24


class CountModel(Protocol):
    """Counts of n-grams, and what they say of the next token."""

    @property
    def vocabulary_size(self) -> int:
        """Return the number of tokens that distributions are over."""

    @property
    def order(self) -> int:
        """Return the length of the longest n-grams: contexts have one token fewer."""

    def observe(self, tokens: Sequence[int]) -> None:
        """Take in committed tokens, in order; a model that is fixed lets them pass."""

    def distribution(self, context: Sequence[int]) -> SparseDistribution:
        """Return q after a context, of which the last `order - 1` tokens are used."""


class Sightings(NamedTuple):
    """What was seen after one context.

    `followers` are the tokens after the empty context, and indices into those for longer ones;
    `counts` are how often each was seen, above 0, and `total` is their sum.
    """

    followers: NDArray[np.int64]
    counts: NDArray[np.integer]
    total: int


def check_discount(discount: float) -> None:
    """Raise ConfigError for a discount that leaves no proper distribution."""
    if not 0 <= discount < 1:
        raise ConfigError(f"the discount is {discount!r}; give 0 or more, below 1")


def check_vocabulary_size(size: int) -> None:
    """Raise ConfigError for a vocabulary that no distribution can be over."""
    if not isinstance(size, int) or not 0 < size <= MAX_VOCABULARY:
        raise ConfigError(f"vocabulary_size is {size!r}; give 1 to {MAX_VOCABULARY}")


def interpolate(
    unigrams: Sightings, longer: Sequence[Sightings], discount: float, vocabulary_size: int
) -> SparseDistribution:
    """Return P of the longest known context; `longer` are the known ones, shortest first."""
    if not unigrams.total:
        return SparseDistribution.uniform(vocabulary_size)
    back_off = discount * unigrams.counts.size / unigrams.total
    rest = back_off / vocabulary_size
    probabilities = (unigrams.counts - discount) / unigrams.total + rest
    for followers, counts, total in longer:
        back_off = discount * counts.size / total
        rest *= back_off
        probabilities *= back_off
        probabilities[followers] += (counts - discount) / total
    return SparseDistribution(unigrams.followers, probabilities, rest, vocabulary_size)
