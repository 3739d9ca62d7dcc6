"""The heat map of a sweep: a cell for each pair of settings."""

from typing import TYPE_CHECKING

from akunu_py.lab.plots.canvas import label, new_figure
from akunu_py.lab.sweep.heat_map import HeatMap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_NUMBERED_COLUMNS = 14
_MOST_LARGE_COLUMNS = 16
_MOST_LETTERS = 36
"""Most letters of a line with the names of columns and the longest name of a row; longer names are
set upright."""

_LONGEST_UPRIGHT = 24


def draw(grid: HeatMap) -> "Figure":
    """Draw cells from dark (low) to light (high) with their numbers; the best has a frame."""
    import numpy as np  # noqa: PLC0415
    from matplotlib.patches import Rectangle  # noqa: PLC0415

    cells = np.full((len(grid.rows), len(grid.columns)), np.nan)
    for (x, y), value in grid.values.items():
        cells[grid.rows.index(y), grid.columns.index(x)] = value
    figure, axes = new_figure(1.6 + 0.34 * len(grid.rows))
    # Lightness rises evenly in cividis, also in grey and for the colour-blind.
    image = axes.imshow(np.ma.masked_invalid(cells), cmap="cividis", aspect="auto")
    axes.set_facecolor("white")
    low, high = float(np.nanmin(cells)), float(np.nanmax(cells))
    numbered = len(grid.columns) <= _MOST_NUMBERED_COLUMNS
    for row in range(len(grid.rows)):
        for column in range(len(grid.columns)):
            value = cells[row, column]
            if np.isnan(value):
                axes.text(column, row, "–", ha="center", va="center", color="black")
            elif numbered:
                bright = high > low and (value - low) / (high - low) > 0.55
                axes.text(
                    column,
                    row,
                    f"{value:.3g}",
                    ha="center",
                    va="center",
                    fontsize=9,
                    color="black" if bright else "white",
                )
    best_row, best_column = divmod(int(np.nanargmax(cells)), len(grid.columns))
    for colour, width in (("white", 4.0), ("black", 2.0)):
        axes.add_patch(
            Rectangle(
                (best_column - 0.5, best_row - 0.5),
                1,
                1,
                fill=False,
                edgecolor=colour,
                linewidth=width,
                clip_on=False,
            )
        )
    names = [label(str(name), _LONGEST_UPRIGHT) for name in grid.columns]
    upright = sum(map(len, names)) > _MOST_LETTERS
    axes.set_xticks(
        range(len(names)),
        names,
        rotation=90 if upright else 0,
        fontsize=10 if len(names) <= _MOST_LARGE_COLUMNS else 6.5,
    )
    axes.set_yticks(range(len(grid.rows)), [label(str(name)) for name in grid.rows])
    axes.set_xlabel(label(grid.x_heading))
    axes.set_ylabel(label(grid.y_heading))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    figure.colorbar(image, ax=axes, label=label(grid.value_heading), fraction=0.05, pad=0.02)
    return figure
