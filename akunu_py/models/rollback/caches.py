"""The caches of one model, rolled back together."""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
)

from akunu_py.models.rollback.parts import (
    ByLength,
    CachePart,
    Chunked,
    Recurrent,
    Restored,
    Rotating,
    SinkCache,
    references,
)
from akunu_py.models.rollback.recurrence import Record
from akunu_py.system.errors import RollbackError

Saved = list[Any]
"""The result of `RollbackCaches.save`: an entry for each part, which only that part can read."""

_PARTS: dict[type, Callable[[Any], CachePart]] = {
    KVCache: ByLength,
    QuantizedKVCache: ByLength,
    RotatingKVCache: Rotating,
    SinkCache: Rotating,
    ChunkedKVCache: Chunked,
    ArraysCache: Recurrent,
}
_PARTS_OF_ONE_MODEL: dict[tuple[str, str], Callable[[Any], CachePart]] = {
    # A window, and one row for each closed group of earlier rows.
    ("mlx_lm.models.deepseek_v41", "LayerCache"): Restored,
}
"""By module and name of the class: the module is loaded only for its model."""


class RollbackCaches:
    """The caches of one model, rolled back together; they may be fewer than the model's layers."""

    def __init__(self, caches: Sequence[Any]) -> None:
        held = list(leaves(caches))
        kinds = [_kind(leaf) for leaf in held]
        # Whether every cache is of a known kind. If not, nothing can be undone.
        self.supported = None not in kinds
        self._parts: list[CachePart] = [
            kind(leaf) for kind, leaf in zip(kinds, held, strict=True) if kind is not None
        ]
        # Whether all drop rows. A state is replayed from the record of the last pass, or restored.
        self.drops_rows = all(part.drops_rows for part in self._parts)
        self._record: Record | None = None
        # Whether any number of rows can be dropped at any time.
        self.by_length = self.supported and all(part.by_length for part in self._parts)
        # The names of the ways used, sorted.
        self.methods = sorted({part.method for part in self._parts}) if self.supported else []

    def can_drop(self, count: int) -> bool:
        return count == 0 or (self.supported and all(part.can_drop(count) for part in self._parts))

    def drop(self, count: int) -> None:
        if not self.can_drop(count):
            raise RollbackError(
                f"the caches cannot drop {count} rows; generate with drafter='none' and report "
                "this model"
            )
        if count:
            for part in self._parts:
                part.drop(count)

    def record(self, rows: int) -> Record:
        """Return the record of a coming pass over `rows` positions, two or more, for `undo`.

        The caches may not be empty.
        """
        kept = [part for part in self._parts if isinstance(part, Recurrent)]
        self._record = Record([part.cache for part in kept], rows)
        return self._record

    def undo(self, count: int) -> bool:
        """Drop the last `count` rows of the pass just fed, but not all; return whether it could.

        Otherwise nothing has changed. States need that pass recorded. Raises RollbackError where
        all caches drop rows, and these cannot.
        """
        record, self._record = self._record, None
        if count == 0 or self.drops_rows:
            self.drop(count)
            return True
        droppers = [part for part in self._parts if not isinstance(part, Recurrent)]
        if record is None or not all(part.can_drop(count) for part in droppers):
            return False
        if not record.replay(record.rows - count):
            return False
        for part in droppers:
            part.drop(count)
        return True

    def keep(self, fed: int, kept: Sequence[int]) -> None:
        """Keep the rows `kept` of the last pass, over `fed` rows: a path of a tree, in order.

        Afterwards the caches are as after a pass over only these rows. Raises RollbackError, with
        every cache unchanged, for other indices and for caches whose last rows are not such a pass.
        """
        if not kept or list(kept) != sorted(set(kept)) or not 0 <= kept[0] <= kept[-1] < fed:
            raise RollbackError(f"a pass over {fed} rows cannot keep the rows {list(kept)}")
        for part in self._parts:
            # A sliding window cannot go back to before the pass.
            if not part.drops_rows or int(part.cache.offset) < fed or not part.can_drop(fed - 1):
                kind = type(part.cache).__name__
                raise RollbackError(f"a {kind} cannot keep part of its last {fed} rows")
        if kept[-1] == len(kept) - 1:
            self.drop(fed - len(kept))
        else:
            for part in self._parts:
                part.keep(fed, kept)

    def save(self, length: int | None = None) -> Saved:
        """Return what `restore` needs to come back here, however many rows are fed in between.

        With `length`, to where so many rows were held, for caches with `by_length`. Nothing is
        copied. Raises RollbackError for caches of unknown kinds.
        """
        if not self.supported:
            raise RollbackError("these caches cannot be restored")
        return [part.save() if length is None else length for part in self._parts]

    def pack(self, *, by_length: bool = True) -> None:
        """Hold no memory beyond what later passes read; one cache after another, to need little.

        With `by_length` False rows by length keep the room behind them, since more will follow.
        """
        for part in self._parts:
            if by_length or not part.by_length:
                part.pack()

    def restore(self, saved: Saved) -> None:
        for part, entry in zip(self._parts, saved, strict=True):
            part.restore(entry)

    def copy(self, source: "RollbackCaches", saved: Saved) -> None:
        if not (self.supported and source.supported):
            raise RollbackError("these caches cannot be copied")
        others = source._parts  # noqa: SLF001 - of the same class
        for part, other, entry in zip(self._parts, others, saved, strict=True):
            part.copy(other, entry)


def with_exact_sinks(cache: Any) -> Any:
    """Return a fresh cache, or its replacement where mlx-lm's own would mask sinks."""
    if type(cache) is CacheList:
        cache.caches = tuple(with_exact_sinks(part) for part in cache.caches)
    elif type(cache) is RotatingKVCache and cache.keep > 0:
        return SinkCache(cache.max_size, keep=cache.keep)
    return cache


def alias(cache: Any) -> Any:
    """Return another cache that holds the same arrays; passes over it leave `cache` as it is.

    For the known kinds of caches.
    """
    other = copy.copy(cache)
    if type(cache) is CacheList:
        other.caches = tuple(alias(part) for part in cache.caches)
    else:
        vars(other).update(references(cache))
    return other


def take_over(cache: Any, other: Any) -> None:
    """Let a cache hold what `other` holds, which is it or was made of it by `alias`."""
    for mine, theirs in zip(leaves([cache]), leaves([other]), strict=True):
        vars(mine).update(vars(theirs))


def _kind(cache: Any) -> Callable[[Any], CachePart] | None:
    """Return the way a cache rolls back, None for an unknown kind."""
    # A subclass may keep its rows in another way, so the exact type counts.
    exact = type(cache)
    return _PARTS.get(exact) or _PARTS_OF_ONE_MODEL.get((exact.__module__, exact.__qualname__))


def by_length(leaf: Any) -> bool:
    """Whether a cache holds its rows in order, and nothing else."""
    return _kind(leaf) is ByLength


def leaves(caches: Sequence[Any]) -> Iterator[Any]:
    """Yield all caches that hold rows themselves; lists of caches are replaced by their members."""
    for cache in caches:
        if type(cache) is CacheList:
            yield from leaves(cache.caches)
        else:
            yield cache
