"""How many drafted tokens a pass accepted."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from akunu_py.lab.plots.canvas import DARK, LIGHT, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_BARS = 24


@dataclass(frozen=True, slots=True)
class AcceptedTokens:
    """`passes[k]` passes with a draft accepted k of its tokens; `without_draft` had none."""

    passes: tuple[int, ...]
    without_draft: int


def draw(counts: AcceptedTokens) -> "Figure":
    """Draw shares of all passes by accepted tokens; long tails go into one last bar."""
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
            axes.bar_label(bars, fmt="%.0f", padding=2, fontsize=9)
    axes.set_xticks([0, *places], ["none", *names])
    axes.set_xlabel("drafted tokens that the pass accepted")
    axes.set_ylabel("% of all passes")
    axes.margins(y=0.12)
    axes.grid(axis="y")
    axes.tick_params(axis="x", length=0)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    return figure
