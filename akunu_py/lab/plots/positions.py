"""Acceptance by the place of a token in its draft."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from akunu_py.lab.plots.canvas import DARK, LIGHT, MIDDLE, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Positions:
    """Entry i: drafts that had a token at place i + 1, and those in which it was accepted."""

    drafted: tuple[int, ...]
    accepted: tuple[int, ...]


def draw(positions: Positions) -> "Figure":
    """Draw the accepted share as a line over bars of how many drafts reached the place."""
    figure, axes = new_figure(3.3)
    places = list(range(1, len(positions.drafted) + 1))
    most = max(positions.drafted)
    axes.bar(
        places,
        [100 * number / most for number in positions.drafted],
        width=0.8,
        color=LIGHT,
        label=f"drafts this long, of {most:,}",
    )
    shares = [
        100 * accepted / drafted
        for accepted, drafted in zip(positions.accepted, positions.drafted, strict=True)
    ]
    # A white line below keeps the orange one visible where it crosses bars.
    axes.plot(places, shares, color="white", linewidth=4)
    axes.plot(
        places,
        shares,
        color=MIDDLE,
        linewidth=2,
        marker="o",
        markersize=6,
        markeredgecolor=DARK,
        label="accepted, of these",
    )
    step = max(1, -(-len(places) // 16))
    axes.set_xticks(places[::step])
    axes.set_xlim(0.4, max(len(places), 4) + 0.6)
    axes.set_ylim(0, 105)
    axes.set_xlabel("place in the draft")
    axes.set_ylabel("%")
    axes.grid(axis="y")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    return figure
