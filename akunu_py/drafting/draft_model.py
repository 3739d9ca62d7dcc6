"""The drafter that asks a second, smaller model (`--draft-model`).

Leviathan et al. 2023 (arXiv:2211.17192), Chen et al. 2023 (arXiv:2302.01318). The model itself, its
caches and its noise stand behind `TokenModel`; here is what it is asked for and when.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from akunu_py.errors import ConfigError, ContractError
from akunu_py.types import Draft, GenerationConfig, LengthTrace

NUM_DRAFT_TOKENS = 8
MAX_DRAFT_TOKENS = 64


@dataclass(frozen=True, slots=True)
class DrawnToken:
    """A token of a draft, and what its model's distribution q was there.

    `probability` is q(token), after all transforms; `entropy` is that of q as a share of the
    entropy of a uniform choice among the vocabulary, H / ln V: 0 to 1. `others` are the further
    proposals for its place, each with its q.
    """

    token: int
    probability: float
    entropy: float
    others: tuple[tuple[int, float], ...] = ()


GoesOn = Callable[[Sequence[DrawnToken]], bool]
"""Whether a further token is drawn after these. It sees what was drawn before and never the token
it decides about: then rejection sampling stays exact whatever the rule is."""

Guess = Callable[[Sequence[int], int], Sequence[int]]
"""Tokens that may follow the text and those drawn behind it, at most so many; none is fine."""


@dataclass(frozen=True, slots=True)
class DrawSettings:
    """How a reply's drafts are drawn.

    Attributes:
        config: the reply's transforms, with the draft's own temperature in place.
        seed: the reply's.
        independent: draws with noise of their own, as rejection sampling needs them, and keeps the
            rows of q; otherwise draws are coupled to the target's by its noise.
        num_proposals: tokens drawn at each position; the draft goes on behind the first.

    """

    config: GenerationConfig
    seed: int
    independent: bool = False
    num_proposals: int = 1


class LengthRule(Protocol):
    """Says where a draft ends, from what was drawn: a `GoesOn` that can tell of it."""

    @property
    def trace(self) -> LengthTrace | None:
        """Return where the latest draft's length comes from; None where there is nothing to say."""

    def __call__(self, drawn: Sequence[DrawnToken]) -> bool:
        """Return whether a further token is drawn after these."""

    def length(self, drawn: Sequence[DrawnToken]) -> int:
        """Return how many tokens of a draft that is over are wanted."""


class Guesses(Protocol):
    """Guesses what a draft model will say, so that one of its passes yields several tokens."""

    def observe(self, tokens: Sequence[int]) -> None:
        """Take in committed tokens."""

    def guess(self, drawn: Sequence[int], limit: int) -> Sequence[int]:
        """Return at most `limit` tokens that may follow the text and `drawn`; none is fine."""


class TokenModel(Protocol):
    """A language model as a continuation of token ids; it keeps its place in the text by itself."""

    def begin(
        self, prompt: Sequence[int], sampling: DrawSettings, check: Callable[[], None]
    ) -> None:
        """Take in a prompt; rows held of its beginning stay.

        `check` is called between long passes and may raise to end it.
        """

    def extend(self, tokens: Sequence[int]) -> None:
        """Take in committed tokens; those drawn in their place are forgotten at the next draw."""

    def draw(
        self,
        limit: int,
        goes_on: GoesOn | None = None,
        guess: Guess | None = None,
        *,
        after: Sequence[int] = (),
    ) -> Sequence[DrawnToken]:
        """Draw at most `limit` tokens to follow what was taken in, and `after` behind it.

        Fewer where the context ends; `after` is not committed and counts for this draw alone.
        `goes_on` is asked before each of them. What is guessed is checked by the model, several
        tokens in a pass, and changes nothing that is drawn.
        """

    def probabilities(self) -> NDArray[np.float64]:
        """Return q [n, vocab] for each of the n tokens of the last draw, if it was independent.

        The vocabulary is the target's.
        """


