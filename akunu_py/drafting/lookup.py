"""Prompt lookup: copies the text after the longest earlier match of the last tokens.

Saxena 2023 (github.com/apoorvumang/prompt-lookup-decoding), with two changes: among several matches
the most recent one is taken, and a match that reaches the end of the text goes on with its own
tokens, so a loop gives a draft of any length.
"""

from collections.abc import Sequence

from akunu_py.protocols import Drafter
from akunu_py.system.errors import ConfigError
from akunu_py.values.types import Draft


class LookupDrafter(Drafter):
    """Prompt lookup over the whole text of one reply (`--drafter lookup`).

    A table for each length of context has the position after its last occurrence. The longest
    context that occurred before decides, if it has at least `min_match` tokens; `match_length` is
    its length.

    Raises ConfigError for a `max_context` below 1, a `min_match` above it, or a negative number of
    draft tokens.
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
        # tables[n - 1]: n tokens -> position after their last occurrence.
        self.tables: list[dict[tuple[int, ...], int]] = [{} for _ in range(max_context)]

    def observe(self, tokens: Sequence[int]) -> None:
        """Add committed tokens: each follows the contexts that end before it."""
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
        """Draft min(limit, num_draft_tokens) tokens, or none if no context occurred before."""
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
            # The match reaches the end of the text: copy the drafted tokens themselves.
            drafted += drafted[: limit - len(drafted)]
        return Draft.chain(drafted, self.name, length)
