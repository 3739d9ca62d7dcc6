"""The cost of a pass over several positions, relative to a pass over one."""

import bisect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from akunu_py.system.errors import ConfigError

NOISE = 0.1
"""Share by which medians of the same pass differ from run to run on a busy machine."""


@dataclass(frozen=True)
class CostCurve:
    """C(m): the time of one pass over m positions, in passes over one position.

    Raises ConfigError for points that do not make a curve.
    """

    points: Mapping[int, float]
    """Rows -> cost, including 1 row. Costs are interpolated between points and continue with the
    slope of the last segment."""

    flat: tuple[int, int] | None = None
    """(from, until): costs do not rise between these numbers of positions, beyond the points."""

    stepped: bool = False
    """Whether the curve has the steps of a GPU's kernels, which measured costs will have, too."""

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
        """Return the cost of a pass over `rows` positions; C(1) is `points[1]`."""
        if self.flat is not None:
            begin, until = self.flat
            rows = rows - max(0, min(rows, until) - begin)
        if rows in self.points:
            return self.points[rows]
        if len(self._rows) == 1:
            return self.points[1]
        index = min(bisect.bisect_left(self._rows, rows), len(self._rows) - 1)
        low, high = self._rows[index - 1], self._rows[index]
        share = (rows - low) / (high - low)
        return self.points[low] + share * (self.points[high] - self.points[low])

    @staticmethod
    def least_confidence(cost: float, size: int) -> float | None:
        """Return the least probability of each token at which a whole draft pays; None: never.

        With probability p for each, a draft of n gains p + ... + p^n tokens and costs C(1 + n) - 1
        plain steps; a step of plain decoding gains one token. `cost` is C(1 + size).
        """
        if size < 1 or cost - 1 >= size:
            return None
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            brings = sum(middle**index for index in range(1, size + 1))
            low, high = (low, middle) if brings > cost - 1 else (middle, high)
        return high

    def share(self, low: int, rows: int, high: int) -> float:
        """Return where measured costs of `rows` positions lie between those of `low` and `high`.

        With steps a kernel for 5 to 8 positions is known by any of them; else costs rise evenly.
        """
        begin, end = (self.cost(low), self.cost(high)) if self.stepped else (0.0, 0.0)
        if end > begin:
            return (self.cost(rows) - begin) / (end - begin)
        return (rows - low) / (high - low)

    @property
    def by_rows(self) -> dict[str, float]:
        """The points with their positions as text, as JSON has it."""
        return {str(rows): self.points[rows] for rows in self._rows}

    def slopes(self, longest: int) -> list[float]:
        """Return, for k = 0 .. longest - 1, the least cost of a further token from there on.

        Entry k is the minimum over j > k of (C(1 + j) - C(1 + k)) / (j - k). While a token's
        probability is below lambda times it, no longer draft can pay.
        """
        costs = [self.cost(1 + k) for k in range(longest + 1)]

        def slope(k: int, j: int) -> float:
            return (costs[j] - costs[k]) / (j - k)

        found: list[float] = []
        # Corners of the lower convex hull of the points behind k, the nearest last.
        hull = [longest]
        for k in reversed(range(longest)):
            while len(hull) > 1 and slope(k, hull[-1]) >= slope(hull[-1], hull[-2]):
                hull.pop()
            found.append(slope(k, hull[-1]))
            hull.append(k)
        return found[::-1]

    def fall(self, noise: float = 0.0) -> tuple[int, int] | None:
        """Return the positions between which costs fall most, by a larger share than `noise`.

        None where no pass is that much cheaper than a pass over fewer positions.
        """
        lowest, found = 1 - noise, None
        peak = self._rows[0]
        for rows in self._rows:
            if self.points[rows] >= self.points[peak]:
                peak = rows
            elif self.points[rows] / self.points[peak] < lowest:
                lowest, found = self.points[rows] / self.points[peak], (peak, rows)
        return found

    @property
    def doubt(self) -> str:
        """What makes the curve implausible, such as "C(33) = 1.20 is below C(5) = 1.46"; or ""."""
        found = self.fall(NOISE)
        if found is None:
            return ""
        few, many = found
        return f"C({many}) = {self.points[many]:.2f} is below C({few}) = {self.points[few]:.2f}"
