"""How likely the tokens of a prompt are, each after those before it."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from akunu_py.models.row_choices import RowLogprobs, token_logprobs
from akunu_py.sampling.probabilities import no_choice
from akunu_py.values.types import TokenLogprob

SCORED_ROWS = 64
"""Most rows of a prompt pass whose logits are needed; a draft has as many, so that the memory of a
pass is counted with them (`pass_memory`)."""


class Scoring(NamedTuple):
    """A prompt whose tokens are to be scored, and how many of the likeliest at each place, too."""

    prompt: Sequence[int]
    top: int


class PromptScores:
    """The log probabilities of a text's tokens but the first; those of a beginning stay valid.

    Entry i is of token i + 1, and comes from row i.
    """

    def __init__(self, text: Sequence[int] = (), top: int = 0) -> None:
        self._first = text[:1]
        # The token and the likeliest ones, [n, 1 + top], and their log probabilities.
        self._ids: NDArray[np.uint32] = np.zeros((0, 1 + top), np.uint32)
        self._values: NDArray[np.float32] = np.zeros((0, 1 + top), np.float32)

    def reach(self, scoring: Scoring) -> int:
        """Return how many of the first entries are those of another text."""
        text, top = scoring
        if self._ids.shape[1] <= top or list(text[:1]) != list(self._first):
            return 0
        count = min(len(self._ids), len(text) - 1)
        differing = np.flatnonzero(self._ids[:count, 0] != np.array(text[1 : count + 1]))
        return int(differing[0]) if differing.size else count

    def first(self, count: int, scoring: Scoring) -> Self:
        """Return the first `count` entries for a text that they are valid for."""
        kept = type(self)(scoring.prompt, scoring.top)
        if count:
            width = 1 + scoring.top
            kept._ids, kept._values = self._ids[:count, :width], self._values[:count, :width]  # noqa: SLF001
        return kept

    def add(self, logits: mx.array, tokens: Sequence[int]) -> None:
        """Add the entries of the tokens that follow rows, given their logits [1, n, vocab].

        Raises ModelFormatError for logits that are not numbers.
        """
        top = self._ids.shape[1] - 1
        found = RowLogprobs.of(logits[0], mx.array(list(tokens), dtype=mx.uint32), top)
        values = np.array(found.values)
        if np.isnan(values).any():
            raise no_choice(logits.dtype)
        self._ids = np.concatenate([self._ids, np.array(found.ids)])
        self._values = np.concatenate([self._values, values])

    def read(self) -> tuple[TokenLogprob, ...]:
        """Return the entries."""
        return token_logprobs(self._ids.tolist(), self._values.tolist())
