"""Toy targets and scripted drafters, for authors of drafters and changes of the loop.

target = ToyTarget([1, 2, 3], vocabulary_size=5, seed=7)
steps = list(decode(target, ScriptedDrafter([[0, 1], [4]]), 3, num_draft_tokens=4, max_tokens=9))
assert [t for step in steps for t in step.token_ids] == target.plain([1, 2, 3], 9)

"""

import hashlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from akunu_py.protocols import Target
from akunu_py.system.errors import RollbackError
from akunu_py.values.types import Draft

NextToken = Callable[[tuple[int, ...]], int]

Law = Callable[[tuple[int, ...]], NDArray[np.float64]]
"""From a context to the distribution of its next token, float64 [vocab]."""

Pick = Callable[[NDArray[np.float64]], int]
"""From a distribution to a token drawn from it."""


def hashed_choice(vocabulary_size: int, seed: int) -> NextToken:
    """Return a rule that picks the next token by a hash of the whole context."""

    def choose(context: tuple[int, ...]) -> int:
        digest = hashlib.blake2b(repr((seed, context)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % vocabulary_size

    return choose


class ToyTarget(Target):
    """A target whose next token is a function of the context, over a cache of plain token ids.

    `cache` holds what a KV cache would: every row that was fed and not rolled back. A row fed after
    a row that should have been dropped sees the wrong context, so a loop that keeps too many or too
    few rows changes the output.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        *,
        vocabulary_size: int = 5,
        seed: int = 0,
        rule: NextToken | None = None,
        max_draft_tokens: int = 64,
    ) -> None:
        self.rule = rule or hashed_choice(vocabulary_size, seed)
        self.cache: list[int] = list(prompt[:-1])
        self._limit = max_draft_tokens
        self._pending: tuple[int, Draft] | None = None

    def max_draft_tokens(self) -> int:
        return self._limit

    def choose(self, last: int, draft: Draft) -> list[int]:
        """Return the rule's token after `last` and after each node."""
        return [self.rule(context) for context in self._contexts(last, draft)]

    def _contexts(self, last: int, draft: Draft) -> list[tuple[int, ...]]:
        self._pending = (last, draft)
        contexts = [(*self.cache, last)]
        for token, parent in zip(draft.tokens, draft.parents, strict=True):
            contexts.append((*contexts[parent + 1], token))
        return contexts

    def commit(self, accepted: Sequence[int]) -> None:
        """Keep `last` and the accepted tokens."""
        if self._pending is None:
            raise RollbackError("commit without a choose before it")
        last, draft = self._pending
        self._pending = None
        self.cache += [last, *(draft.tokens[node] for node in accepted)]

    def plain(self, prompt: Sequence[int], count: int) -> list[int]:
        """Return the output of decoding without drafts."""
        context = list(prompt)
        for _ in range(count):
            context.append(self.rule(tuple(context)))
        return context[len(prompt) :]


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
        return Draft(draft.tokens[:limit], draft.parents[:limit], "scripted")


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
