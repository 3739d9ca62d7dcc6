"""The nodes of a draft that the rows of a pass over a tree are."""

from collections.abc import Sequence
from typing import TypeVar

from akunu_py.models.passes.trees import TreeRows
from akunu_py.values.types import Draft

_T = TypeVar("_T")
_Missing = TypeVar("_Missing")


class ArrangedTree:
    """The rows of a pass over nodes of a draft, with `last` in front where it is given."""

    def __init__(self, draft: Draft, nodes: Sequence[int], last: int | None = None) -> None:
        self._num_nodes = len(draft)
        self._start = 0 if last is None else 1
        self._row_of = {node: row for row, node in enumerate(nodes, start=self._start)}
        front = () if last is None else (last,)
        self.tokens = (*front, *(draft.tokens[node] for node in nodes))
        above = (self._row_of.get(draft.parents[node], self._start - 1) for node in nodes)
        self.rows = TreeRows((*(-1 for _ in front), *above))

    @classmethod
    def below(cls, draft: Draft, first: int) -> "ArrangedTree | None":
        """Return the rows of the nodes that remain once the first token is known.

        None where that token was not drafted.
        """
        below: set[int] = set()
        for node, (parent, token) in enumerate(zip(draft.parents, draft.tokens, strict=True)):
            if parent in below or (parent < 0 and token == first):
                below.add(node)
        return cls(draft, sorted(below)) if below else None

    def choices(self, found: Sequence[int]) -> list[int]:
        """Return the choice after each node of the draft, -1 for nodes without a row."""
        return self.by_node(found, -1)

    def by_node(self, found: Sequence[_T], missing: _Missing) -> list[_T | _Missing]:
        """Return what was found in each node's row, and `missing` for nodes without a row."""
        places = (self._row_of.get(node) for node in range(self._num_nodes))
        return [missing if row is None else found[row] for row in places]

    def rows_of(self, accepted: Sequence[int]) -> list[int]:
        """Return the rows that stay when these nodes, a path in order, are accepted."""
        return [*range(self._start), *(self._row_of[node] for node in accepted)]

    def tokens_along(self, row: int) -> tuple[int, ...]:
        """Return the tokens from the first row of a path to `row`."""
        return tuple(self.tokens[index] for index in self.rows.path(row))
