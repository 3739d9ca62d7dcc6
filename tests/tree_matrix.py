"""What a model says with adversarial trees, and what it says without drafts."""

import random

from family_models import build_family, variant_of
from rollback_matrix import Family
from tiny_models import VOCABULARY

from akunu_py.types import Draft

SEED = 7


class TreeAdversary:
    """Random trees of 3 to 12 nodes, with the true text on none, a part or all of a path.

    `given` are the trees it proposed.
    """

    def __init__(self, truth, seed, *, right=0.75, most=12):
        self.truth = truth
        self.rng = random.Random(seed)
        self.right = right
        self.most = most
        self.seen = 0
        self.given = []

    def observe(self, tokens):
        self.seen += len(tokens)

    def propose(self, limit):
        # Now and then a chain, or nothing: the states between are met as well.
        kind = self.rng.random()
        size = min(limit, self.rng.randrange(3, self.most + 1))
        if kind < 0.15 or size < 3:
            return Draft.empty("adversary")
        tokens, parents, depths, true = [], [], [], []
        used = set()
        while len(tokens) < size:
            if kind < 0.25:
                parent = len(tokens) - 1
            else:
                parent = self.rng.randrange(-1, len(tokens))
            depth = 0 if parent < 0 else depths[parent] + 1
            place = self.seen + depth
            right = self.truth[place] if place < len(self.truth) else 0
            on_path = parent < 0 or true[parent]
            token = right if self.rng.random() < self.right else self.rng.randrange(VOCABULARY)
            if (parent, token) in used:
                continue
            used.add((parent, token))
            tokens.append(token)
            parents.append(parent)
            depths.append(depth)
            true.append(on_path and token == right)
        draft = Draft(tuple(tokens), tuple(parents), "adversary")
        self.given.append(draft)
        return draft


class Watched:
    """A session that counts its passes over trees."""

    def __init__(self, session):
        self.passes = 0
        whole = session._choose_rows

        def counting(rows, start=0):
            self.passes += session._tree is not None
            return whole(rows, start)

        session._choose_rows = counting
