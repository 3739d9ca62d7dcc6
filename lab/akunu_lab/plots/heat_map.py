"""Speeds by two settings: a cell for each pair, orange below 1 and blue above."""

from typing import TYPE_CHECKING

from akunu_lab.plots.canvas import GREY, INK, PAPER, SHADES, SMALL, WIDTH, label
from akunu_lab.sweep.heat_map import HeatMap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_COLUMNS = 9
"""More make a picture wider than others."""

_MOST_NUMBERED_COLUMNS = 20
_MOST_LETTERS = 30
"""Letters that names of columns may have in all beside each other, the longest names of rows left
of them; more are set upright."""

_LONGEST_UPRIGHT = 24


def draw(grid: HeatMap) -> "Figure":
    """Draw cells with their numbers, a frame around the best of each row, and the key."""
    from matplotlib.figure import Figure

    rows, width = len(grid.rows), WIDTH
    if is_wide(grid):
        width += 0.5 * (min(len(grid.columns), _MOST_NUMBERED_COLUMNS) - _MOST_COLUMNS)
    figure = Figure(figsize=(width, 2.2 + 0.36 * rows), layout="constrained")
    axes, key = figure.subplots(2, 1, height_ratios=(max(rows, 3), 0.6))
    _draw_cells(axes, grid)
    _name_axes(axes, grid)
    _draw_key(key, grid)
    return figure


def is_wide(grid: HeatMap) -> bool:
    """Return whether the picture has more columns than fit the width of others."""
    return len(grid.columns) > _MOST_COLUMNS


def _draw_cells(axes: "Axes", grid: HeatMap) -> None:
    from matplotlib.patches import Rectangle

    numbered = len(grid.columns) <= _MOST_NUMBERED_COLUMNS
    for row, y in enumerate(grid.rows):
        best = grid.best_of(y)
        for column, x in enumerate(grid.columns):
            value = grid.values.get((x, y))
            if value is None:
                axes.text(column, row, "–", ha="center", va="center", color=GREY)
                continue
            shade, is_best = grid.shade(value), value == best
            axes.add_patch(
                Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=SHADES[shade], edgecolor=PAPER)
            )
            if is_best:
                axes.add_patch(
                    Rectangle(
                        (column - 0.44, row - 0.42), 0.88, 0.84,
                        fill=False, edgecolor=_ink(shade), linewidth=1.6,
                    )
                )  # fmt: skip
            if numbered:
                axes.text(
                    column, row, f"{value:.2f}" if value < 10 else f"{value:.3g}",
                    ha="center", va="center", fontsize=SMALL, color=_ink(shade),
                    fontweight="bold" if is_best else "normal",
                )  # fmt: skip
    axes.set_xlim(-0.5, len(grid.columns) - 0.5)
    axes.set_ylim(len(grid.rows) - 0.5, -0.5)


def _ink(shade: int) -> str:
    return PAPER if shade in {0, len(SHADES) - 1} else INK


def _name_axes(axes: "Axes", grid: HeatMap) -> None:
    names = [label(str(name), _LONGEST_UPRIGHT) for name in grid.columns]
    upright = sum(map(len, names)) > _MOST_LETTERS
    axes.set_xticks(
        range(len(names)),
        names,
        rotation=90 if upright else 0,
        fontsize=SMALL if len(names) <= _MOST_NUMBERED_COLUMNS else 0.6 * SMALL,
    )
    axes.set_yticks(range(len(grid.rows)), [label(str(name), 20) for name in grid.rows])
    axes.set_xlabel(label(grid.x_heading))
    axes.set_ylabel(label(grid.y_heading))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _draw_key(axes: "Axes", grid: HeatMap) -> None:
    """Draw the shades with the speeds at which they begin, 1 in the middle."""
    from matplotlib.patches import Rectangle

    middle = len(SHADES) // 2
    shades = [shade for place, shade in enumerate(SHADES) if place != middle]
    for place, shade in enumerate(shades):
        axes.add_patch(Rectangle((place, 0), 1, 1, facecolor=shade, edgecolor=PAPER))
    # Each other bound: all of them leave no room between the numbers.
    places = range(0, len(shades) + 1, 2)
    bounds = [f"{grid.bound(place - middle):.2g}" for place in places]
    axes.set_xticks(places, bounds, fontsize=SMALL)
    axes.set_xlim(-2, len(shades) + 2)
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    axes.set_xlabel(f"{label(grid.value_heading)}; 1 is plain decoding", fontsize=SMALL)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
