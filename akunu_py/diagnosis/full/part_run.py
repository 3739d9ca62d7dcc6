"""What a part is given: the model with what is known of it so far, and time."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from akunu_py.diagnosis.full.planning import ModelPace
from akunu_py.diagnosis.full.report import ModelFacts, PartFigures
from akunu_py.models.load import LoadedModel
from akunu_py.models.pass_times import PassTimes
from akunu_py.models.requirements import Requirements


class CannotBeMeasuredError(Exception):
    """The part does not apply to this model; the message says why."""


@dataclass(slots=True)
class Subject:
    """The measured model; each part may add what later ones need."""

    path: Path
    facts: ModelFacts | None = None
    needs: Requirements | None = None
    loaded: LoadedModel | None = None
    """None before it is loaded, or if loading failed."""
    pace: ModelPace | None = None
    times: PassTimes | None = None

    def ready(self) -> tuple[LoadedModel, ModelPace]:
        """Return the loaded model and its pace; raises CannotBeMeasuredError before loading."""
        if self.loaded is None or self.pace is None:
            raise CannotBeMeasuredError("the model was not loaded")
        return self.loaded, self.pace


@dataclass(slots=True)
class PartRun:
    """The run of a part: its time in seconds, and what becomes of it."""

    seconds: float
    tell: Callable[[str], None] = lambda _text: None
    """Reports progress."""
    clock: Callable[[], float] = time.perf_counter
    note: str = ""
    """What was left out for lack of time."""
    so_far: PartFigures | None = None
    """Kept if the part is interrupted."""
    _ends: float = field(init=False)

    def __post_init__(self) -> None:
        self._ends = self.clock() + self.seconds

    @property
    def left(self) -> float:
        """Remaining seconds; below 0 after the end."""
        return self._ends - self.clock()

    def is_over(self) -> bool:
        """Return whether no time is left."""
        return self.left <= 0