class DraftModelDrafter:
    """Drafts what a smaller model would say (`--drafter draft-model`).

    With coupled draws (the default) a draft is what the small model would choose with the target's
    own noise, so the stream stays that of plain decoding. With `rejection` the draws are
    independent, and `draft_probabilities` gives the verifier their distribution.

    The draft's temperature is `draft_temperature`, else the config's `draft_temperature`, else the
    reply's own. `length` decides, besides the limit, where a draft ends.

    Raises ConfigError for a number of draft tokens or a draft temperature out of range.
    """

    name = "draft-model"
    num_proposals = 1

    def __init__(
        self,
        model: TokenModel,
        *,
        num_draft_tokens: int = NUM_DRAFT_TOKENS,
        rejection: bool = False,
        draft_temperature: float | None = None,
        length: LengthRule | None = None,
        guesses: Guesses | None = None,
    ) -> None:
        if not 0 <= num_draft_tokens <= MAX_DRAFT_TOKENS:
            raise ConfigError(
                f"num_draft_tokens is {num_draft_tokens}; give 0 to {MAX_DRAFT_TOKENS}"
            )
        self.num_draft_tokens = num_draft_tokens
        self._model = model
        self._rejection = rejection
        self._draft_temperature = _checked(draft_temperature)
        self._length = length
        self._rules: tuple[GoesOn, ...] = () if length is None else (length,)
        self._guesses = guesses
        self._sampling: DrawSettings | None = None
        self._check: Callable[[], None] = _nothing
        self._prompt_taken = False
        self._num_drawn = 0

    def begin_reply(
        self, config: GenerationConfig, seed: int, check: Callable[[], None] | None = None
    ) -> None:
        """Draw with these transforms and this seed; `check` may raise while the prompt is fed."""
        temperature = self._draft_temperature
        if temperature is None:
            temperature = config.draft_temperature
        self._sampling = DrawSettings(
            _with_temperature(config, temperature), seed, self._rejection, self.num_proposals
        )
        self._check = check or _nothing

    def add_rule(self, rule: GoesOn) -> None:
        """End drafts where this rule says so, too."""
        self._rules = (*self._rules, rule)

    def observe(self, tokens: Sequence[int]) -> None:
        """Take in committed tokens; passes over them wait for the next draft, but for the prompt.

        Raises ContractError where `begin_reply` was not called before.
        """
        if not tokens:
            return
        if self._guesses is not None:
            self._guesses.observe(tokens)
        if self._prompt_taken:
            self._model.extend(tokens)
            return
        if self._sampling is None:
            raise ContractError("the drafter 'draft-model' was not told how the reply is sampled")
        self._prompt_taken = True
        self._model.begin(tokens, self._sampling, self._check)

    def propose(self, limit: int) -> Draft:
        """Draft at most min(limit, num_draft_tokens) tokens.

        `confidence` is q of each token. In rejection mode there is none: what is cut off a draft
        must not depend on the tokens that are cut off.
        """
        return self.extend((), limit)

    def extend(self, drafted: Sequence[int], limit: int) -> Draft:
        """Draft as `propose` does what follows `drafted`, tokens that another drafter proposed."""
        drawn = self._drawn(min(limit, self.num_draft_tokens), drafted)
        confidence = () if self._rejection else tuple(token.probability for token in drawn)
        tokens = (token.token for token in drawn)
        return Draft.chain(tokens, self.name, 0, confidence, length=self._length_trace)

    @property
    def _length_trace(self) -> LengthTrace | None:
        """Where the latest draft's length comes from; None where no rule says."""
        return None if self._length is None else self._length.trace

    def _drawn(self, limit: int, after: Sequence[int] = ()) -> Sequence[DrawnToken]:
        """Draw at most `limit` tokens, one behind the other."""
        self._num_drawn = 0
        if limit <= 0:
            return ()
        goes_on = self._goes_on if self._rules else None
        guess = None if self._guesses is None else self._guesses.guess
        drawn = self._model.draw(limit, goes_on, guess, after=after)
        if self._length is not None:
            drawn = drawn[: self._length.length(drawn)]
        self._num_drawn = len(drawn)
        return drawn

    def draft_probabilities(self) -> NDArray[np.float64] | None:
        """Return q [n, vocab] of the tokens of the last draft, each row summing to 1.

        Raises ContractError where draws are coupled: they are no draws of q then.
        """
        if not self._rejection:
            raise ContractError("coupled drafts are verified by the target's own choices")
        if not self._num_drawn:
            return np.zeros((0, 0))
        return self._model.probabilities()[: self._num_drawn]

    def _goes_on(self, drawn: Sequence[DrawnToken]) -> bool:
        return all(rule(drawn) for rule in self._rules)


def _with_temperature(config: GenerationConfig, temperature: float | None) -> GenerationConfig:
    """Return the config with a draft's own temperature, if it has one."""
    if temperature is None:
        return config
    # How drafts are verified is the reply's matter, and checked against the reply's temperature.
    return dataclasses.replace(config, temperature=temperature, lenience=1.0, adjust_residual=True)


def _checked(temperature: float | None) -> float | None:
    """Return a draft's temperature; raise ConfigError where no reply could have it."""
    try:
        _with_temperature(GenerationConfig(), temperature)
    except ConfigError as error:
        raise ConfigError(f"draft_{error}") from None
    return temperature


def _nothing() -> None:
    """Check nothing."""
