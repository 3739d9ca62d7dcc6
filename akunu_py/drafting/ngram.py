"""Drafters by n-grams: hashed bigram to 4-gram tables over the text of one reply.

Each table maps a context of 1, 2 or 3 tokens, hashed by FNV-1a, to the counts of the tokens that
followed it. A draft takes the most frequent continuation of the longest known context, token by
token. Among equally frequent ones the one seen last wins.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from akunu_py.protocols import Drafter
from akunu_py.system.errors import ConfigError
from akunu_py.values.types import Draft

FNV_OFFSET = 14695981039346656037
FNV_PRIME = 1099511628211
_MASK = 2**64 - 1

# With fewer tokens than this the loop is faster than numpy.
_MIN_BATCH = 48


def fnv1a(tokens: Iterable[int]) -> int:
    """Return the 64-bit FNV-1a hash of token ids; each id is xor-ed in as a whole.

    For ids below 256 this is FNV-1a over bytes (Fowler, Noll, Vo; draft-eastlake-fnv).
    """
    key = FNV_OFFSET
    for token in tokens:
        key = ((key ^ token) * FNV_PRIME) & _MASK
    return key


class Continuations:
    """Counts of the tokens that followed one context.

    `counts` is ordered by when its tokens were last seen, so recency needs no positions. `best` is
    the token with the highest count; among equals, the one seen last.
    """

    __slots__ = ("best", "best_count", "counts", "total")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.best = -1
        self.best_count = 0
        self.total = 0

    def add(self, token: int, times: int = 1) -> None:
        """Count occurrences of a token; calls are in the order of the text."""
        count = self.counts.pop(token, 0) + times
        self.counts[token] = count
        self.total += times
        if count >= self.best_count:
            self.best, self.best_count = token, count

    def subtract(self, token: int) -> None:
        """Remove the oldest occurrence of a token."""
        count = self.counts[token] - 1
        self.total -= 1
        if count:
            self.counts[token] = count
        else:
            del self.counts[token]
        if token == self.best:
            self.best, self.best_count = -1, 0
            # Among equals the one seen last wins, so the latest comes first.
            for candidate, times in reversed(self.counts.items()):
                if times > self.best_count:
                    self.best, self.best_count = candidate, times


class NgramDrafter(Drafter):
    """n-gram tables whose counts grow over the whole reply (`--drafter ngram`).

    The history holds the last `history` tokens. Counts stay when a token leaves it: the window
    limits the memory of the history, not the predictions. `WindowedNgramDrafter` removes counts.
    Contexts of fewer than `min_match` tokens are not used.

    Raises ConfigError for an order below 2, a window smaller than one n-gram, a `min_match` that no
    table has, or a negative number of draft tokens.
    """

    name = "ngram"
    key = staticmethod(fnv1a)
    """From the tokens of a context to its key in `tables`."""

    def __init__(
        self,
        *,
        max_order: int = 4,
        num_draft_tokens: int = 4,
        history: int = 512,
        min_match: int = 1,
    ) -> None:
        if max_order < 2:
            raise ConfigError(f"max_order is {max_order}; give 2 (bigrams) or more")
        if history < max_order:
            raise ConfigError(f"history is {history}; give at least max_order, {max_order}")
        if not 1 <= min_match < max_order:
            raise ConfigError(f"min_match is {min_match}; give 1 to max_order - 1, {max_order - 1}")
        if num_draft_tokens < 0:
            raise ConfigError(f"num_draft_tokens is {num_draft_tokens}; give 0 or more")
        self.max_order = max_order
        self.min_match = min_match
        self.num_draft_tokens = num_draft_tokens
        self.history: deque[int] = deque(maxlen=history)
        # tables[k - 1]: contexts of k tokens.
        self.tables: list[dict[int, Continuations]] = [{} for _ in range(max_order - 1)]
        # The last tokens, at most max_order - 1, and the keys of the contexts that they form.
        self._context: tuple[int, ...] = ()
        self._keys: tuple[int, ...] = ()

    def observe(self, tokens: Sequence[int]) -> None:
        if len(tokens) >= _MIN_BATCH:
            self.update_batch(tokens)
            return
        for token in tokens:
            self._count(token)
            self._forget(token)

    def _count(self, token: int) -> None:
        """Count one token after the current contexts, and append it to them."""
        for table, key in zip(self.tables, self._keys, strict=False):
            entry = table.get(key)
            if entry is None:
                entry = table[key] = Continuations()
            entry.add(token)
        self._context = (*self._context, token)[1 - self.max_order :]
        self._keys = _suffix_keys(self._context)

    def _forget(self, token: int) -> None:
        """Move the window by one token."""
        self.history.append(token)

    def update_batch(self, tokens: Sequence[int] | NDArray[np.integer]) -> None:
        """Count many tokens at once, with the result of `observe`; vectorised for prompts."""
        array = np.asarray(tokens, dtype=np.uint64)
        if array.size == 0:
            return
        before = np.array(self._context, dtype=np.uint64)
        for length, table in enumerate(self.tables, start=1):
            _count_all(table, np.concatenate((before[-length:], array)), length)
        tail = [int(token) for token in array[1 - self.max_order :]]
        self._context = (*self._context, *tail)[1 - self.max_order :]
        self._keys = _suffix_keys(self._context)
        self.history.extend(int(token) for token in array[-(self.history.maxlen or 0) :])

    def propose(self, limit: int) -> Draft:
        """Draft up to min(limit, num_draft_tokens) tokens.

        The longest known context decides each token, and the draft ends where no context is known.
        `match_length` is the length of the first token's context. `confidence` is each token's
        share of the occurrences of its context.
        """
        limit = min(limit, self.num_draft_tokens)
        context = self._context
        tokens: list[int] = []
        confidence: list[float] = []
        match_length = 0
        while len(tokens) < limit:
            for length in range(len(context), self.min_match - 1, -1):
                # Keys are known for the committed context; with drafted tokens they are computed.
                key = fnv1a(context[-length:]) if tokens else self._keys[length - 1]
                entry = self.tables[length - 1].get(key)
                if entry is not None:
                    break
            else:
                break
            token = entry.best
            match_length = match_length or length
            tokens.append(token)
            confidence.append(entry.best_count / entry.total)
            context = (*context, token)[1 - self.max_order :]
        return Draft.chain(tokens, self.name, match_length, tuple(confidence))


class WindowedNgramDrafter(NgramDrafter):
    """n-gram tables of only the last `history` tokens (`--drafter ngram-window`).

    A count is subtracted when the first token of its n-gram leaves the window. Recent text gets
    more weight, and older text can no longer be copied.
    """

    name = "ngram-window"

    def _forget(self, token: int) -> None:
        if len(self.history) == self.history.maxlen:
            oldest = tuple(islice(self.history, self.max_order))
            key = FNV_OFFSET
            for length, table in enumerate(self.tables, start=1):
                key = ((key ^ oldest[length - 1]) * FNV_PRIME) & _MASK
                entry = table[key]
                entry.subtract(oldest[length])
                if not entry.total:
                    del table[key]
        self.history.append(token)

    def update_batch(self, tokens: Sequence[int] | NDArray[np.integer]) -> None:
        """Count many tokens at once: the tables are built anew from the window's tokens."""
        limit = self.history.maxlen or 0
        kept = [*self.history, *(int(token) for token in tokens)][-limit:]
        self.tables = [{} for _ in self.tables]
        self.history.clear()
        self._context = self._keys = ()
        super().update_batch(kept)


