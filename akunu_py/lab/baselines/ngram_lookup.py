"""Prompt lookup: copy what followed an earlier occurrence of the last n tokens.

Saxena, "Prompt Lookup Decoding" (2023), as Hugging Face transformers documents it: the longest
n-gram up to `max_matching_ngram_size` (2 by default; Spec-Bench takes 3), the left-most match,
`num_output_tokens` (10) tokens. vLLM's "ngram" method has the same rule with bounds on both sides,
5 and 5 where neither is given.
"""

from collections.abc import Sequence

from akunu_py.bench.replay.baseline import Baseline


class NgramLookup(Baseline):
    """The longest n-gram of min_n..max_n tokens, its earliest occurrence.

    `_ends[n]` maps an n-gram to the index after its first occurrence that something follows.
    """

    def __init__(self, name: str, *, min_n: int, max_n: int, default_limit: int) -> None:
        self.name = name
        self.default_limit = default_limit
        self._orders = range(max_n, min_n - 1, -1)
        self.begin()

    def begin(self) -> None:
        """Start a reply: nothing outlives one."""
        self._tokens: list[int] = []
        self._ends: dict[int, dict[tuple[int, ...], int]] = {n: {} for n in self._orders}

    def observe(self, tokens: Sequence[int]) -> None:
        """Take in tokens; an n-gram counts as soon as a token follows it."""
        text = self._tokens
        for token in tokens:
            size = len(text)
            for n in self._orders:
                if size >= n:
                    self._ends[n].setdefault(tuple(text[-n:]), size)
            text.append(token)

    def draft(self, limit: int) -> Sequence[int]:
        """Return what followed; at the end of the text the copy ends."""
        for n in self._orders:
            if len(self._tokens) >= n:
                end = self._ends[n].get(tuple(self._tokens[-n:]))
                if end is not None:
                    return self._tokens[end : end + limit]
        return ()
