"""n-gram counts of one reply as a probability model."""

from collections.abc import Sequence

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
from akunu_py.api import ConfigError, ContractError

MAX_ORDER = 8
_FIRST_CAPACITY = 256


class _Followers:
    """Tokens seen after one context, as places among the unigrams, with their counts."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.total = 0


class NgramModel:
    """Counts of n-grams of 1 to `order` tokens, smoothed as in `interpolation`.

    `order` 1 is the unigram model, 2 the bigram model, 4 backs off over four orders. All observed
    tokens are counted. A token takes one dictionary entry for each order above 1. The time of a
    distribution grows with the number of different tokens seen, not with the vocabulary.

    Raises ConfigError for an order, discount or vocabulary out of range.
    """

    def __init__(self, vocabulary_size: int, *, order: int = 4, discount: float = DISCOUNT) -> None:
        check_vocabulary_size(vocabulary_size)
        if not isinstance(order, int) or not 1 <= order <= MAX_ORDER:
            raise ConfigError(f"the order is {order!r}; give 1 (unigrams) to {MAX_ORDER}")
        check_discount(discount)
        self._vocabulary_size = vocabulary_size
        self._order = order
        self.discount = discount
        self.total = 0
        # Each token has a place, in the order of first occurrences; the arrays have spare room.
        self._places: dict[int, int] = {}
        self._tokens: NDArray[np.int64] = np.empty(_FIRST_CAPACITY, np.int64)
        self._counts: NDArray[np.int64] = np.zeros(_FIRST_CAPACITY, np.int64)
        # _tables[k - 1]: contexts of k tokens, by their places.
        self._tables: list[dict[tuple[int, ...], _Followers]] = [{} for _ in range(order - 1)]
        self._context: tuple[int, ...] = ()

    @property
    def vocabulary_size(self) -> int:
        return self._vocabulary_size

    @property
    def order(self) -> int:
        return self._order

    def observe(self, tokens: Sequence[int]) -> None:
        """Count tokens at every order whose context is long enough.

        The counts do not depend on how the tokens are divided into calls. Raises ContractError for
        a token outside the vocabulary; tokens before it are counted.
        """
        for token in tokens:
            self._count(token)

    def _count(self, token: int) -> None:
        place = self._places.get(token)
        if place is None:
            place = self._new_place(token)
        self._counts[place] += 1
        self.total += 1
        context = self._context
        for length, table in enumerate(self._tables[: len(context)], start=1):
            key = context[-length:]
            followers = table.get(key)
            if followers is None:
                followers = table[key] = _Followers()
            followers.counts[place] = followers.counts.get(place, 0) + 1
            followers.total += 1
        if self._order > 1:
            self._context = (*context, place)[1 - self._order :]

    def _new_place(self, token: int) -> int:
        if not 0 <= token < self._vocabulary_size:
            raise ContractError(
                f"token {token} was observed; the vocabulary ends at {self._vocabulary_size - 1}"
            )
        place = len(self._places)
        if place == self._tokens.size:
            self._tokens = np.concatenate((self._tokens, np.empty_like(self._tokens)))
            self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
        self._tokens[place] = token
        self._places[token] = place
        return place

    def distribution(self, context: Sequence[int]) -> SparseDistribution:
        places = self._known_places(context[1 - self._order :] if self._order > 1 else ())
        longer: list[Sightings] = []
        for length in range(1, len(places) + 1):
            found = self._tables[length - 1].get(tuple(places[-length:]))
            if found is None:
                break
            number = len(found.counts)
            longer.append(
                Sightings(
                    np.fromiter(found.counts.keys(), np.int64, number),
                    np.fromiter(found.counts.values(), np.int64, number),
                    found.total,
                )
            )
        size = len(self._places)
        unigrams = Sightings(self._tokens[:size], self._counts[:size], self.total)
        return interpolate(unigrams, longer, self.discount, self._vocabulary_size)

    def _known_places(self, context: Sequence[int]) -> list[int]:
        """Return the places of the longest end of a context in which every token was seen."""
        places: list[int] = []
        for token in reversed(context):
            place = self._places.get(token)
            if place is None:
                break
            places.append(place)
        places.reverse()
        return places
