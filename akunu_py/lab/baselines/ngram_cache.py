"""llama.cpp's n-gram cache ("lookup decoding"): counts of what followed n-grams, with gates.

After ggml-org/llama.cpp's lookup example: n-grams of 1 to 4 tokens, the longest first, in the
text's own table (lax gates), then in the one of earlier texts (strict gates). A gate asks for a
least number of sightings and a least share of the likeliest continuation. Drafts are chained, 8
tokens by default. Its third table, static and read from a file made of a corpus, is left out.
"""

from collections.abc import Sequence

from akunu_py.bench.replay.baseline import Baseline

_MAX_N = 4
_LAX = ((2, 66), (2, 50), (1, 50), (1, 50))
_STRICT = ((4, 75), (3, 66), (2, 66), (2, 66))
"""For n = 1..4: least sightings, and least percentage of the likeliest continuation."""


class _Entry:
    """What followed one n-gram; among equal counts the one that got there last is the best."""

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


_Table = dict[tuple[int, ...], _Entry]


class NgramCache(Baseline):
    """The text's own table, and that of all earlier texts, prompts included."""

    name = "llama-ngram-cache"
    default_limit = 8

    def __init__(self) -> None:
        self.reset()
        self.begin()

    def begin(self) -> None:
        """Start a text with an empty table of its own."""
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
                    entry = table[key] = _Entry()
                entry.add(token)
            last = (*last, token)[-_MAX_N:]
        self._last = last

    def draft(self, limit: int) -> Sequence[int]:
        """Chain tokens until no table's gates let one through."""
        last = self._last
        drafted: list[int] = []
        while len(drafted) < limit:
            token = _gated(self._context, last, _LAX)
            if token is None:
                token = _gated(self._dynamic, last, _STRICT)
            if token is None:
                break
            drafted.append(token)
            last = (*last, token)[-_MAX_N:]
        return drafted

    def end(self) -> None:
        """Merge the text's table into that of earlier texts."""
        for key, entry in self._context.items():
            known = self._dynamic.get(key)
            if known is None:
                self._dynamic[key] = entry
            else:
                for token, times in entry.counts.items():
                    known.add(token, times)
        self.begin()

    def reset(self) -> None:
        """Forget earlier texts."""
        self._dynamic: _Table = {}


def _gated(table: _Table, last: tuple[int, ...], gates: tuple[tuple[int, int], ...]) -> int | None:
    """Return the likeliest continuation of the longest n-gram whose gate it passes."""
    for start in range(len(last)):
        entry = table.get(last[start:])
        if entry is not None:
            least, percent = gates[len(last) - start - 1]
            if entry.total >= least and 100 * entry.best_count >= percent * entry.total:
                return entry.best
    return None
