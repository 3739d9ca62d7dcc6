"""A drafted tree, or what is left of it, as the rows of a pass."""

from collections.abc import Sequence

from akunu_py.draft_trees import subtree
from akunu_py.models.tree.rows import TreeRows
from akunu_py.types import Draft


class ArrangedTree:
    """The rows of a pass over nodes of a draft, `last` in front of them where one is given.

    Attributes:
        tokens: of the rows.
        rows: which of them follows which.

    """

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
        """Return the rows of the nodes that are left when the first token is known.

        None where it was not drafted.
        """
        for node, (parent, token) in enumerate(zip(draft.parents, draft.tokens, strict=True)):
            if parent < 0 and token == first:
                return cls(draft, subtree(draft, node))
        return None

    def choices(self, found: Sequence[int]) -> list[int]:
        """Return the choice after each node of the draft, -1 for those left out."""
        places = (self._row_of.get(node) for node in range(self._num_nodes))
        return [-1 if row is None else found[row] for row in places]

    def kept(self, accepted: Sequence[int]) -> list[int]:
        """Return the rows that stay when these nodes are accepted: a path, in order."""
        return [*range(self._start), *(self._row_of[node] for node in accepted)]

    def tokens_along(self, row: int) -> tuple[int, ...]:
        """Return the tokens from the first row of a path to `row`."""
        return tuple(self.tokens[index] for index in self.rows.path(row))
