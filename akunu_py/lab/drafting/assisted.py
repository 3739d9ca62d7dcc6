"""n-gram tables that the target fills: its own runners-up where the text says nothing.

n-gram assisted speculative decoding (github.com/romsto/Speculative-Decoding, "NASD"): at every row
that was verified the target's likeliest tokens go into the tables, those behind rejected draft
tokens too. So a context that never stood in the text has continuations as soon as the target saw it
once. Here they have tables of their own: what the target did say counts for more than what it might
have said.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from akunu_py.drafting.ngram import Continuations, NgramDrafter, fnv1a
from akunu_py.errors import ConfigError
from akunu_py.types import Draft

MAX_CONTEXTS = 100_000
"""Contexts of one length that are kept; those first seen longest ago go first."""

_MIN_REACH = 0.25  # probability that all candidates of a draft are right, below which it ends
_DECAY = 0.95
_START_HITS, _START_TRIES = 0.5, 1.0


@dataclass(frozen=True, slots=True)
class _Found:
    """A drafted token; `length` is that of its context, `guessed` where it is no text."""

    token: int
    confidence: float
    length: int
    guessed: bool


class AssistedNgramDrafter(NgramDrafter):
    """n-grams of the text, filled up with the target's candidates; a `CandidateObserver`.

    The longest context that is known decides each token, the text before the candidates. The i-th
    best of `num_candidates` counts as num_candidates - i sightings. The confidence of a token of
    the text is its share of the sightings, that of a candidate how often those after contexts of
    that length were right lately.

    Raises ConfigError as `NgramDrafter` does, and for fewer than one candidate.
    """

    name = "ngram-assisted"

    def __init__(
        self,
        *,
        max_order: int = 4,
        num_draft_tokens: int = 4,
        history: int = 512,
        num_candidates: int = 4,
    ) -> None:
        super().__init__(max_order=max_order, num_draft_tokens=num_draft_tokens, history=history)
        if num_candidates < 1:
            raise ConfigError(f"num_candidates is {num_candidates}; give 1 or more")
        self.num_candidates = num_candidates
        # candidates[k - 1]: contexts of k tokens.
        self.candidates: list[dict[int, Continuations]] = [{} for _ in range(max_order - 1)]
        self._hits = [_START_HITS] * max_order
        self._tries = [_START_TRIES] * max_order
        self._drafted: tuple[_Found, ...] = ()

    def observe_candidates(self, rows: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Count the likeliest tokens after each row, at every order.

        The rows are those of a chain: the first one's token is the last committed one, each
        further one follows the row before. Where the first does not fit, its token alone is
        the context to begin with.
        """
        context = self._context[:-1]
        if rows and self._context[-1:] != (rows[0][0],):
            context = ()
        for token, candidates in rows:
            context = (*context, token)[1 - self.max_order :]
            if candidates:
                self._count_candidates(context, candidates[: self.num_candidates])

    def _count_candidates(self, context: tuple[int, ...], candidates: Sequence[int]) -> None:
        for length, table in enumerate(self.candidates[: len(context)], start=1):
            key = fnv1a(context[-length:])
            entry = table.get(key)
            if entry is None:
                if len(table) >= MAX_CONTEXTS:
                    del table[next(iter(table))]
                entry = table[key] = Continuations()
            # The best one last: among equals the one seen last is drafted.
            for rank in range(len(candidates) - 1, -1, -1):
                entry.add(candidates[rank], self.num_candidates - rank)

    def observe(self, tokens: Sequence[int]) -> None:
        """Count committed tokens; those that were drafted tell how good candidates are."""
        for found, token in zip(self._drafted, tokens, strict=False):
            right = found.token == token
            if found.guessed:
                self._hits[found.length] = self._hits[found.length] * _DECAY + right
                self._tries[found.length] = self._tries[found.length] * _DECAY + 1
            if not right:
                break
        self._drafted = ()
        super().observe(tokens)

    def propose(self, limit: int) -> Draft:
        """Draft up to min(limit, num_draft_tokens) tokens, as long as candidates may be right.

        A first token is drafted whatever the odds, or nobody would learn that they got better.
        """
        draft, self._drafted = self._continued(self._context, limit)
        return draft

    def extend(self, drafted: Sequence[int], limit: int) -> Draft:
        """Draft as `propose` does, to follow `drafted`; those tokens are not counted."""
        if not drafted:
            return self.propose(limit)
        context = (*self._context, *drafted)[1 - self.max_order :]
        return self._continued(context, limit)[0]

    def _continued(self, context: tuple[int, ...], limit: int) -> tuple[Draft, tuple[_Found, ...]]:
        limit = min(limit, self.num_draft_tokens)
        drafted: list[_Found] = []
        reach = 1.0
        while len(drafted) < limit:
            found = self._likeliest(context)
            if found is None:
                break
            if found.guessed:
                reach *= found.confidence
                if drafted and reach < _MIN_REACH:
                    break
            drafted.append(found)
            context = (*context, found.token)[1 - self.max_order :]
        draft = Draft.chain(
            (found.token for found in drafted),
            self.name,
            drafted[0].length if drafted else 0,
            tuple(found.confidence for found in drafted),
        )
        return draft, tuple(drafted)

    def _likeliest(self, context: tuple[int, ...]) -> _Found | None:
        for length in range(len(context), 0, -1):
            key = fnv1a(context[-length:])
            entry = self.tables[length - 1].get(key)
            if entry is not None:
                return _Found(entry.best, entry.best_count / entry.total, length, guessed=False)
            entry = self.candidates[length - 1].get(key)
            if entry is not None:
                chance = self._hits[length] / self._tries[length]
                return _Found(entry.best, chance, length, guessed=True)
        return None
