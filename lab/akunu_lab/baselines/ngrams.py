"""Baselines by n-grams: prompt lookup, and llama.cpp's n-gram cache and ngram-mod."""

from collections.abc import Sequence

from akunu_lab.replay.baseline import Baseline

_CACHE_N = 4
_LAX = ((2, 66), (2, 50), (1, 50), (1, 50))
_STRICT = ((4, 75), (3, 66), (2, 66), (2, 66))
"""For n = 1..4: least number of occurrences, and least percentage of the likeliest follower."""

_MOD_N = 24
_MOD_LEAST = 48
_MOD_MOST = 64
_MOD_ENTRIES = 4 * 2**20
_HASH_FACTOR = 6364136223846793005
_HASH_MASK = 2**64 - 1
_HASH_OLDEST = pow(_HASH_FACTOR, _MOD_N, 2**64)


class NgramLookup(Baseline):
    """Prompt lookup: copies the text after the first occurrence of the longest known n-gram.

    Saxena, "Prompt Lookup Decoding" (2023), as documented by Hugging Face transformers: the longest
    n-gram up to `max_matching_ngram_size` (2 by default, 3 in Spec-Bench), its left-most match,
    `num_output_tokens` (10) tokens. vLLM's "ngram" method has the same rule with bounds on both
    sides, 5 and 5 by default.

    `_ends[n]` maps an n-gram to the index after its first occurrence.
    """

    def __init__(self, name: str, *, min_n: int, max_n: int, default_limit: int) -> None:
        self.name = name
        self.default_limit = default_limit
        self._orders = range(max_n, min_n - 1, -1)
        self.begin()

    def begin(self) -> None:
        """Start a reply; nothing is kept from earlier ones."""
        self._tokens: list[int] = []
        self._ends: dict[int, dict[tuple[int, ...], int]] = {n: {} for n in self._orders}

    def observe(self, tokens: Sequence[int]) -> None:
        """Add tokens; an n-gram is known as soon as a token follows it."""
        text = self._tokens
        for token in tokens:
            size = len(text)
            for n in self._orders:
                if size >= n:
                    self._ends[n].setdefault(tuple(text[-n:]), size)
            text.append(token)

    def draft(self, limit: int) -> Sequence[int]:
        """Return the tokens after the match; the copy ends with the text."""
        for n in self._orders:
            if len(self._tokens) >= n:
                end = self._ends[n].get(tuple(self._tokens[-n:]))
                if end is not None:
                    return self._tokens[end : end + limit]
        return ()


class Followers:
    """Counts of the tokens after one n-gram; among equals the last one to get there is best."""

    __slots__ = ("best", "best_count", "counts", "total")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.total = 0
        self.best = -1
        self.best_count = 0

    def add(self, token: int, times: int = 1) -> None:
        count = self.counts.get(token, 0) + times
        self.counts[token] = count
        self.total += times
        if count >= self.best_count:
            self.best, self.best_count = token, count


_Table = dict[tuple[int, ...], Followers]


class NgramCache(Baseline):
    """llama.cpp's n-gram cache ("lookup decoding"): counts of followers, with gates.

    After ggml-org/llama.cpp's lookup example: n-grams of 1 to 4 tokens, the longest first, in the
    text's own table with lax gates, then in a table of earlier texts, prompts included, with strict
    gates. A gate is a least number of occurrences and a least share of the likeliest follower.
    Drafts are chained, 8 tokens by default. Its third table, read from a file, is left out.
    """

    name = "llama-ngram-cache"
    default_limit = 8

    def __init__(self) -> None:
        self.reset()
        self.begin()

    def begin(self) -> None:
        self._context: _Table = {}
        self._last: tuple[int, ...] = ()

    def observe(self, tokens: Sequence[int]) -> None:
        """Count each token after the n-grams it follows."""
        table, last = self._context, self._last
        for token in tokens:
            for start in range(len(last)):
                key = last[start:]
                entry = table.get(key)
                if entry is None:
                    entry = table[key] = Followers()
                entry.add(token)
            last = (*last, token)[-_CACHE_N:]
        self._last = last

    def draft(self, limit: int) -> Sequence[int]:
        """Chain tokens until no gate lets one through."""
        last = self._last
        drafted: list[int] = []
        while len(drafted) < limit:
            token = _follower(self._context, last, _LAX)
            if token is None:
                token = _follower(self._dynamic, last, _STRICT)
            if token is None:
                break
            drafted.append(token)
            last = (*last, token)[-_CACHE_N:]
        return drafted

    def end(self) -> None:
        """Merge the text's table into the table of earlier texts."""
        for key, entry in self._context.items():
            known = self._dynamic.get(key)
            if known is None:
                self._dynamic[key] = entry
            else:
                for token, times in entry.counts.items():
                    known.add(token, times)
        self.begin()

    def reset(self) -> None:
        self._dynamic: _Table = {}


def _follower(
    table: _Table, last: tuple[int, ...], gates: tuple[tuple[int, int], ...]
) -> int | None:
    """Return the likeliest follower of the longest n-gram whose gate it passes."""
    for start in range(len(last)):
        entry = table.get(last[start:])
        if entry is not None:
            least, percent = gates[len(last) - start - 1]
            if entry.total >= least and 100 * entry.best_count >= percent * entry.total:
                return entry.best
    return None


class NgramMod(Baseline):
    """llama.cpp's ngram-mod: one shared table from a hash of 24 tokens to the next token.

    After ggml-org/llama.cpp pull request 19164: a linear congruential hash of the last n = 24
    tokens, 4 Mi entries without keys; the newest entry wins. A draft is chained up to 64 tokens and
    dropped below 48. All texts share the table. The original resets it after five drafts of which
    less than a quarter was accepted; this is left out, since in a replay it could only forget
    copies that later items need.

    The table is a dict from slot to token; `_hash` is the hash of the last 24 tokens.
    """

    name = "llama-ngram-mod"
    default_limit = _MOD_MOST

    def __init__(self) -> None:
        self.reset()
        self.begin()

    def begin(self) -> None:
        self._tokens: list[int] = []
        self._hash = 0

    def observe(self, tokens: Sequence[int]) -> None:
        """Add each token under the hash of the 24 before it."""
        text = self._tokens
        for token in tokens:
            if len(text) >= _MOD_N:
                self._table[self._hash % _MOD_ENTRIES] = token
            self._hash = _roll_hash(self._hash, text, token)
            text.append(token)

    def draft(self, limit: int) -> Sequence[int]:
        """Chain entries; the least length applies before `limit` cuts the chain."""
        size = len(self._tokens)
        if size < _MOD_N:
            return ()
        text = self._tokens[-_MOD_N:]
        key = self._hash
        while len(text) < _MOD_N + _MOD_MOST:
            token = self._table.get(key % _MOD_ENTRIES)
            if token is None:
                break
            key = _roll_hash(key, text, token)
            text.append(token)
        drafted = text[_MOD_N:]
        return drafted[:limit] if len(drafted) >= _MOD_LEAST else ()

    def reset(self) -> None:
        self._table: dict[int, int] = {}


def _roll_hash(key: int, text: list[int], token: int) -> int:
    """Return the hash of the last 24 tokens once `token` follows `text`."""
    key = key * _HASH_FACTOR + token
    if len(text) >= _MOD_N:
        key -= text[-_MOD_N] * _HASH_OLDEST
    return key & _HASH_MASK