def _suffix_keys(context: tuple[int, ...]) -> tuple[int, ...]:
    """Return the keys of the last 1, 2, ... tokens of a context."""
    return tuple(fnv1a(context[-length:]) for length in range(1, len(context) + 1))


def _count_all(table: dict[int, Continuations], tokens: NDArray[np.uint64], length: int) -> None:
    """Add every n-gram of `length` context tokens in `tokens` to a table."""
    size = tokens.size - length
    if size <= 0:
        return
    keys = np.full(size, FNV_OFFSET, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for offset in range(length):
            keys = (keys ^ tokens[offset : offset + size]) * np.uint64(FNV_PRIME)
    followers = tokens[length:]
    # Stable sort by (key, follower): positions ascend within a group, so its last is the latest.
    order = np.lexsort((followers, keys))
    keys, followers = keys[order], followers[order]
    new_group = np.empty(size, dtype=bool)
    new_group[0] = True
    new_group[1:] = (keys[1:] != keys[:-1]) | (followers[1:] != followers[:-1])
    starts = np.flatnonzero(new_group)
    ends = np.append(starts[1:], size)
    # Occurrences are added in the order of their last positions, which makes recency right.
    replay = np.argsort(order[ends - 1])
    for key, token, times in zip(
        keys[starts][replay].tolist(),
        followers[starts][replay].tolist(),
        (ends - starts)[replay].tolist(),
        strict=True,
    ):
        entry = table.get(key)
        if entry is None:
            entry = table[key] = Continuations()
        entry.add(token, times)
