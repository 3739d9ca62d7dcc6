"""One pass over the rows of a tree, with its attention masks in place.

mlx-lm's models ask a cache for the mask (`create_attention_mask`, models/base.py), so a function of
the same name on the cache object is enough. The columns of a mask are the rows that the cache
returns in a pass over several rows: those before the pass in temporal order, then the pass's own.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import KVCache, QuantizedKVCache, RotatingKVCache

from akunu_py.models.rollback.caches import leaves
from akunu_py.models.rollback.parts import SinkCache
from akunu_py.models.tree.positions import RowPositions
from akunu_py.models.tree.rows import TreeRows
from akunu_py.system.errors import ContractError

MASKED = (KVCache, QuantizedKVCache, RotatingKVCache, SinkCache)
"""Kinds of caches with a mask. Exact types, since a subclass may return other columns."""

MakeMask = Callable[..., mx.array]


class TreeMasks:
    """The masks of one pass; layers with equal masks share the array."""

    def __init__(self, rows: TreeRows) -> None:
        self._rows = rows
        self._made: dict[tuple[int, int | None, int], mx.array] = {}
        # Lengths of the windows that layers asked for.
        self.windows: set[int] = set()

    def of(self, cache: Any) -> MakeMask:
        """Return a replacement for the cache's own `make_mask`.

        Raises ContractError for a kind of cache that is not in `MASKED`.
        """
        kind = type(cache)
        if kind not in MASKED:
            raise ContractError(f"there is no tree mask for a {kind.__name__}")
        size = int(cache.max_size) if kind in (RotatingKVCache, SinkCache) else None
        sinks = int(cache.keep) if kind is SinkCache else 0

        def make_mask(
            N: int,
            window_size: int | None = None,
            **_return_array: bool,  # always: the mask of a tree has no shorter form
        ) -> mx.array:
            if len(self._rows) != N:
                raise ContractError(f"a pass has {N} rows, its tree {len(self._rows)}")
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

    A row sees the `before` rows in the cache, its ancestors and itself. With a `window` it sees of
    these only the first `sinks` of the text and the last `window - sinks` by position.
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


class TreeForward:
    """Passes of one model over trees."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.positions = RowPositions(model)
        # Lengths of the sliding windows that its layers asked for in passes so far.
        self.windows: set[int] = set()

    def __call__(self, tokens: Sequence[int], rows: TreeRows, caches: Sequence[Any]) -> mx.array:
        """Return the logits [1, n, vocabulary] after each row; the caches take in n rows.

        Model and caches are restored once the pass is built, before it is computed. Raises any
        error of a model that does not accept such masks or positions.
        """
        masks = TreeMasks(rows)
        with ExitStack() as stack:
            for cache in leaves(caches):
                # An instance attribute, which hides the method of the class.
                stack.callback(vars(cache).pop, "make_mask", None)
                cache.make_mask = masks.of(cache)
            stack.enter_context(self.positions.at(mx.array(rows.depths)))
            logits: mx.array = self._model(mx.array(list(tokens))[None], cache=caches)
        self.windows |= masks.windows
        return logits
