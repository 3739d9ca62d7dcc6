"""Which cell to take: chosen on half of the sessions, judged on the other half.

The best of many cells on the items it was chosen by looks better than it is; the other half says
how much of that is left.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from akunu_py.bench.replay.results import REPORTED_HALF, TUNING_HALF
from akunu_py.bench.sweep.figures import CellFigures, Comparison, Cost, Figures, Traces, compare
from akunu_py.bench.sweep.grid import PLAIN, Cell
from akunu_py.bench.sweep.replayed import TraceOutcomes


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The cell that was best on one half, and its figures on the other.

    Attributes:
        best: the fastest cell on the half that chooses; of equal ones the first.
        chosen_speed: its speed there.
        figures: on the other half, of `best` and of all that it is compared with.
        comparisons: `best` against others on the other half.
        default: the cell that is taken where nobody says.

    """

    best: Cell
    chosen_speed: float
    figures: Mapping[Cell, CellFigures]
    comparisons: Mapping[Cell, Comparison]
    default: Cell

    @property
    def take(self) -> Cell:
        """The cell to take: the best one where it beats the default beyond the interval."""
        against = self.comparisons.get(self.default)
        return self.best if against is not None and against.is_better else self.default

    @property
    def words(self) -> str:
        """What to do, in a sentence or two."""
        best, default = self.best, self.default
        if best == default:
            return f"Keep the default, {default.options}: no cell of the grid is faster."
        against = self.comparisons[default]
        low, high = against.interval
        change = f"{against.ratio - 1:+.1%} ({low - 1:+.1%} to {high - 1:+.1%})"
        if not against.is_better:
            return (
                f"Keep the default, {default.options}: no cell is better beyond the interval. The "
                f"best one, {best.options}, does {change} on the half that did not choose it."
            )
        if best == PLAIN:
            return f"Do not draft, {best.options}: {change} against the default."
        slower = self.figures[best].speed_interval[1] < 1
        warning = " Plain decoding is faster still." if slower else ""
        return (
            f"Take {best.options}: {change} against the default, {default.options}, on the half "
            f"that did not choose it.{warning}"
        )


def recommend(
    traces: Traces,
    outcomes: Mapping[Cell, TraceOutcomes],
    cost: Cost,
    *,
    default: Cell,
    own: Mapping[str, Cell],
) -> Recommendation | None:
    """Choose a cell; None where one half has no item.

    `outcomes` holds cells in the order of preference, plain decoding and `default` among them;
    `own` maps drafters to their cells as they ship.
    """
    halves = {
        half: Figures(traces, lambda item, half=half: item.half == half)  # type: ignore[misc]
        for half in (TUNING_HALF, REPORTED_HALF)
    }
    if not all(half.num_items for half in halves.values()):
        return None
    plain = outcomes[PLAIN]
    speeds = {
        cell: halves[TUNING_HALF].of(found, plain, cost).speed for cell, found in outcomes.items()
    }
    best = max(speeds, key=lambda cell: speeds[cell])
    wanted = dict.fromkeys((best, default, own.get(best.drafter, best), PLAIN))
    # An interrupt may have come before a drafter's own settings.
    wanted = {cell: None for cell in wanted if cell in outcomes}
    figures = {cell: halves[REPORTED_HALF].of(outcomes[cell], plain, cost) for cell in wanted}
    return Recommendation(
        best=best,
        chosen_speed=speeds[best],
        figures=figures,
        comparisons={
            cell: compare(figures[best], other) for cell, other in figures.items() if cell != best
        },
        default=default,
    )
