"""Rollback of each kind of cache, above all of RotatingKVCache.

RotatingKVCache has the rows of a sliding window, with or without the first rows of the text. How it
differs from other caches (mlx-lm 0.32, models/cache.py):

- A pass over several rows puts the arrays in temporal order, keeps window - 1 of the rows before it
  and appends its own. These arrays are new, and longer than the window until the next pass. So
  rejected rows can be cut off at the end, and every row that the next token may see is there.
  `trim` changes only the numbers and leaves the rows in place, where the next single row meets
  them.
- A pass over one row writes into the arrays as a ring. The overwritten row is lost.
- With `keep` > 0 the first rows of the text always stay in the window (attention sinks). mlx-lm's
  mask for several rows hides them from all but the first of these rows; see `SinkCache`.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models.cache import RotatingKVCache

from akunu_py.system.errors import RollbackError


class CachePart:
    """One of mlx-lm's caches that holds rows itself, and the way it rolls back."""

    method: ClassVar[str]
    """Name of the way."""

    drops_rows: ClassVar[bool] = True
    """Whether rows can be dropped. If not, the last pass is undone by a record of it, or the cache
    is restored to its state before the pass and the rows to keep are fed again."""

    by_length: ClassVar[bool] = False
    """Whether any number of rows can be dropped at any time."""

    def __init__(self, cache: Any) -> None:
        self.cache = cache

    def can_drop(self, count: int) -> bool:
        """Return whether the last `count` rows can be dropped now without loss."""
        raise NotImplementedError

    def drop(self, count: int) -> None:
        """Drop the last `count` rows, one or more; `can_drop` says that it can."""
        self.cache.trim(count)

    def keep(self, fed: int, kept: Sequence[int]) -> None:
        """Keep the rows `kept` of the last pass, over `fed` rows; `drop` could drop all but one."""
        raise NotImplementedError

    def save(self) -> Any:
        """Return what `restore` needs: references, no copies of arrays."""
        return references(self.cache)

    def restore(self, saved: Any) -> None:
        """Go back to the saved state, as often as wanted; rows fed since then are lost."""
        vars(self.cache).update(tree_map(_handle, saved))

    def copy(self, source: Any, saved: Any) -> None:  # noqa: ARG002 - for caches by length
        """Fill a fresh cache with what another of its kind, `source`, held when it was saved.

        Neither writes into what the other holds from then on.
        """
        self.restore(saved)

    def pack(self) -> None:
        """Hold no memory beyond what later passes read.

        mlx-lm allocates room for 256 rows at a time, and states may be views of whole passes.
        """
        raise NotImplementedError


def references(cache: Any) -> dict[str, Any]:
    """Return all that a cache holds, in array objects that no pass writes through."""
    found: dict[str, Any] = tree_map(_handle, vars(cache))
    return found


def _handle(value: Any) -> Any:
    return value[...] if isinstance(value, mx.array) else value


class ByLength(CachePart):
    """A cache whose rows lie in order: the length says which of them are valid.

    The next pass overwrites the rows beyond the length.
    """

    method: ClassVar[str] = "by length"
    by_length: ClassVar[bool] = True

    def can_drop(self, count: int) -> bool:
        return count <= int(self.cache.offset)

    def keep(self, fed: int, kept: Sequence[int]) -> None:
        cache = self.cache
        start = int(cache.offset) - fed
        end = start + len(kept)
        rows = mx.array([start + row for row in kept])

        def compact(array: mx.array) -> mx.array:
            # Written in place, as the cache itself writes: the array includes room for later rows.
            array[..., start:end, :] = array[..., rows, :]
            return array

        cache.keys, cache.values = tree_map(compact, (cache.keys, cache.values))
        cache.offset = end

    def save(self) -> int:
        """Return the length."""
        return int(self.cache.offset)

    def restore(self, saved: int) -> None:
        """Go back to a length."""
        self.cache.offset = saved

    def copy(self, source: "ByLength", saved: int) -> None:
        """Copy the first `saved` rows."""
        held = source.cache
        if saved:
            self.cache.keys, self.cache.values = tree_map(
                lambda rows: mx.contiguous(rows[..., :saved, :]), (held.keys, held.values)
            )
        self.cache.offset = saved

    def pack(self) -> None:
        """Drop the room behind the rows."""
        pack(self.cache, int(self.cache.offset))


def pack(cache: Any, rows: int) -> None:
    """Drop what a cache holds behind its first rows; evaluates the others."""
    first = cache.keys if isinstance(cache.keys, mx.array) else (cache.keys or [None])[0]
    if first is not None and first.shape[-2] > rows:
        cache.keys, cache.values = tree_map(
            lambda held: mx.contiguous(held[..., :rows, :]), (cache.keys, cache.values)
        )
        mx.eval(cache.keys, cache.values)


