"""n-gram counts searching ahead for a beam search."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from akunu_py.lab.counts.interpolation import CountModel


class CountRows:
    """What counts say after several continuations of a prompt; a `decoding.beam.BeamModel`.

    The model has observed the prompt; it is not told of hypotheses, of which none is settled before
    the search ends.
    """

    def __init__(self, model: CountModel, prompt: Sequence[int]) -> None:
        self._model = model
        self._before = tuple(prompt[len(prompt) - min(len(prompt), model.order - 1) :])

    def log_probabilities(self, continuations: Sequence[tuple[int, ...]]) -> NDArray[np.float64]:
        """Return the next token's log-probabilities after each, float64 [n, vocabulary]."""
        found = np.empty((len(continuations), self._model.vocabulary_size))
        for row, tokens in zip(found, continuations, strict=True):
            self._model.distribution((*self._before, *tokens)).fill(row)
        # Without a discount a token may have no probability: it cannot come.
        with np.errstate(divide="ignore"):
            return np.log(found, out=found)
