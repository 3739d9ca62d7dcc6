"""Recommends a cell: chosen on half of the sessions, judged on the other half.

The best of many cells looks better than it is on the items that chose it; the other half gives an
unbiased figure. By default only cells whose replies must equal plain decoding's, and did, may be
chosen.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from akunu_lab.metrics import change_text, is_better
from akunu_lab.replay.cells import PLAIN, Cell
from akunu_lab.replay.results import (
    REPORTED_HALF,
    TUNING_HALF,
    Cost,
    Figures,
    Results,
    compare,
)
from akunu_lab.replay.trace_replays import Counts, Traces
from akunu_lab.study.values import Exactness
from akunu_py.api import Ratio

Recommendable = Literal["identical", "law", "any"]
"""Cells with the replies of plain decoding; also cells with other replies of the same law; or all
cells, even those that are not exact."""

_ALLOWED: Mapping[Recommendable, tuple[Exactness, ...]] = {
    "identical": ("stream",),
    "law": ("stream", "distribution"),
    "any": ("stream", "distribution", "none"),
}


def eligible_cells(
    counts: Counts, exactness: Mapping[Cell, Exactness], recommendable: Recommendable
) -> list[Cell]:
    """Return the cells that may be recommended, in their order; plain decoding always may.

    A cell whose replies must equal plain decoding's but differ may be recommended only if any
    cell may.
    """

    def differs(cell: Cell) -> bool:
        return any(item.identical is False for items in counts[cell].values() for item in items)

    return [
        cell
        for cell in counts
        if cell == PLAIN
        or (
            exactness[cell] in _ALLOWED[recommendable]
            and (recommendable == "any" or exactness[cell] != "stream" or not differs(cell))
        )
    ]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The cell that is best on one half, and its figures on the other."""

    best: Cell
    """The fastest eligible cell on the choosing half; among equals the first."""
    figures: Mapping[Cell, Figures]
    """Of `best` and the cells compared with it, on the other half."""
    comparisons: Mapping[Cell, Ratio]
    """`best` against the others there."""
    default: Cell
    default_may_be_taken: bool = True
    num_left_out: int = 0
    """Cells that are not eligible, but faster than `best` on the choosing half."""

    @property
    def take(self) -> Cell:
        """The recommended cell: the best one if it beats the default beyond the interval.

        The best one, too, if the default is not eligible.
        """
        if not self.default_may_be_taken:
            return self.best
        against = self.comparisons.get(self.default)
        return self.best if against is not None and is_better(against) else self.default

    @property
    def words(self) -> str:
        """The recommendation in a few sentences."""
        if not self.num_left_out:
            return self._advice
        number = f"{self.num_left_out} faster cell{'' if self.num_left_out == 1 else 's'}"
        return f"{self._advice} Not considered: {number} with other replies than plain decoding's."

    @property
    def _advice(self) -> str:
        best, default = self.best, self.default
        if not self.default_may_be_taken:
            return (
                f"Take {best.title}: the default, {default.options}, changed replies that have to "
                "stay the same."
            )
        if best == default:
            return f"Keep the default, {default.options}: no cell of the grid is faster."
        against = self.comparisons[default]
        change = change_text(against)
        if not is_better(against):
            return (
                f"Keep the default, {default.options}: no cell is better beyond the interval. The "
                f"best one, {best.title}, does {change} on the half that did not choose it."
            )
        if best == PLAIN:
            return f"Do not draft, {best.options}: {change} against the default."
        high = self.figures[best].speed.high
        warning = " Plain decoding is faster still." if high is not None and high < 1 else ""
        return (
            f"Take {best.title}: {change} against the default, {default.options}, on the half "
            f"that did not choose it.{warning}"
        )


def recommend(
    traces: Traces,
    counts: Counts,
    cost: Cost,
    *,
    default: Cell,
    own: Mapping[str, Cell],
    eligible: Collection[Cell] | None = None,
) -> Recommendation | None:
    """Choose a cell; None if one half has no item.

    `counts` holds cells in the order of preference, plain decoding and `default` among them; `own`
    maps drafters to their cells as they ship. `eligible` are the cells that may be recommended,
    plain decoding among them; None means all.
    """
    if {item.half for items in traces.values() for item in items} != {TUNING_HALF, REPORTED_HALF}:
        return None
    results = Results(traces, counts, cost, lambda item: item.half == REPORTED_HALF)
    speeds = {
        cell: results.log_speed(cell, lambda item: item.half == TUNING_HALF) for cell in counts
    }
    may = speeds.keys() if eligible is None else eligible
    best = max((cell for cell in speeds if cell in may), key=lambda cell: speeds[cell])
    # An interrupt may have come before the cell with a drafter's own settings.
    wanted = dict.fromkeys((best, default, own.get(best.drafter, best), PLAIN))
    figures = {
        cell: found
        for cell in wanted
        if cell in counts and (found := results.figures(cell)) is not None
    }
    return Recommendation(
        best=best,
        figures=figures,
        comparisons={
            cell: compare(figures[best], other) for cell, other in figures.items() if cell != best
        },
        default=default,
        default_may_be_taken=default in may,
        num_left_out=sum(speed > speeds[best] for cell, speed in speeds.items() if cell not in may),
    )
