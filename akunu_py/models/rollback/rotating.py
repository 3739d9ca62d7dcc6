"""RotatingKVCache: the rows of a sliding window, with or without the first rows of the text.

How it differs from other caches (mlx-lm 0.32, models/cache.py):

- A pass over several rows puts the arrays in temporal order, keeps window - 1 of the rows before it
  and appends its own. These arrays are new, and longer than the window until the next pass. So
  rejected rows can be cut off at the end, and every row that the next token may see is there.
  `trim` changes only the numbers and leaves the rows in place, where the next single row meets
  them.
- A pass over one row writes into the arrays as a ring. The overwritten row is lost.
- With `keep` > 0 the first rows of the text always stay in the window (attention sinks). mlx-lm's
  mask for several rows hides them from all but the first of these rows; see `SinkCache`.
"""

from dataclasses import dataclass
from typing import ClassVar

import mlx.core as mx
from mlx_lm.models.cache import RotatingKVCache

from akunu_py.models.rollback.parts import pack


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


@dataclass(frozen=True, slots=True)
class _Saved:
    keys: mx.array | None
    values: mx.array | None
    offset: int
    index: int


class Rotating:
    """A sliding window whose last rows are cut off while the window before them is whole."""

    method: ClassVar[str] = "cut off"
    drops_rows: ClassVar[bool] = True
    by_length: ClassVar[bool] = False

    def __init__(self, cache: RotatingKVCache) -> None:
        self._cache = cache

    def can_drop(self, count: int) -> bool:
        """Return whether the whole window before the last `count` rows is there.

        After a pass over several rows all of its own rows but the first can be dropped. One row
        less than the window would suffice for the next token, but mlx-lm would then fill an array
        of negative size.
        """
        cache = self._cache
        if cache.keys is None:
            return count == 0
        offset = int(cache.offset)
        held = min(offset, int(cache.keys.shape[2]))
        return held - count >= min(int(cache.max_size), offset - count) > 0

    def drop(self, count: int) -> None:
        cache = self._cache
        keys, values = rows_in_order(cache)
        rows = keys.shape[2] - count
        put_rows(cache, keys[..., :rows, :], values[..., :rows, :], int(cache.offset) - count, rows)

    def save(self) -> _Saved:
        """Return separate array objects over the same memory.

        A pass over one row writes through the cache's own array objects.
        """
        cache = self._cache
        keys = None if cache.keys is None else cache.keys[...]
        values = None if cache.values is None else cache.values[...]
        return _Saved(keys, values, int(cache.offset), next_row(cache))

    def restore(self, saved: _Saved) -> None:
        keys = None if saved.keys is None else saved.keys[...]
        values = None if saved.values is None else saved.values[...]
        put_rows(self._cache, keys, values, saved.offset, saved.index)

    def copy(self, source: "Rotating", saved: _Saved) -> None:  # noqa: ARG002 - the protocol's
        """Take over the saved rows, in array objects of its own."""
        self.restore(saved)

    def pack(self) -> None:
        """Drop rows before the window, and the room behind those of one that is not full."""
        cache = self._cache
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
