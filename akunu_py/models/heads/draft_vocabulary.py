"""Heads that guess only some of the target's tokens.

A guess of a small layer spends most of its time on the product with one row for each token of the
vocabulary, and few tokens make up most of a text (FR-Spec, Zhao et al. 2025, arXiv:2502.14856). So
EAGLE-3's side-cars name the tokens that are guessed, their draft vocabulary, in a tensor `d2t`:
token i of it is token i + d2t[i] of the target.
"""

import copy

import mlx.core as mx
import numpy as np
from mlx import nn

from akunu_py.errors import ModelFormatError
from akunu_py.models.heads.stored_weights import StoredTensor

OFFSETS = "d2t"
"""Name of the tensor, as in EAGLE-3's side-cars."""


class DraftOutput(nn.Module):  # type: ignore[misc]  # mlx.nn has no types
    """An output head of which only some rows are computed; the logits of all others are -inf.

    Attributes:
        rows: an output head, or an embedding that serves as one, with n rows.
        ids: the target's token of each row, int32 [n], ascending.
        vocabulary: number of the target's tokens.

    """

    def __init__(self, rows: nn.Module, ids: mx.array, vocabulary: int) -> None:
        super().__init__()
        self.rows = rows
        self.ids = ids
        self.vocabulary = vocabulary

    def __call__(self, states: mx.array) -> mx.array:
        """Return the logits [..., vocabulary] of states [..., H]."""
        found = getattr(self.rows, "as_linear", self.rows)(states)
        shape = (*found.shape[:-1], self.vocabulary)
        logits: mx.array = mx.put_along_axis(
            mx.full(shape, -mx.inf, dtype=found.dtype),
            mx.broadcast_to(self.ids, found.shape),
            found,
            axis=-1,
        )
        return logits


def read_ids(offsets: mx.array, tensor: StoredTensor, vocabulary: int) -> mx.array:
    """Return the target's ids of a draft vocabulary, int32 [n], from its tensor `d2t`.

    Raises ModelFormatError, naming file and tensor, unless these are different ids below
    `vocabulary` in ascending order.
    """
    known = mx.issubdtype(offsets.dtype, mx.integer) and offsets.ndim == 1 and offsets.size > 0
    numbers = np.array(offsets) if known else np.array([-1])
    # Ids ascend where no offset is below the one before it.
    known = known and numbers[0] >= 0 and bool((numbers[1:] >= numbers[:-1]).all())
    if not known or int(numbers[-1]) + len(numbers) > vocabulary:
        raise ModelFormatError(
            f"tensor {tensor.name!r} in {tensor.path} does not name different tokens of the "
            f"{vocabulary} of this model in ascending order; the file is damaged, or made for "
            "another model: download it again, or use the head of this model"
        )
    return mx.array((numbers + np.arange(len(numbers))).astype(np.int32))


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
