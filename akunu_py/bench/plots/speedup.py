"""Speedups, each with its interval."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from akunu_py.bench.plots.canvas import DARK, GREY, LIGHT, label, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Speedup:
    """One bar: a ratio of speeds, and `low`, `high` its 95 % interval."""

    name: str
    ratio: float
    low: float
    high: float


def draw(speedups: tuple[Speedup, ...], heading: str) -> "Figure":
    """Draw horizontal bars from 1; those that lose are pale and hatched; `heading`: of the axis."""
    figure, axes = new_figure(1.15 + 0.36 * len(speedups))
    places = range(len(speedups))
    for place, item in zip(places, speedups, strict=True):
        loses = item.ratio < 1
        axes.barh(
            place,
            item.ratio - 1,
            left=1,
            height=0.66,
            color=LIGHT if loses else DARK,
            edgecolor=DARK,
            hatch="////" if loses else None,
        )
        low, high = item.low, item.high
        # White under black: the line shows on the bar and beside it.
        for colour, width in (("white", 4.5), ("black", 1.6)):
            axes.plot([low, high], [place, place], color=colour, linewidth=width, zorder=3)
        for end in (low, high):
            axes.plot([end], [place], marker="|", color="black", markersize=8, zorder=3)
    right = max(1.0, *(item.high for item in speedups))
    left = min(1.0, *(item.low for item in speedups))
    span = max(right - left, 0.1)
    for place, item in zip(places, speedups, strict=True):
        axes.text(
            max(1.0, item.high) + 0.015 * span,
            place,
            f"{item.ratio:.2f}",
            va="center",
            fontsize=9,
        )
    axes.axvline(1, color=GREY, linewidth=1.2)
    axes.set_yticks(list(places), [label(item.name, 40) for item in speedups])
    axes.set_ylim(len(speedups) - 0.45, -0.55)
    axes.set_xlim(left - 0.04 * span, right + 0.12 * span)
    axes.set_xlabel(heading)
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    return figure
