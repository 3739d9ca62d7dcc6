"""What a pass over several rows costs on the machine that was measured."""

from typing import TYPE_CHECKING

from akunu_py.lab.plots.canvas import DARK, GREY, MIDDLE, new_figure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure


def draw(costs: "Mapping[int, float]") -> "Figure":
    """Draw C(m), rows to cost in plain steps, with the line at which rows would cost full price."""
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
