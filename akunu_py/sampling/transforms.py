"""Transforms of one row of logits: penalties, filters, temperature.

Definitions and default order are mlx-lm 0.32's (`mlx_lm.sample_utils`): bias and penalties on the
logits, then top-p, min-p and top-k on the untempered log-probabilities, and temperature last. The
mask of a constraint comes between the two, before normalisation. Each filter equals mlx-lm's,
except for ties at the edge of top-k: here the lowest id is kept, there any.

A row is [1, vocab]. Filters run one row at a time, so that the number of positions in a pass cannot
select another kernel with other last bits.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import mlx.core as mx

from akunu_py.system.errors import ConfigError
from akunu_py.values.types import GenerationConfig

RowTransform = Callable[[mx.array], mx.array]
"""Log-probabilities [1, vocab] to log-probabilities; a dropped token has -inf."""

HistoryTransform = Callable[[Sequence[int], mx.array], mx.array]
"""The last tokens before the row, oldest first, and logits [1, vocab], to logits."""


_COLDEST = 1e-30
"""Logits divided by less than this leave the range of float32."""


def top_p(mass: float) -> RowTransform:
    """Keep the smallest set of likeliest tokens with at least this share of the mass.

    Holtzman et al. 2020 (arXiv:1904.09751, section 3.1). Tokens as likely as the last of the set
    are kept as well.
    """

    def transform(row: mx.array) -> mx.array:
        ascending = mx.sort(row, axis=-1)
        probabilities = mx.exp(ascending.astype(mx.float32))
        above = mx.cumsum(probabilities, axis=-1, reverse=True, inclusive=False)
        total = above[..., :1] + probabilities[..., :1]
        dropped = (above >= mass * total).sum(axis=-1, keepdims=True)
        # A share that float32 rounds to 0 keeps the likeliest, too.
        dropped = mx.minimum(dropped, row.shape[-1] - 1)
        threshold = mx.take_along_axis(ascending, dropped, axis=-1)
        return mx.where(row < threshold, -math.inf, row)

    return transform


def min_p(share: float) -> RowTransform:
    """Keep tokens at least `share` times as likely as the likeliest (arXiv:2407.01082)."""

    def transform(row: mx.array) -> mx.array:
        threshold = mx.max(row, axis=-1, keepdims=True) + math.log(share)
        return mx.where(row < threshold, -math.inf, row)

    return transform


def top_k(count: int) -> RowTransform:
    """Keep the `count` likeliest tokens (Fan et al. 2018); at the edge, the lowest ids."""

    def transform(row: mx.array) -> mx.array:
        size = row.shape[-1]
        if count >= size:
            return row
        edge = mx.sort(row, axis=-1)[..., size - count : size - count + 1]
        above = row > edge
        at_edge = row == edge
        room = count - above.sum(axis=-1, keepdims=True)
        kept = above | (at_edge & (mx.cumsum(at_edge.astype(mx.int32), axis=-1) <= room))
        return mx.where(kept, row, -math.inf)

    return transform


def temperature(value: float) -> RowTransform:
    """Divide by a temperature above 0; one that float32 cannot divide by keeps the likeliest."""
    factor = 1.0 / value if value > _COLDEST else math.inf

    def transform(row: mx.array) -> mx.array:
        if factor == math.inf:
            return mx.where(row < mx.max(row, axis=-1, keepdims=True), -math.inf, row)
        return row * factor

    return transform


def logit_bias(biases: Mapping[int, float]) -> HistoryTransform:
    """Add to the logits of given tokens."""
    ids = mx.array(list(biases.keys()))
    values = mx.array(list(biases.values()), dtype=mx.float32)

    def transform(_: Sequence[int], row: mx.array) -> mx.array:
        return row.at[:, ids].add(values)

    return transform


def repetition_penalty(penalty: float) -> HistoryTransform:
    """Divide positive and multiply negative logits of recent tokens (arXiv:1909.05858, 4.1)."""
    return _of_recent(lambda found: mx.where(found < 0, found * penalty, found / penalty))


def presence_penalty(penalty: float) -> HistoryTransform:
    """Subtract once from the logits of recent tokens."""
    return _of_recent(lambda found: found - penalty)


def _of_recent(adjust: Callable[[mx.array], mx.array]) -> HistoryTransform:
    """Adjust the logits of recent tokens, [1, n], once each."""

    def transform(recent: Sequence[int], row: mx.array) -> mx.array:
        if not recent:
            return row
        ids = mx.array(list(dict.fromkeys(recent)))
        # Indexed assignment rebinds the name to a new array; the caller's row is unchanged.
        adjusted = mx.array(row)
        adjusted[:, ids] = adjust(row[:, ids])
        return adjusted

    return transform


def frequency_penalty(penalty: float) -> HistoryTransform:
    """Subtract from the logits of recent tokens, once for each occurrence."""

    def transform(recent: Sequence[int], row: mx.array) -> mx.array:
        if not recent:
            return row
        return row.at[:, mx.array(list(recent))].subtract(penalty)

    return transform


def only(row: mx.array, mask: mx.array) -> mx.array:
    """Return a row [1, vocab] with -inf for tokens outside a set.

    `mask` is uint32 [ceil(vocab / 32)]: the token with id i is bit i % 32 of word i // 32.
    """
    bits = (mask[:, None] >> mx.arange(32, dtype=mx.uint32)) & 1
    return mx.where(bits.reshape(1, -1)[:, : row.shape[-1]] == 1, row, -math.inf)


@dataclass(frozen=True, slots=True)
class TransformChain:
    """The transforms of a row of logits before a token is chosen.

    `history` runs on the logits, with the `window` tokens before the row. `filters` run on the
    log-probabilities, in order. Any order is possible: `TransformChain(filters=(temperature(0.8),
    top_k(40), top_p(0.9)))` has the order of llama.cpp and Hugging Face. `greedy` takes the
    likeliest token instead of drawing one.
    """

    history: tuple[HistoryTransform, ...] = ()
    filters: tuple[RowTransform, ...] = ()
    window: int = 20
    greedy: bool = False

    @classmethod
    def from_config(cls, config: GenerationConfig, vocabulary_size: int) -> "TransformChain":
        """Build mlx-lm's order from a config.

        Raises ConfigError for a bias of a token outside the vocabulary.
        """
        history: list[HistoryTransform] = []
        if config.logit_bias:
            for token in config.logit_bias:
                if token >= vocabulary_size:
                    raise ConfigError(
                        f"logit_bias names token {token}; the vocabulary ends at "
                        f"{vocabulary_size - 1}"
                    )
            history.append(logit_bias(config.logit_bias))
        if config.repetition_penalty != 1.0:
            history.append(repetition_penalty(config.repetition_penalty))
        if config.presence_penalty:
            history.append(presence_penalty(config.presence_penalty))
        if config.frequency_penalty:
            history.append(frequency_penalty(config.frequency_penalty))
        filters: list[RowTransform] = []
        if config.temperature > 0:
            # Greedy choices need no filters: every filter keeps the likeliest token.
            if config.top_p < 1:
                filters.append(top_p(config.top_p))
            if config.min_p > 0:
                filters.append(min_p(config.min_p))
            if 0 < config.top_k < vocabulary_size:
                filters.append(top_k(config.top_k))
            filters.append(temperature(config.temperature))
        return cls(
            tuple(history), tuple(filters), config.penalty_window, greedy=config.temperature == 0
        )

    @property
    def needs_history(self) -> bool:
        """Whether the transforms depend on the tokens before a row."""
        return bool(self.history)

    def log_probabilities(
        self, row: mx.array, recent: Sequence[int] = (), mask: mx.array | None = None
    ) -> mx.array:
        """Return the row [1, vocab] after penalties, mask, normalisation and filters."""
        return self.filter_logprobs(self.logprobs(row, recent, mask)[0])

    def filter_logprobs(self, row: mx.array) -> mx.array:
        """Return a row of log-probabilities [1, vocab] after the filters."""
        for keep in self.filters:
            row = keep(row)
        return row

    def logprobs(
        self, row: mx.array, recent: Sequence[int] = (), mask: mx.array | None = None
    ) -> tuple[mx.array, mx.array]:
        """Return log-probabilities [1, vocab] of a row of logits after penalties, and their total.

        `mask` has the tokens that a constraint allows, as in `only`; the others get probability 0.

        The total is what was subtracted, [1, 1]. It is NaN where a logit is NaN, and -inf where all
        are -inf; then no token can be chosen. A logit of -inf has probability 0. Logits of +inf,
        from an overflow in a 16-bit type, share all of it, and log-probabilities are then correct
        up to a constant.

        Except for greedy choices the work is done in float32, whatever the model's type: bfloat16
        would merge neighbouring probabilities. Greedy choices keep the model's type, whose argmax
        of log-probabilities is mlx-lm's choice (not always the argmax of the logits).
        """
        if not self.greedy:
            row = row.astype(mx.float32)
        for adjust in self.history:
            row = adjust(recent, row)
        if mask is not None:
            row = only(row, mask)
        # The total of finite logits stays finite: it exceeds the largest by at most ln(vocabulary),
        # and float16 rounds 16 above its largest number down to that number.
        row = mx.minimum(row, mx.finfo(row.dtype).max)
        total = mx.logsumexp(row, axis=-1, keepdims=True)
        return row - total, total
