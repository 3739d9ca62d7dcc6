"""Bars and lines: speedups, accepted tokens, acceptance by place, costs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from akunu_py.lab.plots.canvas import (
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
    from matplotlib.figure import Figure

_MOST_BARS = 24


@dataclass(frozen=True, slots=True)
class Speedup:
    """One bar: a ratio of speeds with its 95 % interval, `low` to `high`."""

    name: str
    ratio: float
    low: float
    high: float


def draw_speedups(speedups: tuple[Speedup, ...], heading: str) -> "Figure":
    """Draw horizontal bars from 1, pale and hatched below 1; `heading` is the axis label."""
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
        # Paper under ink: the line shows on the bar and beside it.
        for colour, width in ((PAPER, 4.5), (INK, 1.6)):
            axes.plot([low, high], [place, place], color=colour, linewidth=width, zorder=3)
        for end in (low, high):
            axes.plot([end], [place], marker="|", color=INK, markersize=8, zorder=3)
    right = max(1.0, *(item.high for item in speedups))
    left = min(1.0, *(item.low for item in speedups))
    span = max(right - left, 0.1)
    for place, item in zip(places, speedups, strict=True):
        axes.text(
            max(1.0, item.high) + 0.015 * span,
            place,
            f"{item.ratio:.2f}",
            va="center",
            fontsize=SMALL,
        )
    axes.axvline(1, color=GREY, linewidth=1.2)
    axes.set_yticks(list(places), [label(item.name, 26) for item in speedups])
    axes.set_ylim(len(speedups) - 0.45, -0.55)
    axes.set_xlim(left - 0.04 * span, right + 0.12 * span)
    axes.set_xlabel(heading, fontsize=SMALL)
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    return figure


@dataclass(frozen=True, slots=True)
class AcceptedTokens:
    """`passes[k]` passes with a draft accepted k of its tokens; `without_draft` had none."""

    passes: tuple[int, ...]
    without_draft: int


def draw_accepted(counts: AcceptedTokens) -> "Figure":
    """Draw shares of all passes by accepted tokens; one last bar has the tail."""
    figure, axes = new_figure(3.3)
    passes = list(counts.passes)
    names = [str(number) for number in range(len(passes))]
    if len(passes) > _MOST_BARS:
        passes = [*passes[: _MOST_BARS - 1], sum(passes[_MOST_BARS - 1 :])]
        names = [*names[: _MOST_BARS - 1], f"{_MOST_BARS - 1}+"]
    total = sum(passes) + counts.without_draft
    places = list(range(1, len(passes) + 1))
    drawn = [
        axes.bar(
            [0],
            [100 * counts.without_draft / total],
            width=0.8,
            color=LIGHT,
            edgecolor=DARK,
            hatch="////",
            label="passes without a draft",
        ),
        axes.bar(
            places,
            [100 * number / total for number in passes],
            width=0.8,
            color=DARK,
            edgecolor=DARK,
            label="passes with a draft",
        ),
    ]
    if len(passes) < 12:
        for bars in drawn:
            axes.bar_label(bars, fmt="%.0f", padding=2, fontsize=SMALL)
    step = max(1, -(-len(places) // 12))
    axes.set_xticks([0, *places[1::step]], ["none", *names[1::step]])
    axes.set_xlabel("drafted tokens that the pass accepted")
    axes.set_ylabel("% of all passes")
    axes.margins(y=0.12)
    axes.grid(axis="y")
    axes.tick_params(axis="x", length=0)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    return figure


@dataclass(frozen=True, slots=True)
class Positions:
    """Entry i: drafts that had a token at place i + 1, and those in which it was accepted."""

    drafted: tuple[int, ...]
    accepted: tuple[int, ...]


def draw_positions(positions: Positions) -> "Figure":
    """Draw the accepted share as a line, over bars for the drafts that reach each place."""
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
    # A line of paper below keeps the orange one visible where it crosses bars.
    axes.plot(places, shares, color=PAPER, linewidth=4)
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


def draw_costs(costs: Mapping[int, float]) -> "Figure":
    """Draw C(m) in plain steps, with the line on which each row costs a plain step."""
    figure, axes = new_figure(3.3)
    rows = sorted(costs)
    measured = [costs[number] for number in rows]
    first, last = rows[0], max(rows[-1], rows[0] + 1)
    scale = costs[first] / first
    axes.plot(
        [first, last],
        [scale * first, scale * last],
        color=GREY,
        linewidth=1.4,
        linestyle=(0, (5, 3)),
        label="each row at the price of the first",
    )
    axes.plot(
        rows,
        measured,
        color=DARK,
        linewidth=2,
        marker="o",
        markersize=6,
        markerfacecolor=MIDDLE,
        markeredgecolor=DARK,
        label="measured",
    )
    axes.set_ylim(0, max(1.25 * max(measured), 1.5))
    axes.set_xlabel("rows of the pass, m")
    axes.set_ylabel("C(m), in plain steps")
    axes.locator_params(axis="x", integer=True)
    axes.grid()
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    return figure
