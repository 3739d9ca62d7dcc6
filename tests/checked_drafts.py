"""A drafter that checks what a model drafts for it, and spoils it for what follows."""

import random

from akunu_py.drafting.prediction_head import PredictionHeadDrafter
from akunu_py.values.types import Draft


class CheckedDrafter(PredictionHeadDrafter):
    """Hands each draft to `checked`, which returns what becomes of it.

    With `silent` above 0 it sometimes drafts nothing, so that plain steps with one in flight come
    between. `text` is what it observed in this reply, `drafts` counts drafts with tokens.
    """

    def __init__(self, model, *, silent=0.3, seed=4, **options):
        super().__init__(model, **options)
        self.rng = random.Random(seed)
        self._silent = silent
        self.text, self.drafts, self.num_steps = [], 0, -1

    def begin_reply(self, config, seed, check=None):
        super().begin_reply(config, seed, check)
        self.text = []

    def observe(self, tokens):
        super().observe(tokens)
        self.text += tokens
        self.num_steps += 1

    def propose(self, limit):
        if self._silent and self.rng.random() < self._silent:
            return Draft.empty()
        draft = self.draft(limit)
        self.drafts += bool(draft.tokens)
        return self.checked(draft, limit)

    def draft(self, limit):
        return super().propose(limit)

    def spoiled(self, tokens, size):
        """Return a draft whose tokens are wrong from some place on, so that rows are rejected."""
        place = self.rng.randrange(len(tokens) + 1)
        wrong = [(token + 1) % size for token in tokens[place:]]
        return Draft.chain((*tokens[:place], *wrong), self.name)
