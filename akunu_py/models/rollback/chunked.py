"""ChunkedKVCache: attention within chunks of the text, as Llama 4 has in three of four layers.

At the beginning of a pass the model lets rows in front of the last chunk's length go
(`ChunkedKVCache.maybe_trim_front`).
"""

from dataclasses import dataclass
from typing import ClassVar

import mlx.core as mx
from mlx_lm.models.cache import ChunkedKVCache

from akunu_py.errors import RollbackError


@dataclass(frozen=True, slots=True)
class _Saved:
    keys: mx.array | None
    values: mx.array | None
    offset: int
    start_position: int


class Chunked:
    """By length, as far back as the front still reaches."""

    method: ClassVar[str] = "by length"
    drops_rows: ClassVar[bool] = True
    by_length: ClassVar[bool] = False

    def __init__(self, cache: ChunkedKVCache) -> None:
        self._cache = cache

    def can_drop(self, count: int) -> bool:
        """Return whether the rows of the chunk that then goes on are all there.

        After a pass its own rows but the first always can be: what the pass let go lies a chunk's
        length before it.
        """
        length = int(self._cache.offset) - count
        size = int(self._cache.chunk_size)
        start = int(self._cache.start_position)
        return length >= start and (start == 0 or length // size * size >= start)

    def drop(self, count: int) -> None:
        """Drop the last `count` rows; raises RollbackError where too few are left."""
        if not self.can_drop(count):
            raise RollbackError(f"a chunked cache has let rows go that dropping {count} needs")
        self._cache.trim(count)

    def save(self) -> _Saved:
        """Return references: later passes write behind these rows or make arrays anew."""
        cache = self._cache
        return _Saved(cache.keys, cache.values, int(cache.offset), int(cache.start_position))

    def restore(self, saved: _Saved) -> None:
        """Go back to what was saved, rows in front of it included."""
        cache = self._cache
        cache.keys, cache.values = saved.keys, saved.values
        cache.offset, cache.start_position = saved.offset, saved.start_position