class Chunked(CachePart):
    """A cache for attention within chunks of the text, as in three of Llama 4's four layers.

    At the beginning of a pass the model drops the rows that lie more than a chunk's length behind
    (`ChunkedKVCache.maybe_trim_front`). So rows can be dropped by length, as far back as the front
    still reaches.
    """

    method: ClassVar[str] = "by length"

    def can_drop(self, count: int) -> bool:
        """Return whether all rows of the chunk that would then continue are there.

        After a pass all of its own rows but the first can be dropped: the rows that the pass
        dropped at the front lie a chunk's length before it.
        """
        length = int(self.cache.offset) - count
        size = int(self.cache.chunk_size)
        start = int(self.cache.start_position)
        return length >= start and (start == 0 or length // size * size >= start)

    def pack(self) -> None:
        """Drop the room behind the rows."""
        pack(self.cache, int(self.cache.offset) - int(self.cache.start_position))


class Restored(CachePart):
    """A cache that cannot drop rows; it is restored.

    Models of mlx-lm put new arrays into such caches at every pass and never write into the old
    ones. The rows to keep of a pass are fed again.
    """

    method: ClassVar[str] = "restore, feed again"
    drops_rows: ClassVar[bool] = False

    def can_drop(self, count: int) -> bool:
        return count == 0

    def drop(self, count: int) -> None:
        raise RollbackError(f"a recurrent state cannot drop {count} rows")

    def pack(self) -> None:
        """Hold states in memory of their own: many are views of all positions of a pass."""
        held = vars(self.cache)
        held.update(
            tree_map(lambda one: mx.contiguous(one) if isinstance(one, mx.array) else one, held)
        )
        mx.eval(held)


class Recurrent(Restored):
    """The states of recurrent layers (Mamba, gated delta nets, RWKV) or of short convolutions.

    `recurrence` computes those after the first positions of a pass. The other attributes of an
    `ArraysCache` are for batches.
    """

    method: ClassVar[str] = "replayed"


class SinkCache(RotatingKVCache):  # type: ignore[misc]
    """A sliding window with sinks in which a row sees the same columns in a pass of any size.

    With mlx-lm's own mask the text would depend on how the prompt is cut into passes, and on the
    drafts.
    """

    def make_mask(
        self,
        N: int,
        window_size: int | None = None,
        return_array: bool = False,
    ) -> mx.array | str | None:
        """Return the mask of a pass over `N` rows, in a form that mlx-lm's models take."""
        window = int(self.max_size)
        before = min(window - 1, int(self.offset))
        if N > 1 and before + N > window:
            return sink_mask(N, before, window, int(self.keep))
        mask: mx.array | str | None = super().make_mask(N, window_size, return_array)
        return mask


class Rotating(CachePart):
    """A sliding window whose last rows are cut off while the window before them is whole."""

    method: ClassVar[str] = "cut off"

    def can_drop(self, count: int) -> bool:
        """Return whether the whole window before the last `count` rows is there.

        After a pass over several rows all of its own rows but the first can be dropped. One row
        less than the window would suffice for the next token, but mlx-lm would then fill an array
        of negative size.
        """
        cache = self.cache
        if cache.keys is None:
            return count == 0
        offset = int(cache.offset)
        held = min(offset, int(cache.keys.shape[2]))
        return held - count >= min(int(cache.max_size), offset - count) > 0

    def drop(self, count: int) -> None:
        keys, values = rows_in_order(self.cache)
        end = keys.shape[2] - count
        offset = int(self.cache.offset) - count
        put_rows(self.cache, keys[..., :end, :], values[..., :end, :], offset, end)

    def keep(self, fed: int, kept: Sequence[int]) -> None:
        keys, values = rows_in_order(self.cache)
        before = keys.shape[2] - fed
        rows = mx.array([*range(before), *(before + row for row in kept)])
        offset = int(self.cache.offset) - fed + len(kept)
        put_rows(self.cache, keys[..., rows, :], values[..., rows, :], offset, rows.size)

    def pack(self) -> None:
        """Drop rows before the window, and the room behind those of one that is not full."""
        cache = self.cache
        if cache.keys is None:
            return
        surplus = min(int(cache.offset), cache.keys.shape[2]) - int(cache.max_size)
        if surplus <= 0:
            pack(cache, max(next_row(cache), int(cache.offset)))
            return
        trim = cache._trim  # noqa: SLF001 - mlx-lm has no public name for it
        keys, values = (trim(surplus, held) for held in rows_in_order(cache))
        mx.eval(keys, values)
        put_rows(cache, keys, values, int(cache.offset), int(cache.max_size))


def rows_in_order(cache: RotatingKVCache) -> tuple[mx.array, mx.array]:
    """Return keys and values of the rows that a cache holds, [1, heads, rows, width], oldest first.

    Makes no copy after a pass over several rows, which leaves them in order.
    """
    in_order = cache._temporal_order  # noqa: SLF001 - mlx-lm has no public name for it
    return in_order(cache.keys), in_order(cache.values)


def next_row(cache: RotatingKVCache) -> int:
    """Return the row of a cache's arrays behind which the next single row is written."""
    return int(cache._idx)  # noqa: SLF001 - mlx-lm has no public name for it


def put_rows(
    cache: RotatingKVCache,
    keys: mx.array | None,
    values: mx.array | None,
    offset: int,
    index: int,
) -> None:
    """Put arrays into a cache of which `offset` rows were fed; `index` as in `next_row`."""
    cache.keys, cache.values, cache.offset = keys, values, offset
    cache._idx = index  # noqa: SLF001


def sink_mask(rows: int, before: int, window: int, sinks: int) -> mx.array:
    """Return which columns each row of a pass sees, bool [rows, before + rows].

    Columns are the rows in the cache, in temporal order, then the rows of the pass. As if fed
    alone, a row sees the first `sinks` columns and the last `window - sinks`, itself included.
    """
    own = mx.arange(before, before + rows)[:, None]
    columns = mx.arange(before + rows)[None]
    recent = columns > own - (window - sinks)
    return (columns <= own) & (recent | (columns < sinks))
