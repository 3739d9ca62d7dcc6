"""Heads that guess only some of the target's tokens.

A guess of a small layer spends most of its time on the product with one row for each token of the
vocabulary, and few tokens make up most of a text (FR-Spec, Zhao et al. 2025, arXiv:2502.14856). So
EAGLE-3's side-cars name the tokens that are guessed, their draft vocabulary, in a tensor `d2t`:
token i of it is token i + d2t[i] of the target.
"""

import copy

import mlx.core as mx
from mlx import nn


class DraftOutput(nn.Module):  # type: ignore[misc]  # mlx.nn has no types
    """An output head of which only some rows are computed; the logits of all others are -inf."""

    def __init__(self, rows: nn.Module, ids: mx.array, vocabulary: int) -> None:
        super().__init__()
        # An output head, or an embedding that serves as one, with n rows.
        self.rows = rows
        # The target's token of each row, int32 [n], ascending.
        self.ids = ids
        # Number of the target's tokens.
        self.vocabulary = vocabulary

    def __call__(self, states: mx.array) -> mx.array:
        """Return the logits [..., vocabulary] of states [..., H]."""
        found = getattr(self.rows, "as_linear", self.rows)(states)
        return spread(found, self.ids, self.vocabulary)


def spread(found: mx.array, ids: mx.array, vocabulary: int) -> mx.array:
    """Return logits [..., n] of the tokens `ids`, [n] or [..., n], as logits [..., vocabulary].

    Those of all other tokens are -inf.
    """
    everywhere = mx.full((*found.shape[:-1], vocabulary), -mx.inf, dtype=found.dtype)
    places = mx.broadcast_to(ids, found.shape)
    logits: mx.array = mx.put_along_axis(everywhere, places, found, axis=-1)
    return logits


def some_rows(layer: nn.Module, ids: mx.array) -> nn.Module:
    """Return a layer like an output head or an embedding, with some of its rows in their form.

    Every array of such a layer has one entry, or one row of codes, for each token.
    """
    some = copy.copy(layer)
    for name, part in layer.items():
        if isinstance(part, mx.array):
            some[name] = part[ids]
        elif isinstance(part, nn.Module):
            some[name] = some_rows(part, ids)
    return some
