"""The drafter that asks a second, smaller model (`--draft-model`).

Leviathan et al. 2023 (arXiv:2211.17192), Chen et al. 2023 (arXiv:2302.01318). The model, its caches
and its noise are behind `TokenModel`; this module decides what to ask it and when.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from akunu_py.protocols import Drafter, DrawingRule
from akunu_py.system.errors import ConfigError, ContractError
from akunu_py.values.types import Draft, GenerationConfig

_NOTHING = Draft.empty()

NUM_DRAFT_TOKENS = 8
MAX_DRAFT_TOKENS = 64


@dataclass(frozen=True, slots=True)
class DrawnToken:
    """A drafted token, with properties of its model's distribution q at that position.

    `probability` is q(token), after all transforms. `entropy` is the entropy of q divided by the
    entropy of a uniform distribution over the vocabulary, H / ln V, from 0 to 1. `others` are the
    further proposals for the position, each with its q.
    """

    token: int
    probability: float
    entropy: float
    others: tuple[tuple[int, float], ...] = ()


GoesOn = Callable[[Sequence[DrawnToken]], bool]
"""Decides whether to draw another token after these. It never sees the token that it decides about,
so rejection sampling stays exact whatever the rule is."""

Guess = Callable[[Sequence[int], int], Sequence[int]]
"""Returns tokens that may follow the text and the drawn ones: at most that number, or none."""


@dataclass(frozen=True, slots=True)
class DrawSettings:
    """Settings for the draws of a reply's drafts."""

    config: GenerationConfig
    """Transforms of the reply, with the draft's own temperature filled in."""

    seed: int
    independent: bool = False
    """Draw with independent noise and keep the rows of q, as rejection sampling needs; otherwise
    the target's noise couples the draws to its choices."""

    num_proposals: int = 1
    """Tokens drawn at each position; the draft continues after the first."""

    entropy: bool = True
    """Whether to measure the entropy of q, for which 0 stands otherwise."""


class TokenModel(Protocol):
    """A language model that continues token ids; it keeps track of its place in the text."""

    def beginning(self, prompt: Sequence[int], sampling: DrawSettings) -> Iterator[None]:
        """Take in a prompt, yielding between passes; cached rows of its beginning are reused."""

    def extend(self, tokens: Sequence[int]) -> None:
        """Take in committed tokens; the next draw forgets tokens drawn in their place."""

    def draw(
        self,
        limit: int,
        goes_on: GoesOn | None = None,
        guess: Guess | None = None,
        *,
        after: Sequence[int] = (),
    ) -> Sequence[DrawnToken]:
        """Draw at most `limit` tokens to follow the text and `after`.

        There are fewer where the context ends. `after` is not committed: it holds for this draw
        only. `goes_on` is asked before each token. Guesses are checked by the model, several in a
        pass, and do not change what is drawn.
        """

    def probabilities(self) -> NDArray[np.float64]:
        """Return q [n, vocab], the distributions of the n tokens of an independent last draw.

        The vocabulary is the target's.
        """


class DraftModelDrafter(Drafter):
    """Drafts the choices of a smaller model (`--drafter draft-model`).

    With coupled draws (the default) the small model chooses with the target's own noise, and the
    output is the stream of plain decoding. With `rejection` draws are independent, and
    `draft_probabilities` gives the verifier their distributions.

    Raises ConfigError for a number of draft tokens out of range.
    """

    name = "draft-model"
    num_proposals = 1
    further_passes = 1
    """Passes of the model for each token after the first."""

    def __init__(
        self,
        model: TokenModel,
        *,
        num_draft_tokens: int = NUM_DRAFT_TOKENS,
        rejection: bool = False,
    ) -> None:
        if not 0 <= num_draft_tokens <= MAX_DRAFT_TOKENS:
            raise ConfigError(
                f"num_draft_tokens is {num_draft_tokens}; give 0 to {MAX_DRAFT_TOKENS}"
            )
        self.num_draft_tokens = num_draft_tokens
        self._model = model
        self._rejection = rejection
        self._rule: DrawingRule | None = None
        self._guess: Guess | None = None
        self._sampling: DrawSettings | None = None
        self._check: Callable[[], None] = _nothing
        self._prompt_taken = False
        self._num_drawn = 0

    def begin_reply(
        self, config: GenerationConfig, seed: int, check: Callable[[], None] | None = None
    ) -> None:
        """Draw with these transforms and this seed; `check` may raise while the prompt is fed."""
        self._sampling = DrawSettings(
            config, seed, self._rejection, self.num_proposals, entropy=False
        )
        self._check = check or _nothing

    def use_rule(self, rule: DrawingRule) -> None:
        """End drafts by this rule, too."""
        self._rule = rule

    def observe(self, tokens: Sequence[int]) -> None:
        """Take in committed tokens; only the prompt is fed now, the rest with the next draft.

        Raises ContractError if `begin_reply` was not called before.
        """
        if not tokens:
            return
        if not self._prompt_taken:
            for _ in self.reading(tokens):
                self._check()
            return
        self._model.extend(tokens)

    def reading(self, prompt: Sequence[int]) -> Iterator[None]:
        if self._sampling is None:
            raise ContractError(f"the drafter {self.name!r} was not told how the reply is sampled")
        self._prompt_taken = True
        yield from self._model.beginning(prompt, self._sampling)

    def propose(self, limit: int) -> Draft:
        """Draft at most min(limit, num_draft_tokens) tokens.

        `confidence` is q of each token. With `rejection` there is none: a cut must not depend on
        the tokens that are cut off.
        """
        return self.extend(_NOTHING, limit)

    def extend(self, before: Draft, limit: int) -> Draft:
        """Draft like `propose`, after the chain of another drafter."""
        drawn = self._drawn(min(limit, self.num_draft_tokens), before)
        confidence = () if self._rejection else tuple(token.probability for token in drawn)
        tokens = (token.token for token in drawn)
        return Draft.chain(tokens, self.name, 0, confidence, drawn=len(drawn))

    def _drawn(self, limit: int, before: Draft = _NOTHING) -> Sequence[DrawnToken]:
        """Draw at most `limit` tokens, one after the other."""
        self._num_drawn = 0
        if limit <= 0:
            return ()
        goes_on = self._goes_on(limit, before)
        drawn = self._model.draw(limit, goes_on, self._guess, after=before.tokens)
        self._num_drawn = len(drawn)
        return drawn

    def _goes_on(self, limit: int, before: Draft) -> GoesOn | None:
        """Return the rule that decides whether to draw another token; None for the limit alone."""
        rule = self._rule
        if rule is None:
            return None

        def pays(drawn: Sequence[DrawnToken]) -> bool:
            passes = self.further_passes if drawn else self._first_passes(before)
            return rule.pays(
                before, drawn, room=limit - len(drawn), passes=passes, further=self.further_passes
            )

        return pays

    def draft_probabilities(self) -> NDArray[np.float64] | None:
        """Return q [n, vocab] for the tokens of the last draft; each row sums to 1.

        Raises ContractError for coupled draws, which are not samples of q.
        """
        if not self._rejection:
            raise ContractError("coupled drafts are verified by the target's own choices")
        if not self._num_drawn:
            return np.zeros((0, 0))
        return self._model.probabilities()[: self._num_drawn]

    def _first_passes(self, before: Draft) -> int:  # noqa: ARG002 - for models that read otherwise
        """Return the number of the model's passes up to its first token after a chain."""
        return 1


def _nothing() -> None:
    """Check nothing."""
