"""KV entries by length in pieces, which several conversations with one beginning may hold.

Only caches whose KV entries lie in order (`rollback.by_length`) come apart. The windows and states
of other layers stay with their conversation. KV entries that are held in pieces cannot be fed;
their caches keep their lengths.
"""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map

from akunu_py.models.cached_rows import CachedRows
from akunu_py.models.rollback.caches import by_length, leaves

_ROWS = -2
"""The axis of the KV entries in keys and values."""


@dataclass(eq=False, slots=True)
class Piece:
    """Some KV entries of all caches by length; nobody writes into its arrays."""

    count: int
    arrays: list[Any]
    """Keys and values of each cache."""

    @property
    def nbytes(self) -> int:
        """Return the bytes of the arrays."""
        return sum(array.nbytes for array in _arrays(self.arrays))

    def first(self, count: int) -> "Piece":
        """Return the first KV entries, not copied."""
        return self if count >= self.count else self.part(0, count)

    def part(self, first: int, end: int) -> "Piece":
        """Return the KV entries between two places of the piece, not copied."""
        arrays = tree_map(lambda held: held[..., first:end, :], self.arrays)
        return Piece(end - first, arrays)

    def cut(self, place: int) -> tuple["Piece", "Piece"]:
        """Return the KV entries up to a place, and those from there on, in memory of their own."""
        found = self.part(0, place), self.part(place, self.count)
        for piece in found:
            piece.arrays = tree_map(mx.contiguous, piece.arrays)
            mx.eval(_arrays(piece.arrays))
        return found

    def begins_with(self, pieces: Sequence["Piece"], count: int) -> bool:
        """Return whether the first rows have the numbers of the first `count` of other pieces."""
        equal, place = [], 0
        for piece in pieces:
            theirs = piece.first(count - place)
            mine = self.part(place, place + theirs.count)
            pairs = zip(_arrays(mine.arrays), _arrays(theirs.arrays), strict=True)
            equal += [mx.array_equal(*pair) for pair in pairs]
            place += theirs.count
        return bool(mx.all(mx.stack(equal)))


def take_apart(rows: CachedRows) -> list[Piece]:
    """Return the KV entries of the caches by length as a piece, which `together` puts back.

    There is none where a model has no such cache.
    """
    rows.rollback.pack()
    held = _caches(rows)
    if not held:
        return []
    piece = Piece(len(rows.tokens), [(leaf.keys, leaf.values) for leaf in held])
    for leaf in held:
        leaf.keys = leaf.values = None
    return [piece]


def put_together(rows: CachedRows, pieces: Sequence[Piece]) -> None:
    """Fill the caches by length with the KV entries of pieces. A single piece is not copied."""
    held = _caches(rows)
    for place, leaf in enumerate(held):
        # Array objects of their own: a pass writes through them.
        leaf.keys, leaf.values = tree_map(_join, *(piece.arrays[place] for piece in pieces))
    mx.eval(_arrays([(leaf.keys, leaf.values) for leaf in held]))


@contextlib.contextmanager
def together(rows: CachedRows, pieces: Sequence[Piece], most: int) -> Iterator[None]:
    """Have the first `most` KV entries for a while that are held in pieces."""
    starts = itertools.accumulate((piece.count for piece in pieces), initial=0)
    needed = [
        piece.first(most - start)
        for piece, start in zip(pieces, starts, strict=False)
        if start < most
    ]
    put_together(rows, needed)
    try:
        yield
    finally:
        for leaf in _caches(rows):
            leaf.keys = leaf.values = None


def _caches(rows: CachedRows) -> list[Any]:
    """Return the caches by length that hold KV entries; some models leave one unused."""
    return [leaf for leaf in leaves(rows.caches) if by_length(leaf) and leaf.offset]


def _join(*parts: mx.array) -> mx.array:
    return mx.concatenate(list(parts), axis=_ROWS) if len(parts) > 1 else parts[0][...]


def _arrays(tree: Any) -> list[mx.array]:
    return [array for _, array in tree_flatten(tree)]
