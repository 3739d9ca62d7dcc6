"""Attention masks of a tree.

mlx-lm's models ask a cache for the mask (`create_attention_mask`, models/base.py), so a function of
the same name on the cache object is all it takes. Columns are the rows that the cache returns in a
pass over several rows: those before the pass in temporal order, then the pass's own.
"""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import KVCache, QuantizedKVCache, RotatingKVCache

from akunu_py.errors import ContractError
from akunu_py.models.rollback.rotating import SinkCache
from akunu_py.models.tree.rows import TreeRows

MASKED = (KVCache, QuantizedKVCache, RotatingKVCache, SinkCache)
"""Kinds of caches there is a mask for. Exact types: a subclass may return other columns."""

MakeMask = Callable[..., mx.array]


class TreeMasks:
    """The masks of one pass; layers that ask for the same one share the array.

    Attributes:
        windows: lengths of the windows that layers asked for.

    """

    def __init__(self, rows: TreeRows) -> None:
        self._rows = rows
        self._made: dict[tuple[int, int | None, int], mx.array] = {}
        self.windows: set[int] = set()

    def of(self, cache: Any) -> MakeMask:
        """Return the function to stand in for the cache's own `make_mask`.

        Raises ContractError for a cache of a kind not in `MASKED`.
        """
        kind = type(cache)
        if kind not in MASKED:
            raise ContractError(f"there is no mask of a tree for a {kind.__name__}")
        size = int(cache.max_size) if kind in (RotatingKVCache, SinkCache) else None
        sinks = int(cache.keep) if kind is SinkCache else 0

        def make_mask(
            N: int,  # noqa: N803 - mlx-lm's name for it
            window_size: int | None = None,
            return_array: bool = False,  # noqa: ARG001 - a tree always needs the array
        ) -> mx.array:
            if len(self._rows) != N:
                raise ContractError(f"a pass over {N} rows of a tree of {len(self._rows)}")
            offset = int(cache.offset)
            before = offset if size is None else min(size - 1, offset)
            window = size if sinks else window_size or size
            return self._mask(before, window, sinks)

        return make_mask

    def _mask(self, before: int, window: int | None, sinks: int) -> mx.array:
        if window is not None:
            self.windows.add(window)
        key = (before, window, sinks)
        if key not in self._made:
            self._made[key] = tree_mask(self._rows, before, window, sinks)
        return self._made[key]


def tree_mask(rows: TreeRows, before: int, window: int | None = None, sinks: int = 0) -> mx.array:
    """Return which columns each row sees, bool [n, before + n].

    A row sees the `before` rows in the cache, its ancestors and itself; of these, with a `window`,
    the first `sinks` of the text and the last `window - sinks` by position.
    """
    depths = mx.array(rows.depths)
    seen = mx.concatenate(
        [mx.ones((len(rows), before), dtype=mx.bool_), mx.array(rows.ancestors)], axis=1
    )
    if window is None:
        return seen
    columns = mx.concatenate([mx.arange(before, dtype=mx.int32), before + depths])[None]
    recent = columns > (before + depths - (window - sinks))[:, None]
    return seen & (recent | (columns < sinks))
