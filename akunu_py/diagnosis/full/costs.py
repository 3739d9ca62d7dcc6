"""The part "costs": what passes cost by their rows, and from when drafts pay."""

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from statistics import median

from akunu_py.bench.tuning import Cost, costs_with_intervals, least_confidence, run_tuning
from akunu_py.diagnosis.full.planning import FEWEST_ROUNDS, CannotBeMeasuredError, PartRun, Subject
from akunu_py.diagnosis.full.report import PartFigures
from akunu_py.engine.engine import Engine
from akunu_py.models.pass_times import ROWS

_CONTEXT_TOKENS = 128
_DRAFTS = (1, 4, 16)
"""Lengths of the drafts in the summary; the table has all."""


@dataclass(frozen=True, slots=True)
class SizeCost(Cost):
    """Cost of passes of one size, and when drafts of `rows` - 1 tokens pay.

    `pays_from` is the probability that each token needs so that the whole draft pays, with those at
    both ends of the cost's interval; None: it never pays, or there is no interval.
    """

    pays_from: float | None
    pays_from_low: float | None
    pays_from_high: float | None


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
    loaded, pace = subject.ready()
    with Engine(loaded) as engine:
        tokens = min(_CONTEXT_TOKENS, engine.context - 2 * max(ROWS))
        if tokens < 2:
            raise CannotBeMeasuredError(f"its context of {engine.context} tokens is too short")
        times = run_tuning(
            engine,
            context_tokens=tokens,
            repeats=pace.rounds(run.seconds),
            progress=lambda done, total: run.tell(f"round {done} of {total}"),
        ).times
    subject.times = times
    rounds = max(map(len, times.passes_s.values()), default=0)
    if rounds < FEWEST_ROUNDS:
        run.note = f"there was no time for {FEWEST_ROUNDS} rounds, which an interval takes"
    traffic = times.traffic
    return CostFigures(
        context_tokens=times.context,
        plain_step_s=times.unit_s,
        rounds=rounds,
        sizes=tuple(map(_size_cost, costs_with_intervals(times))),
        copy_bytes_per_s=None if traffic is None else traffic.copy_bytes_per_s,
        step_bytes=None if traffic is None else traffic.step_bytes(times.context),
        replay_s=median(times.replays_s) if times.replays_s else None,
    )


def _size_cost(found: Cost) -> SizeCost:
    pays = [
        None if cost is None else least_confidence(cost, found.rows - 1)
        for cost in (found.cost, found.low, found.high)
    ]
    return SizeCost(*astuple(found), *pays)
