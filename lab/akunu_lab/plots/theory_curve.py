"""Measured speedups next to the prediction of theorem 3.8 of Leviathan et al. 2023.

arXiv:2211.17192. The theorem assumes that a pass over several rows costs as much as a pass over
one. If the machine's costs are known, a second curve uses them instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
from akunu_lab.theory import expected_tokens, walltime_factor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = "osD^vP*Xp<>h"
_FILLS = (MIDDLE, LIGHT, DARK, PAPER)
_STEPS = 200


@dataclass(frozen=True, slots=True)
class Promise:
    """What the theorem promises, and what was measured."""

    points: Mapping[str, tuple[float, float]]
    """Of each category the acceptance (alpha, 0 to 1) and the measured speedup."""

    num_draft_tokens: int
    """gamma of the theorem."""

    draft_cost: float = 0.0
    """c: the drafter's time a token, in plain steps."""

    pass_cost: float | None = None
    """C(gamma + 1) in plain steps; None if it was not measured."""


def draw(promise: Promise) -> "Figure":
    """Draw the curves and the points, each with a marker and fill of its own."""
    figure, axes = new_figure(3.4 + 0.16 * len(promise.points))
    gamma, cost = promise.num_draft_tokens, promise.draft_cost
    alphas = [step / _STEPS for step in range(_STEPS + 1)]
    promised = [walltime_factor(alpha, gamma, cost) for alpha in alphas]
    name = f"theorem 3.8, γ = {gamma}, c = {cost:.2g}"
    axes.plot(alphas, promised, color=DARK, linewidth=2, label=name)
    if promise.pass_cost is not None:
        price = promise.pass_cost + gamma * cost
        promised = [expected_tokens(alpha, gamma) / price for alpha in alphas]
        name = f"with C({gamma + 1}) = {promise.pass_cost:.2f}"
        axes.plot(alphas, promised, color=MIDDLE, linewidth=2, linestyle=(0, (5, 2)), label=name)
    axes.axhline(1, color=GREY, linewidth=1.2)
    for number, (name, (alpha, speedup)) in enumerate(promise.points.items()):
        axes.plot(
            [alpha],
            [speedup],
            _MARKERS[number % len(_MARKERS)],
            markersize=9,
            markerfacecolor=_FILLS[number % len(_FILLS)],
            markeredgecolor=INK,
            label=label(name, 24),
            zorder=3,
        )
    axes.set_xlim(0, 1.02)
    # The curve leaves the picture near 1, where no point is.
    axes.set_ylim(0, max(2.0, *(1.4 * speedup for _, speedup in promise.points.values())))
    axes.set_xlabel("acceptance of a tested token, alpha")
    axes.set_ylabel("speedup")
    axes.grid()
    # Below the axes: points may lie anywhere in them.
    figure.legend(loc="outside lower left", ncols=2, fontsize=SMALL)
    return figure
