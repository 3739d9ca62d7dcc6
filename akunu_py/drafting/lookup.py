"""Prompt lookup: copy what followed the longest earlier match of the last tokens.

Saxena 2023 (github.com/apoorvumang/prompt-lookup-decoding), with the most recent occurrence where
there are several, and with text that runs into itself copied on: a loop drafts as far as asked for.
"""

from collections.abc import Sequence

from akunu_py.errors import ConfigError
from akunu_py.types import Draft


class LookupDrafter:
    """Prompt lookup over the whole text of one reply (`--drafter lookup`).

    A table for each length of context holds where its last occurrence was followed. The longest
    context that occurred before decides, if it has `min_match` tokens or more; `match_length` is
    its length.

    Raises ConfigError for contexts of no token, a shortest one above the longest, or a negative
    number of draft tokens.
    """

    name = "lookup"

    def __init__(
        self, *, max_context: int = 3, num_draft_tokens: int = 10, min_match: int = 1
    ) -> None:
        if max_context < 1:
            raise ConfigError(f"max_context is {max_context}; give 1 or more")
        if not 1 <= min_match <= max_context:
            raise ConfigError(f"min_match is {min_match}; give 1 to max_context, {max_context}")
        if num_draft_tokens < 0:
            raise ConfigError(f"num_draft_tokens is {num_draft_tokens}; give 0 or more")
        self.max_context = max_context
        self.min_match = min_match
        self.num_draft_tokens = num_draft_tokens
        self.tokens: list[int] = []
        # tables[n - 1]: n tokens -> position of what followed them last.
        self.tables: list[dict[tuple[int, ...], int]] = [{} for _ in range(max_context)]

    def observe(self, tokens: Sequence[int]) -> None:
        """Take in committed tokens: each is what follows the contexts that end before it."""
        start = len(self.tokens)
        self.tokens += tokens
        text = self.tokens
        for length, table in enumerate(self.tables, start=1):
            first = max(start, length)
            if first >= len(text):
                continue
            # The k-th column holds the k-th token of every context; later positions win.
            columns = (text[first - length + k : len(text) - length + k] for k in range(length))
            table.update(zip(zip(*columns, strict=True), range(first, len(text)), strict=True))

    def propose(self, limit: int) -> Draft:
        """Draft min(limit, num_draft_tokens) tokens, or none where no context is known."""
        limit = min(limit, self.num_draft_tokens)
        if limit <= 0:
            return Draft.empty(self.name)
        text = self.tokens
        for length in range(min(self.max_context, len(text)), self.min_match - 1, -1):
            position = self.tables[length - 1].get(tuple(text[-length:]))
            if position is not None:
                break
        else:
            return Draft.empty(self.name)
        drafted = text[position : position + limit]
        while len(drafted) < limit:
            # The match overlaps the end: what was drafted goes on as the text would.
            drafted += drafted[: limit - len(drafted)]
        return Draft.chain(drafted, self.name, length)
