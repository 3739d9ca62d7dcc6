"""Keys and values of a session's rows, for a drafter whose layers attend to them."""

from collections.abc import Callable

import mlx.core as mx
from mlx_lm.models.cache import KVCache, RotatingKVCache

from akunu_py.models.cache import Cache
from akunu_py.models.cached_rows import CachedRows
from akunu_py.models.rollback import rows_in_order
from akunu_py.system.errors import ConfigError


class SessionRows:
    """Reads the rows that a session holds now; the `KeptRows` of its drafter.

    Nothing is copied or kept: caches are the only place that knows what was rolled back, reused and
    exchanged. They may hold more rows than the text has, such as the row of a step in flight, or
    padding; those lie behind the rows that are asked for.
    """

    def __init__(self, rows: Callable[[], CachedRows]) -> None:
        """Make a reader; `rows` returns the rows that the session holds when it is called."""
        self._rows = rows

    def read(
        self, cache: int, end: int, most: int | None = None
    ) -> tuple[mx.array, mx.array] | None:
        """Return keys and values; see `akunu_py.protocols.KeptRows`.

        Raises ConfigError for a cache of another kind.
        """
        rows = self._rows()
        held = rows.caches[cache]
        if not rows.settled or not 0 < end <= int(held.offset):
            return None
        keys, values = _arrays(held)
        stop = keys.shape[2] - (int(held.offset) - end)
        start = 0 if most is None else max(0, stop - most)
        return keys[..., start:stop, :], values[..., start:stop, :]


def _arrays(cache: Cache) -> tuple[mx.array, mx.array]:
    """Return keys and values whose last row is the last one that was fed."""
    if type(cache) is KVCache:
        return cache.keys[..., : cache.offset, :], cache.values[..., : cache.offset, :]
    if type(cache) is RotatingKVCache and cache.keep == 0:
        return rows_in_order(cache)
    raise ConfigError(
        f"the prediction head cannot read the rows in a {type(cache).__name__}; leave heads out"
    )
