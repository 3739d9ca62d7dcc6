"""Caches that have taken their rows in, and give none back: states, and compressed context.

`ArraysCache` holds the states of recurrent layers (Mamba, gated delta nets, RWKV) and of short
convolutions; DeepSeek V4.1's `LayerCache` a window, and one row for each closed group of earlier
ones. Models of mlx-lm put new arrays into both at every pass and write into none, so references to
the old ones are enough to go back.
"""

from typing import Any, ClassVar

from mlx_lm.models.cache import ArraysCache

from akunu_py.errors import RollbackError


class _Restored:
    """Restored to what it was before a pass; the rows to keep are fed again."""

    method: ClassVar[str] = "restore, feed again"
    drops_rows: ClassVar[bool] = False
    by_length: ClassVar[bool] = False

    def can_drop(self, count: int) -> bool:
        """Return whether there is nothing to do."""
        return count == 0

    def drop(self, count: int) -> None:
        """Raise RollbackError for any row."""
        if count:
            raise RollbackError(f"a recurrent state was to drop {count} rows")


class Recurrent(_Restored):
    """An `ArraysCache`; what else it has is for batches."""

    def __init__(self, cache: ArraysCache) -> None:
        self._cache = cache

    def save(self) -> list[Any]:
        """Return references to the arrays of the state."""
        return list(self._cache.cache)

    def restore(self, saved: list[Any]) -> None:
        """Put the arrays back; the list stays as it is, to be restored again."""
        self._cache.cache = list(saved)


class Compressed(_Restored):
    """DeepSeek V4.1's `LayerCache`: every attribute is an array, None or a number."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def save(self) -> dict[str, Any]:
        """Return references to all that the cache holds."""
        return dict(vars(self._cache))

    def restore(self, saved: dict[str, Any]) -> None:
        """Put all of it back; what was saved stays as it is, to be restored again."""
        vars(self._cache).update(saved)
