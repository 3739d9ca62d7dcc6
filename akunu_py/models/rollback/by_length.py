"""Caches whose rows lie in order: the length alone says which of them count."""

from typing import ClassVar

from mlx_lm.models.cache import KVCache, QuantizedKVCache

from akunu_py.errors import RollbackError


class ByLength:
    """A cache of all rows. A row beyond the length is overwritten by the next pass."""

    method: ClassVar[str] = "by length"
    drops_rows: ClassVar[bool] = True
    by_length: ClassVar[bool] = True

    def __init__(self, cache: KVCache | QuantizedKVCache) -> None:
        self._cache = cache

    def can_drop(self, count: int) -> bool:
        """Return whether there are that many rows."""
        return count <= int(self._cache.offset)

    def drop(self, count: int) -> None:
        """Drop the last `count` rows; raises RollbackError where there are fewer."""
        if self._cache.trim(count) != count:
            raise RollbackError(f"a cache of fewer rows was to drop {count}")

    def save(self) -> int:
        """Return the length."""
        return int(self._cache.offset)

    def restore(self, saved: int) -> None:
        """Go back to a length."""
        self._cache.offset = saved
