"""Length rules for drafts of models: they see q, but never the token drawn from it.

A rule is asked before the token of a position is drawn, and it sees the spread of q there. So the
length depends only on the history and on q. Rejection sampling needs this: a drafter that stopped,
or went on, because of the token it drew would change which of its tokens are tested, and bias the
output (`lab/docs/methods.md`). Where q costs a pass, the rule is asked before the pass and sees q
of the position before (`AfterDraws`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from akunu_lab.drafting.options import DrawOptions
from akunu_py.api import ConfigError, LengthTrace

Confidence = Literal["largest", "entropy"]


class Spread(Protocol):
    """The properties of q at a position that a rule may see; `SparseDistribution` has them."""

    @property
    def vocabulary_size(self) -> int:
        """Return the number of tokens."""

    def entropy(self) -> float:
        """Return the entropy in nats."""

    def largest(self) -> float:
        """Return the largest probability."""


class LengthRule(Protocol):
    """Decides, position by position, whether to draft one more token."""

    def wants(self, place: int, spread: Spread, *, first: bool) -> bool:
        """Return whether to draft the token at this place of the draft, counted from 0.

        `spread` describes the last q that is known before the draw: q at this place, or at the
        place before where q costs a pass. `first` says that it is q at place 0, with which a draft
        begins. Calls are for places in turn.
        """

    @property
    def trace(self) -> LengthTrace | None:
        """Return an explanation of the draft's length, or None."""


class FixedLength:
    """Drafts a fixed number of tokens. Raises ConfigError for a negative number."""

    trace = None

    def __init__(self, num_draft_tokens: int) -> None:
        if num_draft_tokens < 0:
            raise ConfigError(f"num_draft_tokens is {num_draft_tokens}; give 0 or more")
        self.num_draft_tokens = num_draft_tokens

    def wants(self, place: int, spread: Spread, *, first: bool) -> bool:  # noqa: ARG002 - as above
        return place < self.num_draft_tokens


class EntropyLength:
    """Shortens drafts where q is uncertain at their beginning.

    H = entropy / ln V of q at the draft's first position. h <- beta h + (1 - beta) H, starting with
    the first H. gamma = round(gamma_max - (gamma_max - gamma_min) h), halves to the even number. A
    vocabulary of one token has H = 0.

    Raises ConfigError unless 0 <= shortest <= longest and 0 <= beta < 1.
    """

    def __init__(self, *, shortest: int = 1, longest: int = 8, beta: float = 0.0) -> None:
        if not 0 <= shortest <= longest:
            raise ConfigError(
                f"drafts of {shortest} to {longest} tokens; give 0 or more, the shorter first"
            )
        if not 0 <= beta < 1:
            raise ConfigError(f"beta is {beta!r}; give 0 or more, below 1")
        self.shortest = shortest
        self.longest = longest
        self.beta = beta
        self.trace: LengthTrace | None = None

    def wants(self, place: int, spread: Spread, *, first: bool) -> bool:
        if first or self.trace is None:
            self.trace = self._measure(spread)
        return place < self.trace.num_draft_tokens

    def _measure(self, spread: Spread) -> LengthTrace:
        size = spread.vocabulary_size
        # Rounding may put the entropy of a uniform q above ln V.
        entropy = min(1.0, spread.entropy() / math.log(size)) if size > 1 else 0.0
        smoothed = entropy
        if self.trace is not None:
            smoothed = self.beta * self.trace.smoothed + (1 - self.beta) * entropy
        length = round(self.longest - (self.longest - self.shortest) * smoothed)
        return LengthTrace(entropy, smoothed, length)


