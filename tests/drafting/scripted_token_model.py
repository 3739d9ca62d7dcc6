"""A token model that draws what it is told to, and the draft-model drafter over it."""

import numpy as np

from akunu_py.drafting.draft_model import DraftModelDrafter, DrawnToken
from akunu_py.values.types import GenerationConfig

CONFIG = GenerationConfig(temperature=0.7, top_k=5)


class Scripted:
    """Draws 0, 1, 2, ... with falling probabilities; records what it was given."""

    def __init__(self):
        self.calls = []

    def beginning(self, prompt, sampling):
        yield
        self.calls.append(("begin", list(prompt), sampling))

    def extend(self, tokens):
        self.calls.append(("extend", list(tokens)))

    def draw(self, limit, goes_on=None, guess=None, *, after=()):
        self.calls.append(("draw", limit, *after))
        drawn = []
        while len(drawn) < limit and (goes_on is None or goes_on(drawn)):
            drawn.append(DrawnToken(len(drawn), 0.9 - 0.2 * len(drawn), 0.5))
        self.guess = guess
        return drawn

    def probabilities(self):
        return np.full((3, 4), 0.25)


def begun(kind=DraftModelDrafter, **options):
    model = Scripted()
    drafter = kind(model, **options)
    drafter.begin_reply(CONFIG, 11)
    drafter.observe([5, 6])
    return model, drafter
