"""The cost of a pass over several rows, relative to a pass over one."""

import bisect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from akunu_py.errors import ConfigError


@dataclass(frozen=True)
class CostCurve:
    """C(m): the time of one pass over m rows, in passes over one row.

    Attributes:
        points: rows -> cost, including 1 row. Costs are interpolated between points and continue
            with the slope of the last segment.
        flat: (from, until): costs do not rise between these numbers of rows, beyond the points.

    Raises ConfigError for points that do not make a curve.

    """

    points: Mapping[int, float]
    flat: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        sound = all(
            isinstance(rows, int) and rows >= 1 and math.isfinite(cost) and cost > 0
            for rows, cost in self.points.items()
        )
        if not sound or 1 not in self.points:
            raise ConfigError(
                "a cost curve needs positive costs for whole numbers of rows, including 1, not "
                f"{dict(self.points)!r}"
            )

    @cached_property
    def _rows(self) -> list[int]:
        return sorted(self.points)

    def cost(self, rows: int) -> float:
        """Return the cost of a pass over `rows` rows; C(1) is `points[1]`."""
        if self.flat is not None:
            begin, until = self.flat
            rows = rows - max(0, min(rows, until) - begin)
        index = bisect.bisect_left(self._rows, rows)
        if index < len(self._rows) and self._rows[index] == rows:
            return self.points[rows]
        if len(self._rows) == 1:
            return self.points[1]
        index = min(index, len(self._rows) - 1)
        low, high = self._rows[index - 1], self._rows[index]
        share = (rows - low) / (high - low)
        return self.points[low] + share * (self.points[high] - self.points[low])

    def slopes(self, longest: int) -> list[float]:
        """Return, for k = 0 .. longest - 1, the least cost of a further token from there on.

        Entry k is the minimum over j > k of (C(1 + j) - C(1 + k)) / (j - k). While a token's
        probability is below lambda times it, no longer draft can pay.
        """
        costs = [self.cost(1 + k) for k in range(longest + 1)]
        return [
            min((costs[j] - costs[k]) / (j - k) for j in range(k + 1, longest + 1))
            for k in range(longest)
        ]

    @property
    def rises(self) -> bool:
        """Whether no pass is cheaper than one over fewer rows."""
        return all(self.points[a] <= self.points[b] for a, b in pairwise(self._rows))
