"""Unigram and bigram counts of a corpus, as a fixed model."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from akunu_lab.counts.distribution import SparseDistribution
from akunu_lab.counts.interpolation import (
    DISCOUNT,
    Sightings,
    check_discount,
    check_vocabulary_size,
    interpolate,
)
from akunu_py.api import ConfigError


@dataclass(frozen=True, slots=True)
class CorpusCounts:
    """Counts of tokens, and of pairs of neighbours, in a corpus.

    Raises ValueError for inconsistent arrays: wrong types or lengths, not ascending, ids outside
    the vocabulary, counts below 1 or above 2**62 in sum, pairs of tokens that do not occur, more
    pairs beginning with a token than its occurrences, or pairs with order 1.
    """

    vocabulary_size: int
    order: int
    """2, or 1 without counts of pairs."""

    tokens: NDArray[np.int64]
    """Ids that occur, int64 [n], ascending."""

    counts: NDArray[np.int64]
    pairs: NDArray[np.int64]
    """First id << 32 | second id of each pair that occurs, int64 [m], ascending."""

    pair_counts: NDArray[np.int64]
    """Number of occurrences of each pair, int64 [m]."""

    def __post_init__(self) -> None:
        _check_counts(self.tokens, self.counts, "tokens")
        _check_counts(self.pairs, self.pair_counts, "pairs")
        if self.tokens.size and not 0 <= self.tokens[0] <= self.tokens[-1] < self.vocabulary_size:
            raise ValueError(f"there are tokens outside 0 to {self.vocabulary_size - 1}")
        if self.order not in {1, 2} or (self.order == 1 and self.pairs.size):
            raise ValueError(f"the order is {self.order} and there are {self.pairs.size} pairs")
        if self.pairs.size:
            if self.pairs[0] < 0:
                raise ValueError("there are negative pairs")
            firsts, seconds = self.pairs >> 32, self.pairs & 0xFFFFFFFF
            if not np.isin(firsts, self.tokens).all() or not np.isin(seconds, self.tokens).all():
                raise ValueError("there are pairs of tokens that do not occur")
            begun = np.zeros(self.tokens.size, np.int64)
            np.add.at(begun, np.searchsorted(self.tokens, firsts), self.pair_counts)
            if (begun > self.counts).any():
                raise ValueError("more pairs begin with a token than it occurs")

    @property
    def num_tokens(self) -> int:
        return int(self.counts.sum())


def _check_counts(keys: NDArray[np.int64], counts: NDArray[np.int64], what: str) -> None:
    if keys.shape != counts.shape or keys.ndim != 1:
        raise ValueError(f"there are {keys.shape} {what} and {counts.shape} counts of them")
    if keys.dtype != np.int64 or counts.dtype != np.int64:
        raise ValueError(f"{what} have the types {keys.dtype} and {counts.dtype}, not int64")
    if (keys[1:] <= keys[:-1]).any():
        raise ValueError(f"{what} are not in ascending order")
    if (counts < 1).any():
        raise ValueError(f"there are counts of {what} below 1")
    # In float64 first, because a sum of int64 would wrap around.
    if counts.sum(dtype=np.float64) > 2.0**62:
        raise ValueError(f"the counts of {what} are too large")


@dataclass(frozen=True, slots=True)
class CorpusModel:
    """The unigram (`order` 1) or bigram (2) model of a corpus, smoothed as in `interpolation`.

    It ignores observed tokens, so one model may serve many replies at once.

    Raises ConfigError for an order that the counts do not have, or a discount out of range.
    """

    corpus: CorpusCounts
    order: int = 2
    discount: float = DISCOUNT
    _total: int = field(init=False, repr=False, compare=False)
    # Beginning of each token's pairs; the last entry is their end.
    _starts: NDArray[np.int64] = field(init=False, repr=False, compare=False)
    _followers: NDArray[np.int64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_vocabulary_size(self.corpus.vocabulary_size)
        check_discount(self.discount)
        if self.order not in {1, 2}:
            raise ConfigError(f"the order is {self.order!r}; a corpus gives 1 or 2")
        if self.order > self.corpus.order:
            raise ConfigError("pairs were not counted in this corpus; give order 1, or fit it anew")
        object.__setattr__(self, "_total", self.corpus.num_tokens)
        pairs = self.corpus.pairs if self.order == 2 else self.corpus.pairs[:0]
        bounds = np.append(self.corpus.tokens << 32, np.iinfo(np.int64).max)
        object.__setattr__(self, "_starts", np.searchsorted(pairs, bounds))
        places = np.searchsorted(self.corpus.tokens, pairs & 0xFFFFFFFF)
        object.__setattr__(self, "_followers", places)

    @property
    def vocabulary_size(self) -> int:
        return self.corpus.vocabulary_size

    def observe(self, tokens: Sequence[int]) -> None:
        """Ignore the tokens: only the corpus was counted."""

    def distribution(self, context: Sequence[int]) -> SparseDistribution:
        corpus = self.corpus
        longer: list[Sightings] = []
        if self.order == 2 and context:
            place = int(np.searchsorted(corpus.tokens, context[-1]))
            if place < corpus.tokens.size and corpus.tokens[place] == context[-1]:
                seen = slice(self._starts[place], self._starts[place + 1])
                counts = corpus.pair_counts[seen]
                if counts.size:
                    longer.append(Sightings(self._followers[seen], counts, int(counts.sum())))
        unigrams = Sightings(corpus.tokens, corpus.counts, self._total)
        return interpolate(unigrams, longer, self.discount, corpus.vocabulary_size)
