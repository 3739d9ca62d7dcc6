"""llama.cpp's ngram-mod: one shared table from a hash of 24 tokens to the token that followed.

After ggml-org/llama.cpp pull request 19164: a linear congruential hash of the last n = 24 tokens,
4 Mi entries without keys, the newest entry wins; a draft is chained up to 64 tokens and dropped
below 48. All texts share the table. Its reset after five drafts of which less than a quarter was
accepted is left out: here it could only forget copies that later items ask for.
"""

from collections.abc import Sequence

from akunu_py.bench.replay.baseline import Baseline

_N = 24
_LEAST = 48
_MOST = 64
_ENTRIES = 4 * 2**20
_FACTOR = 6364136223846793005
_MASK = 2**64 - 1
_OLDEST = pow(_FACTOR, _N, 2**64)


class NgramMod(Baseline):
    """The table as a dict from slot to token; `_hash` is that of the last 24 tokens."""

    name = "llama-ngram-mod"
    default_limit = _MOST

    def __init__(self) -> None:
        self.reset()
        self.begin()

    def begin(self) -> None:
        """Start a text."""
        self._tokens: list[int] = []
        self._hash = 0

    def observe(self, tokens: Sequence[int]) -> None:
        """Enter each token behind the 24 before it."""
        text = self._tokens
        for token in tokens:
            if len(text) >= _N:
                self._table[self._hash % _ENTRIES] = token
            self._hash = _rolled(self._hash, text, token)
            text.append(token)

    def draft(self, limit: int) -> Sequence[int]:
        """Chain entries; the least length is asked of the chain before `limit` cuts it."""
        size = len(self._tokens)
        if size < _N:
            return ()
        text = self._tokens[-_N:]
        key = self._hash
        while len(text) < _N + _MOST:
            token = self._table.get(key % _ENTRIES)
            if token is None:
                break
            key = _rolled(key, text, token)
            text.append(token)
        drafted = text[_N:]
        return drafted[:limit] if len(drafted) >= _LEAST else ()

    def reset(self) -> None:
        """Empty the table."""
        self._table: dict[int, int] = {}


def _rolled(key: int, text: list[int], token: int) -> int:
    """Return the hash of the last 24 tokens once `token` follows `text`."""
    key = key * _FACTOR + token
    if len(text) >= _N:
        key -= text[-_N] * _OLDEST
    return key & _MASK
