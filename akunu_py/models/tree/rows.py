"""The rows of a pass over a tree."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from akunu_py.errors import ContractError


class TreeRows:
    """Which row of a pass follows which.

    `parents[i]` is the row that row i follows, -1 for the last row in the caches; parents come
    before their children. A row's position in the text is that of the first row the caches lack,
    plus its depth.

    Raises ContractError for no rows and for parents out of order.

    Attributes:
        parents: as given.
        depths: int32 [n]; 0 for rows that follow the caches.
        ancestors: bool [n, n]; whether row i sees row j of the pass: its ancestors and itself.

    """

    def __init__(self, parents: Sequence[int]) -> None:
        if not parents:
            raise ContractError("a pass over a tree has no rows")
        self.parents = tuple(parents)
        size = len(self.parents)
        self.depths: NDArray[np.int32] = np.zeros(size, np.int32)
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

    @property
    def is_chain(self) -> bool:
        """Whether every row follows the one before it."""
        return self.parents == tuple(range(-1, len(self) - 1))

    def leaves(self) -> tuple[int, ...]:
        """Return the rows that no other follows."""
        return tuple(sorted(set(range(len(self))) - set(self.parents)))
