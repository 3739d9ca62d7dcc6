"""The drafts that pay on this machine, by the measured costs of passes."""

from collections.abc import Callable
from dataclasses import dataclass

from akunu_py.bench.environment import Environment
from akunu_py.bench.measured_model import Model
from akunu_py.decoding.acceptance import match_for
from akunu_py.engine.engine import Engine
from akunu_py.models.cached_rows import BLOCK_ROWS
from akunu_py.models.device import may_choose_products
from akunu_py.models.pass_times import PassTimes
from akunu_py.values.cost_curve import CostCurve

_STRIDE = 7919
"""A prime step between ids, so that they are far apart as in a text."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """Measured costs, and the drafts that pay at these costs."""

    times: PassTimes
    model: Model
    environment: Environment
    reproducible: bool
    products: tuple[tuple[str, str], ...] = ()
    """On Metal, who computes few rows of each shape, and the costs, in words."""

    def least_confidence(self, size: int) -> float | None:
        """Return the least probability of each token at which a whole draft pays; None: never."""
        cost = self.times.costs.get(size + 1)
        return None if cost is None else CostCurve.least_confidence(cost, size)

    def least_confidence_up_to(self, size: int) -> float | None:
        """Return the least confidence at which some draft of at most `size` tokens pays."""
        return self._least([rows - 1 for rows in self.times.costs if 1 < rows <= size + 1])

    def least_confidence_beyond(self, size: int) -> float | None:
        """Return the least confidence at which some draft of more than `size` tokens pays."""
        return self._least([rows - 1 for rows in self.times.costs if rows > size + 1])

    def _least(self, sizes: list[int]) -> float | None:
        found = [least for size in sizes if (least := self.least_confidence(size)) is not None]
        return min(found, default=None)

    def match_for(self, confidence: float) -> int | None:
        """Return the shortest match whose prior confidence is at least this."""
        return match_for(confidence)

    @property
    def reproducible_cost(self) -> float | None:
        """Cost of a plain step of a reproducible engine, in plain steps of this one."""
        return self.times.costs.get(BLOCK_ROWS)


def run_tuning(
    engine: Engine,
    *,
    context_tokens: int = 128,
    repeats: int = 7,
    progress: Callable[[int, int], None] | None = None,
) -> Tuning:
    """Measure the cost of passes after a prompt of this many tokens; the engine remembers it.

    Raises ContextOverflowError for a prompt that does not fit.
    """
    prompt = [index * _STRIDE % engine.vocabulary_size for index in range(context_tokens)]
    environment = Environment.current()  # with the load of others alone
    times = engine.tune(prompt, repeats=repeats, progress=progress)
    return Tuning(
        times, Model.of(engine.description, engine.context), environment, engine.reproducible,
        engine.description.products,
    )  # fmt: skip


def race_anew() -> None:
    """On Metal, have the products of the next model's shapes race again."""
    if may_choose_products():
        from akunu_py.models.metal.choice import forget_races

        forget_races()
