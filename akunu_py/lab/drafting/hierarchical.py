"""Guesses at what a draft model will say, so that it needs fewer passes.

The draft model checks them as the target checks its drafts (Chen et al. 2024, "Cascade Speculative
Drafting", arXiv:2312.11462, section 3.1, drafts with ever smaller models, an n-gram model last).
"""

from collections.abc import Sequence

from akunu_py.drafting.ngram import NgramDrafter, fnv1a

NUM_GUESSES = 4
"""Tokens guessed for one pass of the draft model: as many as `ngram` drafts for the target."""

_LEAST_CONFIDENCE = 0.5
"""A guess is a row of a pass; below even odds it costs more than it saves on most machines."""


class NgramGuesses(NgramDrafter):
    """n-gram tables of the committed text that continue tokens drawn behind it."""

    def __init__(self) -> None:
        super().__init__(num_draft_tokens=NUM_GUESSES)

    def guess(self, drawn: Sequence[int], limit: int) -> tuple[int, ...]:
        """Return at most `limit` tokens to follow the text and `drawn`, as far as they are likely.

        Tokens that were drawn and not committed are looked up and not counted.
        """
        before = self._context, self._keys
        try:
            context = (*self._context, *drawn)[1 - self.max_order :]
            self._context = context
            self._keys = tuple(fnv1a(context[-size:]) for size in range(1, len(context) + 1))
            draft = self.propose(limit)
        finally:
            self._context, self._keys = before
        size = next(
            (place for place, odds in enumerate(draft.confidence) if odds < _LEAST_CONFIDENCE),
            len(draft),
        )
        return draft.tokens[:size]
