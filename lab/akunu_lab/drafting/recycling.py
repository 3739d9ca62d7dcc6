"""Token recycling: drafts from the target's own candidates at recent positions.

Luo et al. 2024, "Turning Trash into Treasure" (arXiv:2408.08696). The paper drafts a tree of all
candidates. This drafter makes a chain: after each token the best candidate that the target had when
the token was last fed, in a rejected draft or not. So it drafts where no text matches.
"""

from collections.abc import Sequence

from akunu_py.api import ConfigError, Draft, Drafter

MAX_TOKENS = 100_000  # most tokens with a candidate; the least recently fed are dropped first
_MIN_REACH = 0.25  # least probability that the whole draft is right
_DECAY = 0.95
_START_HITS, _START_TRIES = 0.5, 1.0


class RecyclingDrafter(Drafter):
    """Chains of the target's candidates (`--drafter recycling`), which it reads.

    Raises ConfigError for a negative number of draft tokens.
    """

    name = "recycling"

    def __init__(self, *, num_draft_tokens: int = 4) -> None:
        if num_draft_tokens < 0:
            raise ConfigError(f"num_draft_tokens is {num_draft_tokens}; give 0 or more")
        self.num_draft_tokens = num_draft_tokens
        # Ordered by when their tokens were last fed.
        self._best: dict[int, int] = {}
        self._last: int | None = None
        # Share of right candidates by place in the draft, with more weight for recent passes.
        self._hits = [_START_HITS] * (num_draft_tokens + 1)
        self._tries = [_START_TRIES] * (num_draft_tokens + 1)
        self._drafted: tuple[int, ...] = ()

    def observe_candidates(self, rows: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Remember the best candidate after each row's token; later rows replace earlier ones."""
        table = self._best
        for token, candidates in rows:
            table.pop(token, None)
            if candidates:
                table[token] = candidates[0]
        while len(table) > MAX_TOKENS:
            del table[next(iter(table))]

    def observe(self, tokens: Sequence[int]) -> None:
        if not tokens:
            return
        for place, (drafted, token) in enumerate(zip(self._drafted, tokens, strict=False)):
            right = drafted == token
            self._hits[place] = self._hits[place] * _DECAY + right
            self._tries[place] = self._tries[place] * _DECAY + 1.0
            if not right:
                break
        self._drafted = ()
        self._last = tokens[-1]

    def propose(self, limit: int) -> Draft:
        """Follow the best candidates from the last token, while the chain is likely enough.

        The first token is always drafted; otherwise nothing would show that the odds improved.
        """
        limit = min(limit, self.num_draft_tokens)
        tokens: list[int] = []
        confidence: list[float] = []
        reach = 1.0
        token = None if self._last is None else self._best.get(self._last)
        while token is not None and len(tokens) < limit:
            rate = self._hits[len(tokens)] / self._tries[len(tokens)]
            reach *= rate
            if tokens and reach < _MIN_REACH:
                break
            tokens.append(token)
            confidence.append(rate)
            token = self._best.get(token)
        self._drafted = tuple(tokens)
        return Draft.chain(tokens, self.name, 1 if tokens else 0, tuple(confidence))