class LowerBoundStop:
    """Stops where a token is too unlikely to be accepted.

    The estimate at a position is `largest`, q's largest probability, or `entropy`,
    1 - sqrt(scale * entropy in nats), a lower bound on the acceptance probability for a suitable
    scale (Agrawal et al. 2024, AdaEDL, arXiv:2410.18351). With `whole` the bound applies to the
    product of the estimates so far, the probability that the whole draft is right.

    Raises ConfigError for a bound outside 0 ... 1, a scale not above 0 or an unknown estimate.
    """

    trace = None

    def __init__(
        self,
        bound: float,
        *,
        estimate: Confidence = "largest",
        whole: bool = False,
        scale: float = 0.2,
    ) -> None:
        if not 0 <= bound <= 1:
            raise ConfigError(f"the bound is {bound!r}; give 0 (never stop) to 1")
        if estimate not in {"largest", "entropy"}:
            raise ConfigError(f"the estimate is {estimate!r}; give 'largest' or 'entropy'")
        if not 0 < scale < math.inf:
            raise ConfigError(f"the scale is {scale!r}; give a number above 0")
        self.bound = bound
        self.estimate = estimate
        self.whole = whole
        self.scale = scale
        self._product = 1.0

    def wants(self, place: int, spread: Spread, *, first: bool) -> bool:  # noqa: ARG002 - as above
        if self.estimate == "largest":
            estimate = spread.largest()
        else:
            estimate = max(0.0, 1 - math.sqrt(self.scale * spread.entropy()))
        if not self.whole:
            return estimate >= self.bound
        self._product = estimate * (1.0 if first else self._product)
        return self._product >= self.bound


class AllOf:
    """Drafts as long as every rule agrees; the trace comes from the first rule that has one.

    Raises ConfigError without a rule.
    """

    def __init__(self, rules: Sequence[LengthRule]) -> None:
        if not rules:
            raise ConfigError("AllOf needs at least one rule")
        self.rules = tuple(rules)

    @property
    def trace(self) -> LengthTrace | None:
        return next((rule.trace for rule in self.rules if rule.trace is not None), None)

    def wants(self, place: int, spread: Spread, *, first: bool) -> bool:
        # A rule that is not asked would miss the beginning of a draft.
        wanted = [rule.wants(place, spread, first=first) for rule in self.rules]
        return all(wanted)


class Drawn(Protocol):
    """What a rule may see of a token that a model drew."""

    @property
    def probability(self) -> float:
        """Return q of the token."""

    @property
    def entropy(self) -> float:
        """Return the entropy of q there, H / ln V."""


@dataclass(frozen=True, slots=True)
class _DrawnSpread:
    """The spread at a position after its draw; q of the drawn token stands for the largest."""

    drawn: Drawn
    vocabulary_size: int

    def entropy(self) -> float:
        return self.drawn.entropy * math.log(self.vocabulary_size)

    def largest(self) -> float:
        return self.drawn.probability


class AfterDraws:
    """A rule as a function of the tokens drawn so far, for a draft model (`GoesOn`).

    A draft begins with a call without tokens, which always returns True. Then the rule is asked
    once for each place in turn, including places that a pass with several tokens skipped. The q of
    earlier tokens is part of the history, so the distribution of the output is exact here, too.
    """

    def __init__(self, rule: LengthRule, vocabulary_size: int) -> None:
        self.rule = rule
        self._vocabulary_size = vocabulary_size
        self._asked = 0
        self._end: int | None = None

    def __call__(self, drawn: Sequence[Drawn]) -> bool:
        """Return whether to draw another token after these."""
        if not drawn:
            self._asked, self._end = 0, None
        for place in range(self._asked + 1, len(drawn) + 1):
            spread = _DrawnSpread(drawn[place - 1], self._vocabulary_size)
            if not self.rule.wants(place, spread, first=place == 1) and self._end is None:
                self._end = place
            self._asked = place
        return self._end is None

    def length(self, drawn: Sequence[Drawn]) -> int:
        # The first token's q gives H, also if there was no room for a second token.
        self(drawn[: max(1, len(drawn) - 1)])
        return len(drawn) if self._end is None else min(self._end, len(drawn))

    @property
    def trace(self) -> LengthTrace | None:
        return self.rule.trace if self._asked else None


def length_rule(options: DrawOptions, num_draft_tokens: int) -> LengthRule | None:
    """Return the length rule that a drafter was told, for drafts of at most `num_draft_tokens`.

    "budget" gives None: only the limits end a draft then. Raises ConfigError if the shortest draft
    is longer than the longest.
    """
    if options.draft_length == "entropy":
        shortest = options.min_draft_tokens
        if shortest > max(1, num_draft_tokens):
            raise ConfigError(
                f"min_draft_tokens is {shortest}, and at most {num_draft_tokens} tokens are "
                "drafted; give fewer, or a larger num_draft_tokens"
            )
        return EntropyLength(
            shortest=min(shortest, num_draft_tokens),
            longest=num_draft_tokens,
            beta=options.draft_length_beta,
        )
    if options.draft_length == "lower-bound":
        return LowerBoundStop(options.draft_length_bound)
    return FixedLength(num_draft_tokens) if options.draft_length == "fixed" else None
