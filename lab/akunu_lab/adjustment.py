"""The chain of transforms on the host, in numpy: from a row of logits to a distribution.

Definitions and order are those of `sampling/transforms.py` (mlx-lm 0.32): bias and penalties on the
logits; then top-p, min-p and top-k on the untempered log-probabilities; temperature last. Ties at
the edge of top-k go to the lowest id. The host computes in float64 and the device in float32, so a
token within rounding of an edge may fall on the other side. This only costs acceptance, because a
verifier uses the q that was really drawn from.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from akunu_py.api import ConfigError, SamplingConfig

Row = NDArray[np.float64]

_FIELDS = fields(SamplingConfig)
_TEMPERATURE = next(one.metadata for one in _FIELDS if one.name == "temperature")


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjustment(SamplingConfig):
    """The transforms of a row of logits before a token is drawn, at temperature 1 by default.

    Temperature 0 gives a one-hot row on the likeliest token, the lowest id among equals; filters
    change nothing then and are skipped.

    Raises ConfigError naming the field and its range.
    """

    temperature: float = field(default=1.0, metadata={**_TEMPERATURE, "default": 1.0})

    @classmethod
    def from_config(
        cls, config: SamplingConfig, *, temperature: float | None = None
    ) -> "Adjustment":
        """Return the chain of a configuration, optionally at another temperature."""
        values = {one.name: getattr(config, one.name) for one in _FIELDS}
        if temperature is not None:
            values["temperature"] = temperature
        return cls(**values)

    @property
    def changes_nothing(self) -> bool:
        """Whether a distribution stays unchanged."""
        return self.temperature == 1 and not self.has_filters and not self.has_history

    @property
    def has_filters(self) -> bool:
        """Whether filters may drop tokens before the draw."""
        return self.temperature > 0 and self._changes("filter")

    @property
    def has_history(self) -> bool:
        """Whether a bias or penalty changes single logits."""
        return self._changes("logits")

    def _changes(self, group: str) -> bool:
        return any(
            getattr(self, one.name) != one.metadata["default"]
            for one in _FIELDS
            if one.metadata["group"] == group
        )

    def moved_logits(self, logits: Mapping[int, float], recent: Sequence[int]) -> dict[int, float]:
        """Return the logits of `moved_tokens(recent)` after bias and penalties.

        `logits` has at least those tokens.
        """
        moved: dict[int, float] = {}
        counts = self._counts(recent)
        for token in self.moved_tokens(recent):
            value = logits[token] + self.logit_bias.get(token, 0.0)
            if token in counts:
                penalty = self.repetition_penalty
                value = value * penalty if value < 0 else value / penalty
                value -= self.presence_penalty + self.frequency_penalty * counts[token]
            moved[token] = value
        return moved

    def moved_tokens(self, recent: Sequence[int]) -> tuple[int, ...]:
        """Return the tokens whose logits a bias or penalty changes, each once."""
        return tuple(dict.fromkeys((*self.logit_bias, *self._counts(recent))))

    def _counts(self, recent: Sequence[int]) -> Counter[int]:
        penalised = self.repetition_penalty != 1 or self.presence_penalty or self.frequency_penalty
        return Counter(recent[-self.penalty_window :] if penalised else ())

    def probabilities(self, logits: Row, recent: Sequence[int] = ()) -> Row:
        """Return the adjusted distribution of one row, float64 [vocab], with sum 1 up to rounding.

        `logits` may be log-probabilities; -inf is probability 0. `recent` has the tokens before the
        row, oldest first, for the penalties' window.

        Raises ConfigError for a bias or recent token outside the row, and for a row without a
        finite logit.
        """
        row = np.asarray(logits, dtype=np.float64)
        tokens = self.moved_tokens(recent) if self.has_history else ()
        if tokens:
            if not 0 <= min(tokens) <= max(tokens) < row.size:
                raise ConfigError(f"a bias or penalty names a token outside 0 to {row.size - 1}")
            row = row.copy()
            for token, value in self.moved_logits(
                {token: float(row[token]) for token in tokens}, recent
            ).items():
                row[token] = value
        return self.adjust(row, np.ones(row.size))

    def adjust(self, logits: Row, multiplicity: Row) -> Row:
        """Return the adjusted probability of one token of each entry, without penalties.

        Entry i stands for `multiplicity[i]` tokens with the same logit, so that a long tail of
        equal tokens is one entry; probabilities times multiplicities sum to 1. Raises ConfigError
        if the edge of top-k would split an entry, whose tokens must then be given one by one.
        """
        highest = logits.max(initial=-math.inf)
        if not math.isfinite(highest):
            raise ConfigError("the largest logit of a row is not finite")
        if self.temperature == 0:
            likeliest = np.zeros(logits.size)
            best = int(logits.argmax())
            if multiplicity[best] != 1:
                raise ConfigError("the likeliest entry stands for several tokens")
            likeliest[best] = 1.0
            return likeliest
        row = logits - highest
        if self.top_p < 1:
            row = _keep_top_p(row, multiplicity, self.top_p)
        if self.min_p > 0:
            # The likeliest is at 0 and no filter drops it.
            row = np.where(row < math.log(self.min_p), -math.inf, row)
        if 0 < self.top_k < multiplicity.sum():
            row = _keep_top_k(row, multiplicity, self.top_k)
        weights = np.exp(row / self.temperature)
        probabilities: Row = weights / (weights * multiplicity).sum()
        return probabilities


def _keep_top_p(row: Row, multiplicity: Row, mass: float) -> Row:
    """Keep the smallest set with this share of the mass, including ties with its last token."""
    order = np.argsort(-row, kind="stable")
    descending = row[order]
    weights = np.exp(descending) * multiplicity[order]
    through = np.cumsum(weights)
    before = np.concatenate(([0.0], through[:-1]))
    total = float(through[-1])
    # An entry is dropped if the entries above it already have the mass. Tokens of one entry are
    # equal, so they stay or go together.
    last = int((before < mass * total).sum()) - 1
    return np.where(row < descending[last], -math.inf, row)


def _keep_top_k(row: Row, multiplicity: Row, count: int) -> Row:
    """Keep the `count` likeliest tokens; ties at the edge go to the first entries."""
    order = np.argsort(-row, kind="stable")
    through = np.cumsum(multiplicity[order])
    edge = int(np.searchsorted(through, count))
    if through[edge] != count and row[order[edge]] > -math.inf:
        raise ConfigError("top-k ends within an entry of several tokens")
    kept = np.full(row.size, -math.inf)
    kept[order[: edge + 1]] = row[order[: edge + 1]]
    return kept
