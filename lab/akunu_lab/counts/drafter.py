"""Drafting from counts: the likeliest tokens, draws coupled to the target's, or independent ones.

`CountDrafter` is for verification by the target's own choices, so it cannot change the output.
`SampledCountDrafter` is for rejection sampling and returns the distributions of its draws.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from akunu_lab.adjustment import Adjustment
from akunu_lab.counts.distribution import SparseDistribution
from akunu_lab.counts.interpolation import CountModel
from akunu_lab.drafting.adaptive_length import FixedLength, LengthRule
from akunu_py.api import ConfigError, Draft, Drafter, GenerationConfig, NoiseKey, Purpose

NUM_DRAFT_TOKENS = 4

CountDraws = Literal["greedy", "coupled"]


class CountDrafter(Drafter):
    """Drafts from a count model, verified by the target's own choices.

    `draws` is "greedy", the likeliest token at each position, or "coupled", the token that the
    target's own noise draws from q. If q is near p, a coupled draw agrees with the target far more
    often than an independent one (arXiv:2408.07978). At temperature 0 both are the likeliest token.

    q is the model's distribution after the reply's chain of transforms, at `draft_temperature` or
    else at the configuration's temperature. `confidence` is q of each token; for greedy drafts it
    is q before temperature and filters. `length` may end a draft before its limits.

    Raises ConfigError for numbers out of range or an unknown way to draw.
    """

    def __init__(
        self,
        model: CountModel,
        *,
        num_draft_tokens: int = NUM_DRAFT_TOKENS,
        draws: CountDraws = "coupled",
        draft_temperature: float | None = None,
        length: LengthRule | None = None,
        name: str = "counts",
    ) -> None:
        if not 0 <= num_draft_tokens <= 64:
            raise ConfigError(f"num_draft_tokens is {num_draft_tokens}; give 0 to 64")
        if draws not in {"greedy", "coupled"}:
            raise ConfigError(f"draws is {draws!r}; give 'greedy' or 'coupled'")
        self.name = name
        self.num_draft_tokens = num_draft_tokens
        self.model = model
        self.length: LengthRule = length or FixedLength(num_draft_tokens)
        self._greedy_always = draws == "greedy"
        self._draft_temperature = draft_temperature
        self._num_observed = 0
        self.begin_reply(GenerationConfig(), 0)

    def begin_reply(
        self,
        config: GenerationConfig,
        seed: int,
        check: Callable[[], None] | None = None,  # noqa: ARG002 - nothing here takes long
    ) -> None:
        self._seed = seed
        self._num_observed = 0
        self._tail: tuple[int, ...] = ()
        adjustment = Adjustment.from_config(config, temperature=self._draft_temperature)
        self._greedy = self._greedy_always or adjustment.temperature == 0
        if self._greedy:
            # They do not change the likeliest token, and q says more without them.
            adjustment = replace(adjustment.without_filters(), temperature=1.0)
        self._adjustment = adjustment
        window = adjustment.penalty_window if adjustment.has_history else 0
        self._window = max(self.model.order - 1, window)

    def observe(self, tokens: Sequence[int]) -> None:
        self.model.observe(tokens)
        self._num_observed += len(tokens)
        if self._window:
            self._tail = (*self._tail, *tokens[-self._window :])[-self._window :]

    def propose(self, limit: int) -> Draft:
        return self.extend(Draft.empty(), limit)

    def extend(self, before: Draft, limit: int) -> Draft:
        """Draft at most min(limit, num_draft_tokens) tokens to follow the chain `before`.

        `before` follows the observed text; it is looked up but not counted.
        """
        self._begin_draft()
        limit = min(limit, self.num_draft_tokens)
        text = (*self._tail, *before.tokens)
        start = self._num_observed + len(before)
        tokens: list[int] = []
        confidence: list[float] = []
        for place in range(limit):
            context = (*text, *tokens)
            q = self.model.distribution(context).adjust(self._adjustment, context)
            # Asked before the draw: the length must not depend on the token.
            if not self.length.wants(place, q, first=place == 0):
                break
            token = self._choose(q, start + place)
            tokens.append(token)
            confidence.append(q.probability(token))
            self._record_draw(q)
        return self._draft(tokens, confidence)

    def _begin_draft(self) -> None:
        """Forget the previous draft."""

    def _choose(self, q: SparseDistribution, position: int) -> int:
        if self._greedy:
            return q.likeliest()
        return q.draw(NoiseKey.at(self._seed, position, Purpose.TARGET))

    def _record_draw(self, q: SparseDistribution) -> None:
        """Record a draw."""

    def _draft(self, tokens: list[int], confidence: list[float]) -> Draft:
        return Draft.chain(tokens, self.name, 0, tuple(confidence), length=self.length.trace)


class SampledCountDrafter(CountDrafter):
    """Draws from a count model with independent noise, for rejection sampling.

    `draft_probabilities` returns q of each draw. There is no
    `confidence`, so that no budget cuts a draft depending on its tokens. At temperature 0 q is
    one-hot.
    """

    def __init__(
        self,
        model: CountModel,
        *,
        num_draft_tokens: int = NUM_DRAFT_TOKENS,
        draft_temperature: float | None = None,
        length: LengthRule | None = None,
        name: str = "counts",
    ) -> None:
        self._rows: list[SparseDistribution] = []
        super().__init__(
            model,
            num_draft_tokens=num_draft_tokens,
            draft_temperature=draft_temperature,
            length=length,
            name=name,
        )

    def draft_probabilities(self) -> NDArray[np.float64]:
        """Return q of each token of the last draft, float64 [n, vocab]."""
        rows = np.empty((len(self._rows), self.model.vocabulary_size))
        for row, q in zip(rows, self._rows, strict=True):
            q.fill(row)
        return rows

    def _begin_draft(self) -> None:
        self._rows = []
        # A discarded token must be independent of a later draw at its position, so the noise is
        # keyed by the beginning of the draft as well.
        low, high = NoiseKey.at(self._seed, self._num_observed, Purpose.DRAFT)
        self._draw_seed = high << 32 | low

    def _choose(self, q: SparseDistribution, position: int) -> int:
        if self._greedy:
            return q.likeliest()
        return q.draw(NoiseKey.at(self._draw_seed, position, Purpose.DRAFT))

    def _record_draw(self, q: SparseDistribution) -> None:
        if self._greedy:
            certain = SparseDistribution(
                np.array([q.likeliest()], np.int64), np.ones(1), 0.0, q.vocabulary_size
            )
            self._rows.append(certain)
        else:
            self._rows.append(q)

    def _draft(self, tokens: list[int], confidence: list[float]) -> Draft:  # noqa: ARG002
        return Draft.chain(tokens, self.name, length=self.length.trace)
