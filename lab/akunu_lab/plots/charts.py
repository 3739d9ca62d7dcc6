"""Bars and lines: speedups, accepted tokens, acceptance by place, costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from akunu_lab.plots.canvas import (
    DARK,
    GREY,
    INK,
    LIGHT,
    MIDDLE,
    PAPER,
    SMALL,
    label,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT = 3.3
_MOST_BARS = 24
_MOST_TICKS = 12
_HATCHED: dict[str, Any] = {"color": LIGHT, "edgecolor": DARK, "hatch": "////"}
_FULL: dict[str, Any] = {"color": DARK, "edgecolor": DARK}
_DOTTED: dict[str, Any] = {"linewidth": 2, "marker": "o", "markersize": 6, "markeredgecolor": DARK}


@dataclass(frozen=True, slots=True)
class Speedup:
    """One bar: a ratio of speeds with its 95 % interval, `low` to `high`."""

    name: str
    ratio: float
    low: float
    high: float


def draw_speedups(speedups: Sequence[Speedup], heading: str) -> "Figure":
    """Draw horizontal bars from 1, pale and hatched below 1; `heading` is the axis label."""
    figure, axes = new_figure(1.15 + 0.36 * len(speedups))
    right = max(1.0, *(item.high for item in speedups))
    left = min(1.0, *(item.low for item in speedups))
    span = max(right - left, 0.1)
    for place, item in enumerate(speedups):
        look = _HATCHED if item.ratio < 1 else _FULL
        axes.barh(place, item.ratio - 1, left=1, height=0.66, **look)
        ends = [item.low, item.high]
        # Paper under ink: the line shows on the bar and beside it.
        for colour, width in ((PAPER, 4.5), (INK, 1.6)):
            axes.plot(ends, [place, place], color=colour, linewidth=width, zorder=3)
        axes.plot(ends, [place, place], "|", color=INK, markersize=8, zorder=3)
        beside = max(1.0, item.high) + 0.015 * span
        axes.text(beside, place, f"{item.ratio:.2f}", va="center", fontsize=SMALL)
    axes.axvline(1, color=GREY, linewidth=1.2)
    axes.set_yticks(range(len(speedups)), [label(item.name, 26) for item in speedups])
    axes.set_ylim(len(speedups) - 0.45, -0.55)
    axes.set_xlim(left - 0.04 * span, right + 0.12 * span)
    axes.set_xlabel(heading, fontsize=SMALL)
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    return figure


def draw_accepted(with_draft: Sequence[int], without_draft: int) -> "Figure":
    """Draw shares of all passes by accepted tokens; one last bar has the tail.

    `with_draft[k]` passes accepted k tokens of their draft; `without_draft` passes had none.
    """
    figure, axes = new_figure(_HEIGHT)
    passes = list(with_draft)
    names = [str(number) for number in range(len(passes))]
    if len(passes) > _MOST_BARS:
        passes[_MOST_BARS - 1 :] = [sum(passes[_MOST_BARS - 1 :])]
        names[_MOST_BARS - 1 :] = [f"{_MOST_BARS - 1}+"]
    percent = 100 / (sum(passes) + without_draft)
    places = range(1, len(passes) + 1)
    shares = [percent * number for number in passes]
    drawn = [
        axes.bar([0], [percent * without_draft], label="passes without a draft", **_HATCHED),
        axes.bar(places, shares, label="passes with a draft", **_FULL),
    ]
    if len(passes) < _MOST_TICKS:
        for bars in drawn:
            axes.bar_label(bars, fmt="%.0f", padding=2, fontsize=SMALL)
    step = _step(len(places), _MOST_TICKS)
    # Where ticks are close, "none" covers that of 0.
    first = int(step > 1)
    axes.set_xticks([0, *places[first::step]], ["none", *names[first::step]])
    axes.set_xlabel("drafted tokens that the pass accepted")
    axes.set_ylabel("% of all passes")
    axes.margins(y=0.12)
    axes.grid(axis="y")
    axes.tick_params(axis="x", length=0)
    _legend_above(axes)
    return figure


def draw_positions(drafted: Sequence[int], accepted: Sequence[int]) -> "Figure":
    """Draw the accepted share as a line, over bars for the drafts that reach each place.

    Entry i: drafts that had a token at place i + 1, and those in which it was accepted.
    """
    figure, axes = new_figure(_HEIGHT)
    places = range(1, len(drafted) + 1)
    most = max(drafted)
    reached = [100 * number / most for number in drafted]
    axes.bar(places, reached, color=LIGHT, label=f"drafts this long, of {most:,}")
    shares = [100 * right / number for right, number in zip(accepted, drafted, strict=True)]
    # A line of paper below keeps the orange one visible where it crosses bars.
    axes.plot(places, shares, color=PAPER, linewidth=4)
    axes.plot(places, shares, color=MIDDLE, label="accepted, of these", **_DOTTED)
    axes.set_xticks(places[:: _step(len(places), 16)])
    axes.set_xlim(0.4, max(len(places), 4) + 0.6)
    axes.set_ylim(0, 105)
    axes.set_xlabel("place in the draft")
    axes.set_ylabel("%")
    axes.grid(axis="y")
    _legend_above(axes)
    return figure


def draw_costs(costs: Mapping[int, float]) -> "Figure":
    """Draw C(m) in plain steps, with the line on which each row costs a plain step."""
    figure, axes = new_figure(_HEIGHT)
    rows = sorted(costs)
    measured = [costs[number] for number in rows]
    ends = [rows[0], max(rows[-1], rows[0] + 1)]
    axes.plot(
        ends,
        [costs[rows[0]] * end / rows[0] for end in ends],
        color=GREY,
        linewidth=1.4,
        linestyle=(0, (5, 3)),
        label="each row at the price of the first",
    )
    axes.plot(rows, measured, color=DARK, label="measured", markerfacecolor=MIDDLE, **_DOTTED)
    axes.set_ylim(0, max(1.25 * max(measured), 1.5))
    axes.set_xlabel("rows of the pass, m")
    axes.set_ylabel("C(m), in plain steps")
    axes.locator_params(axis="x", integer=True)
    axes.grid()
    _legend_above(axes)
    return figure


def _step(size: int, most: int) -> int:
    """Return the distance of ticks of which `most` fit."""
    return max(1, -(-size // most))


def _legend_above(axes: "Axes") -> None:
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
