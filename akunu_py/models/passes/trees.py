"""Rows that are a tree: which follows which, and what each sees of the others.

The columns of a mask are the rows that a cache returns in a pass over several rows: those before
the pass in temporal order, then the pass's own. The mask is SpecInfer's (Miao et al. 2023,
arXiv:2305.09781); a row's position is its depth.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import KVCache, QuantizedKVCache, RotatingKVCache
from numpy.typing import NDArray

from akunu_py.models.rollback.parts import SinkCache
from akunu_py.system.errors import ContractError
from akunu_py.values.types import Draft

_T = TypeVar("_T")

MASKED = (KVCache, QuantizedKVCache, RotatingKVCache, SinkCache)
"""Kinds of caches with a mask. Exact types, since a subclass may return other columns."""


class TreeRows:
    """Which row of a pass follows which.

    `parents[i]` is the row that row i follows, -1 for the last row in the caches; parents come
    before their children. A row's position in the text is the number of rows in the caches plus
    its depth.

    Raises ContractError for no rows and for parents out of order.
    """

    def __init__(self, parents: Sequence[int]) -> None:
        if not parents:
            raise ContractError("a pass over a tree has no rows")
        self.parents = tuple(parents)
        size = len(self.parents)
        # 0 for rows that directly follow the caches.
        self.depths: NDArray[np.int32] = np.zeros(size, np.int32)
        # [n, n], whether row j is row i or one of its ancestors.
        self.ancestors: NDArray[np.bool_] = np.eye(size, dtype=bool)
        for row, parent in enumerate(self.parents):
            if not -1 <= parent < row:
                raise ContractError(f"row {row} of a tree has the parent {parent}")
            if parent >= 0:
                self.depths[row] = self.depths[parent] + 1
                self.ancestors[row] |= self.ancestors[parent]

    def __len__(self) -> int:
        return len(self.parents)

    def path(self, row: int) -> tuple[int, ...]:
        """Return the rows from the root to `row`."""
        return tuple(int(index) for index in np.flatnonzero(self.ancestors[row]))

    def leaves(self) -> tuple[int, ...]:
        """Return the rows without children."""
        return tuple(sorted(set(range(len(self))) - set(self.parents)))


class DraftRows:
    """The rows of a pass over nodes of a draft, with `last` in front where it is given."""

    def __init__(self, draft: Draft, nodes: Sequence[int], last: int | None = None) -> None:
        self._num_nodes = len(draft)
        # Number of rows before those of nodes.
        self.start = 0 if last is None else 1
        self._row_of = {node: row for row, node in enumerate(nodes, start=self.start)}
        front = () if last is None else (last,)
        self.tokens = (*front, *(draft.tokens[node] for node in nodes))
        above = (self._row_of.get(draft.parents[node], self.start - 1) for node in nodes)
        self._parents = (*(-1 for _ in front), *above)
        chain = self._parents == tuple(range(-1, len(self.tokens) - 1))
        # None where each row follows the one before it.
        self.tree = None if chain else TreeRows(self._parents)

    @classmethod
    def below(cls, draft: Draft, first: int) -> "DraftRows | None":
        """Return the rows of the nodes that remain once the first token is known.

        None where that token was not drafted.
        """
        below: set[int] = set()
        for node, (parent, token) in enumerate(zip(draft.parents, draft.tokens, strict=True)):
            if parent in below or (parent < 0 and token == first):
                below.add(node)
        return cls(draft, sorted(below)) if below else None

    def by_node(self, found: Sequence[_T], missing: _T) -> list[_T]:
        """Return what was found in each node's row, and `missing` for nodes without a row."""
        places = (self._row_of.get(node) for node in range(self._num_nodes))
        return [missing if row is None else found[row] for row in places]

    def rows_of(self, accepted: Sequence[int]) -> list[int]:
        """Return the rows that stay when these nodes, a path in order, are accepted."""
        return [*range(self.start), *(self._row_of[node] for node in accepted)]

    def paths(self) -> list[tuple[int, ...]]:
        """Return, for each row, the tokens from the first row of its path to the row."""
        found: list[tuple[int, ...]] = []
        for token, parent in zip(self.tokens, self._parents, strict=True):
            found.append((token,) if parent < 0 else (*found[parent], token))
        return found


class TreeMasks:
    """The masks of one pass; layers with equal masks share the array."""

    def __init__(self, rows: TreeRows) -> None:
        self._rows = rows
        self._made: dict[tuple[int, int | None, int], mx.array] = {}
        # Lengths of the windows that layers asked for.
        self.windows: set[int] = set()

    def of(self, cache: Any, count: int, window_size: int | None = None) -> mx.array:
        """Return the mask of a pass over `count` rows, in place of the cache's own.

        Raises ContractError for a kind of cache that is not in `MASKED`.
        """
        kind = type(cache)
        if kind not in MASKED:
            raise ContractError(f"there is no tree mask for a {kind.__name__}")
        size = int(cache.max_size) if kind in (RotatingKVCache, SinkCache) else None
        sinks = int(cache.keep) if kind is SinkCache else 0
        if len(self._rows) != count:
            raise ContractError(f"a pass has {count} rows, its tree {len(self._rows)}")
        offset = int(cache.offset)
        before = offset if size is None else min(size - 1, offset)
        window = size if sinks else window_size or size
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
