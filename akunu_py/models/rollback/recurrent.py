"""ArraysCache: states of recurrent layers (Mamba, gated delta nets, RWKV) and short convolutions.

A state has taken its rows in; none can be taken out again. Models of mlx-lm put new arrays into the
cache at every pass and write into none, so references to the old ones are enough to go back.
"""

from typing import Any, ClassVar

from mlx_lm.models.cache import ArraysCache

from akunu_py.errors import RollbackError


class Recurrent:
    """Restored to the state before a pass; the rows to keep are fed again."""

    method: ClassVar[str] = "restore, feed again"
    drops_rows: ClassVar[bool] = False
    by_length: ClassVar[bool] = False

    def __init__(self, cache: ArraysCache) -> None:
        self._cache = cache

    def can_drop(self, count: int) -> bool:
        """Return whether there is nothing to do."""
        return count == 0

    def drop(self, count: int) -> None:
        """Raise RollbackError for any row."""
        if count:
            raise RollbackError(f"a recurrent state was to drop {count} rows")

    def save(self) -> list[Any]:
        """Return references to the arrays of the state."""
        return list(self._cache.cache)

    def restore(self, saved: list[Any]) -> None:
        """Put the arrays back; the list stays as it is, to be restored again."""
        self._cache.cache = list(saved)
