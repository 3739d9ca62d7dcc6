"""Passes of one size: what `--reproducible` decodes with."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import make_prompt_cache

from akunu_py.errors import ConfigError
from akunu_py.models.rollback import RollbackCaches

PADDED_ROWS = 8
"""Rows of every pass: drafts of up to 7 tokens. Metal's kernel for attention of few rows takes 8
(mlx, scaled_dot_product_attention: query length up to 8), and beyond them another one is used."""


def usable_context(context: int | None, longest: int, padded_rows: int | None = None) -> int:
    """Return the context to use of a model that has `longest`: what is asked for, or all of it.

    Raises ConfigError for one that the model does not have.
    """
    if padded_rows is not None:
        # The rows of a padding lie beyond the last token; they, too, need positions.
        longest -= padded_rows
    if context is None:
        return longest
    whole = isinstance(context, int) and not isinstance(context, bool)
    if not whole or not 2 <= context <= longest:
        raise ConfigError(f"context is {context!r}; this model allows 2 to {longest} tokens")
    return context


class PaddedModel(nn.Module):  # type: ignore[misc]
    """A model whose passes over fewer than `rows` rows are padded to that many.

    Kernels are chosen, and sums ordered, by the number of rows; with one number a token's logits
    cannot depend on how many others were fed with it. The rows of the padding come last, where none
    of the others sees them, and are dropped from the caches at once.

    Raises ConfigError for a model whose caches cannot drop rows.
    """

    def __init__(self, model: nn.Module, rows: int = PADDED_ROWS) -> None:
        super().__init__()
        self.inner = model
        self._rows = rows
        self._rollback: tuple[Sequence[Any], RollbackCaches] | None = None
        caches = RollbackCaches(self.make_cache())
        if not caches.supported or caches.replays:
            raise ConfigError(
                "this model's layers keep a state that cannot drop the rows of a padding; leave "
                "reproducible out"
            )

    def make_cache(self) -> list[Any]:
        """Return fresh caches, as mlx-lm makes them for the model."""
        caches: list[Any] = make_prompt_cache(self.inner)
        return caches

    def __call__(self, inputs: mx.array, cache: list[Any]) -> mx.array:
        """Return logits [1, n, vocabulary] of inputs [1, n]; the caches take in n rows."""
        count = inputs.shape[1]
        missing = self._rows - count
        if missing <= 0:
            return self._logits(inputs, cache)
        rollback = self._rollback_of(cache)
        # The padding repeats the last token: any id of the vocabulary would do.
        padding = mx.repeat(inputs[:, -1:], missing, axis=1)
        logits = self._logits(mx.concatenate([inputs, padding], axis=1), cache)
        rollback.drop(missing)
        return logits[:, :count]

    def _logits(self, inputs: mx.array, cache: list[Any]) -> mx.array:
        logits: mx.array = self.inner(inputs, cache=cache)
        return logits

    def _rollback_of(self, cache: list[Any]) -> RollbackCaches:
        if self._rollback is None or self._rollback[0] is not cache:
            self._rollback = (cache, RollbackCaches(cache))
        return self._rollback[1]
