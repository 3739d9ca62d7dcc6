"""n-gram tables with the target's runners-up, for contexts that do not occur in the text.

n-gram assisted speculative decoding (github.com/romsto/Speculative-Decoding, "NASD"): the target's
likeliest tokens of every verified row go into the tables, including rows of rejected tokens. So a
context that never occurred in the text has continuations once the target evaluated it. Here these
candidates have separate tables, and the text has priority over them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from akunu_lab.baselines.ngrams import Followers
from akunu_py.api import ConfigError, Draft, NgramDrafter

MAX_CONTEXTS = 100_000
"""Most contexts of one length; the oldest are dropped first."""

_MIN_REACH = 0.25  # least probability that all candidates of a draft are right
_DECAY = 0.95
_START_HITS, _START_TRIES = 0.5, 1.0


@dataclass(frozen=True, slots=True)
class _Next:
    """A drafted token, the length of its context, and whether it is a candidate (`guessed`)."""

    token: int
    confidence: float
    length: int
    guessed: bool


class AssistedNgramDrafter(NgramDrafter):
    """n-grams of the text, supplemented by the target's candidates.

    The longest known context decides each token, and the text comes before candidates. The i-th
    best of `num_candidates` counts like num_candidates - i occurrences. The confidence of a token
    from the text is its share of the occurrences. The confidence of a candidate is the recent share
    of hits among candidates after contexts of that length.

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
        self.candidates: list[dict[int, Followers]] = [{} for _ in range(max_order - 1)]
        self._hits = [_START_HITS] * max_order
        self._tries = [_START_TRIES] * max_order
        self._drafted: tuple[_Next, ...] = ()

    def observe_candidates(self, rows: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Count the likeliest tokens after each row, at every order.

        The rows form a chain: the first row has the last committed token, and each further row
        follows the one before. If the first row does not fit, its token alone is the first context.
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
            key = self.key(context[-length:])
            entry = table.get(key)
            if entry is None:
                if len(table) >= MAX_CONTEXTS:
                    del table[next(iter(table))]
                entry = table[key] = Followers()
            # The best one last, because the one seen last wins among equals.
            for rank in range(len(candidates) - 1, -1, -1):
                entry.add(candidates[rank], self.num_candidates - rank)

    def observe(self, tokens: Sequence[int]) -> None:
        """Count committed tokens, and the hits and misses of drafted candidates."""
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
        """Draft up to min(limit, num_draft_tokens) tokens, as long as candidates are likely enough.

        The first token is always drafted; otherwise nothing would show that the odds improved.
        """
        draft, self._drafted = self._continue(self._context, limit)
        return draft

    def extend(self, before: Draft, limit: int) -> Draft:
        """Draft like `propose`, after the chain `before`, which is not counted."""
        if not before:
            return self.propose(limit)
        context = (*self._context, *before.tokens)[1 - self.max_order :]
        return self._continue(context, limit)[0]

    def _continue(self, context: tuple[int, ...], limit: int) -> tuple[Draft, tuple[_Next, ...]]:
        limit = min(limit, self.num_draft_tokens)
        drafted: list[_Next] = []
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

    def _likeliest(self, context: tuple[int, ...]) -> _Next | None:
        for length in range(len(context), 0, -1):
            key = self.key(context[-length:])
            entry = self.tables[length - 1].get(key)
            if entry is not None:
                return _Next(entry.best, entry.best_count / entry.total, length, guessed=False)
            guesses = self.candidates[length - 1].get(key)
            if guesses is not None:
                rate = self._hits[length] / self._tries[length]
                return _Next(guesses.best, rate, length, guessed=True)
        return None
