"""RotatingKVCache: the rows of a sliding window, with or without the first rows of the text.

What makes it different (mlx-lm 0.32, models/cache.py):

- A pass over several rows puts the arrays in temporal order, keeps window - 1 of the rows before it
  and appends its own. These arrays are new, and until the next pass longer than the window; so
  rejected rows can be cut off behind, and every row the next token may see is there. `trim` changes
  the numbers alone and leaves the rows in place, where the next single row finds them.
- A pass over one row writes into the arrays as a ring. What it overwrites is lost.
- With `keep` > 0 the first rows of the text stay in the window for ever (attention sinks). The mask
  for several rows hides them from all but the first of these; see `SinkCache`.
"""

from dataclasses import dataclass
from typing import ClassVar

import mlx.core as mx
from mlx_lm.models.cache import RotatingKVCache

from akunu_py.errors import RollbackError


class SinkCache(RotatingKVCache):  # type: ignore[misc]
    """A sliding window with sinks in which a row sees the same in a pass of any size.

    With mlx-lm's own mask the text would depend on how the prompt was cut into passes, and on what
    was drafted.
    """

    def make_mask(
        self,
        N: int,  # noqa: N803
        window_size: int | None = None,
        return_array: bool = False,
    ) -> mx.array | str | None:
        """Return the mask of a pass over `N` rows, in the forms mlx-lm's models take."""
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
    """Rows are cut off behind, as long as the window before them is whole."""

    method: ClassVar[str] = "cut off"
    drops_rows: ClassVar[bool] = True
    by_length: ClassVar[bool] = False

    def __init__(self, cache: RotatingKVCache) -> None:
        self._cache = cache

    def can_drop(self, count: int) -> bool:
        """Return whether the whole window before the last `count` rows is there.

        After a pass over several rows its own rows but the first always can be dropped. One row
        less than the window would be enough for the next token, but not for mlx-lm, which would
        go on to fill an array of negative size.
        """
        cache = self._cache
        if cache.keys is None:
            return count == 0
        offset = int(cache.offset)
        held = min(offset, int(cache.keys.shape[2]))
        return held - count >= min(int(cache.max_size), offset - count) > 0

    def drop(self, count: int) -> None:
        """Drop the last `count` rows; raises RollbackError where earlier ones are lost."""
        if count == 0:
            return
        if not self.can_drop(count):
            raise RollbackError(f"a sliding window has lost rows that dropping {count} needs")
        cache = self._cache
        # Makes no copy after a pass over several rows: they are in order then.
        keys = cache._temporal_order(cache.keys)  # noqa: SLF001
        values = cache._temporal_order(cache.values)  # noqa: SLF001
        rows = keys.shape[2] - count
        cache.keys, cache.values = keys[..., :rows, :], values[..., :rows, :]
        cache.offset -= count
        cache._idx = rows  # noqa: SLF001

    def save(self) -> _Saved:
        """Return array objects of its own over the same memory.

        A pass over one row writes through the cache's array objects, and so must not meet these.
        """
        cache = self._cache
        keys = None if cache.keys is None else cache.keys[...]
        values = None if cache.values is None else cache.values[...]
        return _Saved(keys, values, int(cache.offset), int(cache._idx))  # noqa: SLF001

    def restore(self, saved: _Saved) -> None:
        """Go back to what was saved; it can be restored again."""
        cache = self._cache
        cache.keys = None if saved.keys is None else saved.keys[...]
        cache.values = None if saved.values is None else saved.values[...]
        cache.offset, cache._idx = saved.offset, saved.index  # noqa: SLF001


def sink_mask(rows: int, before: int, window: int, sinks: int) -> mx.array:
    """Return which columns each row of a pass sees, bool [rows, before + rows].

    Columns are the rows in the cache, in temporal order, then those of the pass. As when fed alone,
    a row sees the first `sinks` columns and, itself included, the last `window - sinks`.
    """
    own = mx.arange(before, before + rows)[:, None]
    columns = mx.arange(before + rows)[None]
    recent = columns > own - (window - sinks)
    return (columns <= own) & (recent | (columns < sinks))
