"""A drafter that checks what a model drafts for it, and replies in which heads of all kinds draft.

The replies are those of Markov targets (`markov_heads`), to which every guess must be right.
"""

import random
from unittest.mock import Mock

import pytest
from markov_heads import reply, text_from

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


def check_conversations(session, watched):
    """Prompts that share a beginning of any length with what came before, or all of it.

    `watched` makes the drafter of a reply.
    """
    for number, prompt in enumerate(
        [
            text_from(3, 21), [*text_from(3, 61), *text_from(9, 2)],
            [*text_from(3, 40), *text_from(7, 3)], text_from(3, 20), text_from(3, 20),
            [5, *text_from(4, 2)], [5], [*text_from(3, 21), 5, *text_from(9, 30)],
        ]
    ):  # fmt: skip
        drafter = watched(spoils=number % 2 == 1)
        found, _ = reply(session, drafter, prompt, max_tokens=15)
        assert found == text_from(prompt[-1], 16)[1:]
        assert drafter.drafts > 1


def check_tokens_after_another_drafters(session, drafter):
    """Four guesses in all, from state to state, whoever drafted the tokens."""
    prompt = text_from(3, 21)
    # Nothing is decoded.
    reply(session, drafter, prompt, max_tokens=0)
    following = text_from(prompt[-1], 8)[1:]
    for held, limit, drawn in [(3, 9, 1), (0, 2, 2), (1, 2, 2), (2, 9, 2), (4, 9, 0), (6, 1, 0)]:
        draft = drafter.extend(Draft.chain(following[:held]), limit)
        assert list(draft.tokens) == following[held : held + drawn]
        assert draft.drawn == drawn


def interrupt_a_draw(session, drafter, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(drafter._model, "_feed", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            reply(session, drafter, text_from(3, 21))
