"""Guesses of a draft model's tokens, so that it needs fewer passes.

The draft model checks the guesses as the target checks its drafts (Chen et al. 2024, "Cascade
Speculative Drafting", arXiv:2312.11462, section 3.1: ever smaller models, an n-gram model last).
"""

from collections.abc import Sequence

from akunu_py.api import NgramDrafter

NUM_GUESSES = 4
"""Number of guesses for a pass of the draft model; the drafter `ngram` has the same limit."""

_LEAST_CONFIDENCE = 0.5
"""Least confidence of a guess: below even odds its row mostly costs more than it saves."""


class NgramGuesses(NgramDrafter):
    """n-gram tables of the committed text that continue drawn tokens."""

    def __init__(self) -> None:
        super().__init__(num_draft_tokens=NUM_GUESSES)

    def guess(self, drawn: Sequence[int], limit: int) -> tuple[int, ...]:
        before = self._context, self._keys
        try:
            context = (*self._context, *drawn)[1 - self.max_order :]
            self._context = context
            self._keys = tuple(self.key(context[-size:]) for size in range(1, len(context) + 1))
            draft = self.propose(limit)
        finally:
            self._context, self._keys = before
        size = next(
            (place for place, odds in enumerate(draft.confidence) if odds < _LEAST_CONFIDENCE),
            len(draft),
        )
        return draft.tokens[:size]
