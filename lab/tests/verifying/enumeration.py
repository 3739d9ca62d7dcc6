"""Every outcome of a random run, with its exact probability: no sampling, no tolerance for luck.

A run is given a `Branch` in place of a source of randomness. It is repeated until every option of
every choice it makes was taken once; the probability of a run is the product of its choices'.
"""

import itertools
from collections import defaultdict

import numpy as np


class Branch:
    """One path through the choices: those of `script`, then the first option that can occur."""

    def __init__(self, script=()):
        self._script = script
        self.taken = []
        self.probability = 1.0
        self.open = []
        self._keys = set()

    def choose(self, weights):
        options = [index for index, weight in enumerate(weights) if weight > 0]
        if len(self.taken) < len(self._script):
            chosen = self._script[len(self.taken)]
        else:
            chosen = options[0]
            self.open += [(*self.taken, other) for other in options[1:]]
        self.taken.append(chosen)
        self.probability *= float(weights[chosen])
        return chosen

    # As a `Chance`: the uniform number is the middle of those that decide so. A key that came
    # twice would be one number, where two choices are counted here.

    def accepts(self, probability, position, attempt):
        self._once("accepts", position, attempt)
        assert 0 <= probability <= 1
        if self.choose([probability, 1 - probability]) == 0:
            return True, probability / 2
        return False, (1 + probability) / 2

    def token(self, weights, position):
        self._once("token", position)
        assert np.isfinite(weights).all()
        assert abs(weights.sum() - 1) < 1e-12
        return self.choose(weights)

    def index(self, count, position, attempt):
        self._once("index", position, attempt)
        return self.choose([1 / count] * count)

    def _once(self, *key):
        assert key not in self._keys
        self._keys.add(key)


def enumerate_law(run):
    """Return {outcome: probability} of `run(branch)`, over all its choices."""
    law = defaultdict(float)
    scripts = [()]
    while scripts:
        branch = Branch(scripts.pop())
        law[run(branch)] += branch.probability
        scripts += branch.open
    return dict(law)


def plain_law(p, prompt, length):
    """Return {tokens: probability} of `length` tokens drawn one after another from p(context)."""
    law = {(): 1.0}
    for _ in range(length):
        law = {
            (*tokens, token): probability * weight
            for tokens, probability in law.items()
            for token, weight in enumerate(p((*prompt, *tokens)))
        }
    return law


def extended(law, p, prompt, length):
    """Return the law of exactly `length` tokens: shorter outcomes go on by p, longer ones are cut."""
    found = defaultdict(float)
    for tokens, probability in law.items():
        rest = plain_law(p, (*prompt, *tokens), max(0, length - len(tokens)))
        for more, weight in rest.items():
            found[(*tokens, *more)[:length]] += probability * weight
    return dict(found)


def distance(law, other):
    """Return the largest difference of two laws' probabilities."""
    return max(abs(law.get(key, 0.0) - other.get(key, 0.0)) for key in {*law, *other})


def laws(vocabulary_size):
    """Return distributions that test edges: even, one-hot, disjoint, tiny, and plain."""
    even = np.full(vocabulary_size, 1 / vocabulary_size)
    first, last = np.eye(vocabulary_size)[0], np.eye(vocabulary_size)[-1]
    tiny = np.array([1e-300, *[1.0] * (vocabulary_size - 1)])
    slope = np.arange(1.0, vocabulary_size + 1)
    found = {"even": even, "first": first, "last": last, "tiny": tiny, "slope": slope}
    return {name: row / row.sum() for name, row in found.items()}


def pairs_of_laws(vocabulary_size):
    return itertools.product(laws(vocabulary_size).values(), repeat=2)
