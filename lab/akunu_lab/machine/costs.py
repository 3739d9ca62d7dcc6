"""The part "costs": what passes cost by their rows, and from when drafts pay."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from akunu_lab.machine.planning import FEWEST_ROUNDS, CannotBeMeasuredError, PartRun, Subject
from akunu_lab.machine.report import PartFigures
from akunu_lab.machine.traffic import copy_bandwidth, step_bytes
from akunu_py.api import ContextOverflowError, CostCurve, Ratio

_CONTEXT_TOKENS = 128
_STRIDE = 7919
"""A prime step between ids, so that they are far apart as in a text."""
_DRAFTS = (1, 4, 16)
"""Lengths of the drafts in the summary; the table has all."""


@dataclass(frozen=True, slots=True)
class SizeCost:
    """The cost of a pass over `rows` in plain steps, and when drafts of one token less pay.

    `pass_s` is the median of the measured seconds, `low` and `high` are the ends of the cost's 95 %
    interval. `pays_from` is the probability that each token needs so that the whole draft pays,
    with those at both ends; None: it never pays. All but the seconds are None if there were too few
    rounds for an interval.
    """

    rows: int
    pass_s: float
    cost: float | None
    low: float | None
    high: float | None
    pays_from: float | None
    pays_from_low: float | None
    pays_from_high: float | None

    @classmethod
    def of(cls, rows: int, taken: Sequence[float], plain_s: Sequence[float]) -> "SizeCost":
        """Return the cost of passes with an interval from resampled rounds.

        A round has one pass of each size and its own plain steps, so what slows a machine for a
        while slows both.
        """
        found = Ratio(None, None, None, len(taken))
        if len(taken) >= Ratio.LEAST_SESSIONS and not len(plain_s) % len(taken):
            rounds = np.array(plain_s).reshape(len(taken), -1)
            weights = Ratio.weights([str(number) for number in range(len(taken))], name="costs")
            drawn = weights.astype(np.int64)
            found = Ratio.estimate(
                [
                    np.median(np.repeat(taken, own)) / np.median(np.repeat(rounds, own, axis=0))
                    for own in drawn
                ],
                len(taken),
            )
        pays = [
            None if cost is None else CostCurve.least_confidence(cost, rows - 1)
            for cost in (found.ratio, found.low, found.high)
        ]
        return cls(rows, float(np.median(taken)), found.ratio, found.low, found.high, *pays)


def _probability(least: float | None) -> str:
    return "never" if least is None else f"{least:.0%}"


@dataclass(frozen=True, slots=True)
class CostFigures(PartFigures):
    """Costs of passes by number of rows."""

    section = "What does a pass cost?"
    explanation = (
        "The *cost* of a pass is its time divided by that of a *plain step* of decoding, which "
        "gives one token; times are medians of the rounds. A draft saves time if it brings more "
        "tokens than its pass costs: it *pays from* the probability with which each of its tokens "
        "must then be right, and never without one. A plain step reads *step* bytes; *copy* is how "
        "fast a large copy reads and writes, and *possible* is how fast plain decoding would be "
        "if the speed of memory alone limited it. A *replay* undoes half of a pass over a draft of "
        "eight tokens in a model with recurrent layers."
    )
    context_tokens: int
    """Length of the prompt before the measured passes."""
    plain_step_s: float
    rounds: int
    sizes: tuple[SizeCost, ...]
    copy_bytes_per_s: float | None
    """Of a large copy, read and written."""
    step_bytes: float | None
    """Bytes of weights and cache that a plain step reads."""
    replay_s: float | None
    """Of undoing half of a pass where caches cannot drop rows, None where they can."""

    @property
    def tokens_per_s(self) -> float:
        return 1 / self.plain_step_s

    @property
    def possible_tokens_per_s(self) -> float | None:
        if self.copy_bytes_per_s is None or not self.step_bytes:
            return None
        return self.copy_bytes_per_s / self.step_bytes

    def answers(self) -> Iterator[str]:
        for found in self.sizes:
            if found.rows - 1 not in _DRAFTS or found.cost is None:
                continue
            tokens = f"A draft of {found.rows - 1} token{'s' if found.rows > 2 else ''}"
            pays = (
                "never saves time"
                if found.pays_from is None
                else "saves time if each token is right with a probability above "
                f"{_probability(found.pays_from)}"
            )
            low, high = _probability(found.pays_from_low), _probability(found.pays_from_high)
            yield f"{tokens} {pays} ({low} to {high})."

    def lacks_ratios(self) -> bool:
        return any(found.cost is None for found in self.sizes)


def measure_costs(subject: Subject, run: PartRun) -> CostFigures:
    """Measure the costs of passes; later replies on this machine use them."""
    engine, pace = subject.ready()
    ids = [number * _STRIDE % engine.vocabulary_size for number in range(_CONTEXT_TOKENS)]
    try:
        times = engine.tune(
            ids, repeats=pace.rounds(run.seconds), progress=lambda _done, _total: run.tell()
        )
    except ContextOverflowError as error:
        raise CannotBeMeasuredError(str(error)) from None
    subject.has_costs = True
    rounds = max(map(len, times.passes_s.values()), default=0)
    if rounds < FEWEST_ROUNDS:
        run.note = f"there was no time for {FEWEST_ROUNDS} rounds, which an interval takes"
    with engine.lend("memory is measured") as lent:
        read = step_bytes(lent.model, times.context)
    return CostFigures(
        context_tokens=times.context,
        plain_step_s=times.unit_s,
        rounds=rounds,
        sizes=tuple(
            SizeCost.of(rows, taken, times.plain_s) for rows, taken in times.passes_s.items()
        ),
        copy_bytes_per_s=copy_bandwidth(),
        step_bytes=read,
        replay_s=median(times.replays_s) if times.replays_s else None,
    )
