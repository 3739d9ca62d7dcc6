"""Toy drafters, and a toy target with distributions."""

import hashlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from akunu_py.testing import NextToken, ToyTarget
from akunu_py.values.types import Draft

Law = Callable[[tuple[int, ...]], NDArray[np.float64]]
"""From a context to the distribution of its next token, float64 [vocab]."""

Pick = Callable[[NDArray[np.float64]], int]
"""From a distribution to a token drawn from it."""


class ToyDistributions(ToyTarget):
    """A `ToyTarget` that also has distributions; its rule takes the likeliest token."""

    def __init__(self, prompt: Sequence[int], law: Law, *, max_draft_tokens: int = 64) -> None:
        super().__init__(
            prompt,
            rule=lambda context: int(law(context).argmax()),
            max_draft_tokens=max_draft_tokens,
        )
        self.law = law

    def distributions(self, last: int, draft: Draft) -> NDArray[np.float64]:
        """Return the law after `last` and after each node."""
        return np.stack([self.law(context) for context in self._contexts(last, draft)])


def hashed_law(vocabulary_size: int, seed: int) -> Law:
    """Return a law with weights 0 to 9 by a hash of the whole context; some weights are 0."""

    def law(context: tuple[int, ...]) -> NDArray[np.float64]:
        digest = hashlib.blake2b(repr((seed, context)).encode(), digest_size=8).digest()
        rng = np.random.default_rng(int.from_bytes(digest, "big"))
        weights = rng.integers(0, 10, vocabulary_size)
        if not weights.any():
            weights += 1
        probabilities: NDArray[np.float64] = weights / weights.sum()
        return probabilities

    return law


class ScriptedDrafter:
    """Proposes given drafts one after another, then none; records the observed tokens.

    A draft is a `Draft` or a sequence of tokens (a chain). It is cut to the limit.
    """

    def __init__(self, drafts: Iterable[Draft | Sequence[int]] = ()) -> None:
        self._drafts = iter(drafts)
        self.observed: list[int] = []

    def observe(self, tokens: Sequence[int]) -> None:
        self.observed += tokens

    def propose(self, limit: int) -> Draft:
        draft = next(self._drafts, None)
        if draft is None:
            return Draft.empty("scripted")
        if not isinstance(draft, Draft):
            return Draft.chain(draft[:limit], "scripted")
        # Parents come before children, so a prefix of a tree is a tree.
        return type(draft)(draft.tokens[:limit], draft.parents[:limit], "scripted")


class OracleDrafter:
    """Drafts by a rule: right, half right or always wrong, as a test needs.

    `rule` gets all observed tokens and those already drafted.
    """

    def __init__(self, rule: NextToken, length: int) -> None:
        self.rule = rule
        self.length = length
        self.observed: list[int] = []

    def observe(self, tokens: Sequence[int]) -> None:
        self.observed += tokens

    def propose(self, limit: int) -> Draft:
        context = list(self.observed)
        count = max(0, min(limit, self.length))
        for _ in range(count):
            context.append(self.rule(tuple(context)))
        return Draft.chain(context[len(context) - count :], "oracle")


class SampledToyDrafter:
    """Draws chains of a law's tokens, and has their distributions (`draft_probabilities`).

    `pick` draws. `goes_on`, if given, decides before each draw whether to continue, from the tokens
    so far and the distribution there: nothing else may affect the length of a draft.
    """

    def __init__(
        self,
        law: Law,
        pick: Pick,
        length: int,
        goes_on: Callable[[tuple[int, ...], NDArray[np.float64]], bool] | None = None,
    ) -> None:
        self.law = law
        self.pick = pick
        self.length = length
        self.goes_on = goes_on
        self.observed: list[int] = []
        self._rows: list[NDArray[np.float64]] = []

    def observe(self, tokens: Sequence[int]) -> None:
        self.observed += tokens

    def propose(self, limit: int) -> Draft:
        """Draw token after token."""
        context = list(self.observed)
        self._rows = []
        for _ in range(min(limit, self.length)):
            row = self.law(tuple(context))
            if self.goes_on is not None and not self.goes_on(tuple(context), row):
                break
            self._rows.append(row)
            context.append(self.pick(row))
        return Draft.chain(context[len(self.observed) :], "sampled")

    def draft_probabilities(self) -> NDArray[np.float64] | None:
        """Return the distributions of the last draft, [n, vocab]; None for an empty one."""
        return np.stack(self._rows) if self._rows else None
