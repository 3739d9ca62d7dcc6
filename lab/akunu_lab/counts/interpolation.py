"""From counts to probabilities: interpolated absolute discounting.

Ney, Essen, Kneser 1994 ("On structuring probabilistic dependences in stochastic language
modelling"); the form is Chen & Goodman 1999, equation 11, with one discount D for all orders:

    P_k(w | c_k) = (n(c_k w) - D [n(c_k w) > 0]) / n(c_k) + D N(c_k) / n(c_k) P_{k-1}(w | c_{k-1})

c_k is the last k tokens, n is a count, and N(c_k) is the number of different tokens seen after c_k.
If c_k was never seen, P_k = P_{k-1}. Below the unigrams (k = 0, the empty context) the distribution
is uniform. Each P_k sums to 1. With D above 0 every token has a positive probability; with D = 0
only the longest known context decides (the maximum-likelihood estimate).
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from akunu_lab.counts.distribution import SparseDistribution
from akunu_py.api import ConfigError

DISCOUNT = 0.75
"""Usual discount for text (Church & Gale 1991: 0.75 for bigrams of newspaper text)."""

MAX_VOCABULARY = 2**24


class CountModel(Protocol):
    """A model of the next token by counts of n-grams."""

    @property
    def vocabulary_size(self) -> int:
        """Return the size of the vocabulary of distributions."""

    @property
    def order(self) -> int:
        """Return the length of the longest n-grams; contexts have one token less."""

    def observe(self, tokens: Sequence[int]) -> None:
        """Count committed tokens, in order; a fixed model ignores them."""

    def distribution(self, context: Sequence[int]) -> SparseDistribution:
        """Return q after a context; only its last `order - 1` tokens are used."""


class Sightings(NamedTuple):
    """Counts of the tokens seen after one context.

    `followers` has the tokens for the empty context, and indices into these for longer ones.
    `counts` has the number of occurrences of each, above 0, and `total` is their sum.
    """

    followers: NDArray[np.int64]
    counts: NDArray[np.integer]
    total: int


def check_discount(discount: float) -> None:
    """Raise ConfigError for a discount out of range."""
    if not 0 <= discount < 1:
        raise ConfigError(f"the discount is {discount!r}; give 0 or more, below 1")


def check_vocabulary_size(size: int) -> None:
    """Raise ConfigError for a size of a vocabulary out of range."""
    if not isinstance(size, int) or not 0 < size <= MAX_VOCABULARY:
        raise ConfigError(f"vocabulary_size is {size!r}; give 1 to {MAX_VOCABULARY}")


def interpolate(
    unigrams: Sightings, longer: Sequence[Sightings], discount: float, vocabulary_size: int
) -> SparseDistribution:
    """Return P of the longest known context; `longer` has the known contexts, shortest first."""
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
