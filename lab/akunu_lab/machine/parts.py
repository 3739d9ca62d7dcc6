"""The parts of a report, in the order of measurement."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from akunu_lab.machine.costs import measure_costs
from akunu_lab.machine.loading import measure_load, measure_memory
from akunu_lab.machine.metal import measure_tests
from akunu_lab.machine.peers import measure_peers
from akunu_lab.machine.planning import PartRun, Subject
from akunu_lab.machine.prefill import measure_prefill
from akunu_lab.machine.replies import measure_replies
from akunu_lab.machine.report import PartFigures, PartName
from akunu_lab.machine.rows import measure_rows
from akunu_lab.machine.speed import measure_speed
from akunu_lab.machine.start import measure_start


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """A part of the report: its name, the words for it, and how it is measured."""

    name: PartName
    title: str
    share: float
    """Weight of its time among all parts."""
    measure: Callable[[Subject, PartRun], PartFigures]
    needs_model: bool = True
    """Whether the part is skipped if the model could not be loaded."""


# The most valuable parts come first: the time may be over before the last one.
PARTS = (
    PlannedPart("memory", "the memory that the model needs", 1, measure_memory, needs_model=False),
    # In processes of their own, while no model takes memory here.
    PlannedPart("tests", "akunu's tests on Metal", 30, measure_tests, needs_model=False),
    PlannedPart("peers", "other programs beside", 28, measure_peers, needs_model=False),
    PlannedPart("start", "the start of a process", 9, measure_start, needs_model=False),
    PlannedPart("load", "loading the model", 4, measure_load, needs_model=False),
    PlannedPart("rows", "the bits of rows", 6, measure_rows),
    PlannedPart("prefill", "reading prompts", 6, measure_prefill),
    PlannedPart("costs", "the costs of passes", 12, measure_costs),
    PlannedPart("greedy", "greedy replies", 14, measure_replies),
    PlannedPart("speed", "the speed next to mlx-lm", 28, measure_speed),
    PlannedPart("sampled", "sampled replies", 8, partial(measure_replies, temperature=0.8)),
    # The last: it loads the model again.
    PlannedPart(
        "reproducible", "reproducible replies", 12, partial(measure_replies, reproducible=True)
    ),
)
TITLES = {part.name: part.title for part in PARTS}
