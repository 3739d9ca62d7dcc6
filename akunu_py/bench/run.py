"""One run of a measuring command: a header, and its result."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from akunu_py.bench.environment import Environment
from akunu_py.bench.measured_model import Model
from akunu_py.bench.result_file import BenchResult, Costs, Failure, utc_now
from akunu_py.bench.rows import plain
from akunu_py.bench.tables import Table
from akunu_py.engine.engine import Engine


class Findings(msgspec.Struct, kw_only=True):
    """Figures, tables and rows of a command: a result without its header.

    The fields are described in `BenchResult`. Figures may contain rows such as `Ratio`,
    which are converted to JSON types. Raises ConfigError for values that JSON does not have.
    """

    deterministic: Mapping[str, Any]
    timing: Mapping[str, Any] = {}
    tables: tuple[Table, ...] = ()
    items: tuple[Any, ...] = ()
    failures: tuple[Failure, ...] = ()
    costs: Costs | None = None
    finished: bool = True

    def __post_init__(self) -> None:
        self.deterministic = plain(self.deterministic, "deterministic")
        self.timing = plain(self.timing, "timing")
        self.items = tuple(plain(self.items, "items"))


class BenchRun:
    """A run, from its final arguments to its result.

    Args:
        command: its name under `akunu bench`.
        arguments: final options by name, enough to repeat the run; paths become texts.
        engine: what is measured, if it is a model.
        draft: an engine of its own that drafts for it.

    """

    def __init__(
        self,
        command: str,
        arguments: Mapping[str, object],
        *,
        engine: Engine | None = None,
        draft: Engine | None = None,
    ) -> None:
        self.command = command
        texts = {name: _without_paths(value) for name, value in arguments.items()}
        self.arguments = plain(texts, "arguments")
        self.model = self.draft_model = None
        if engine is not None:
            self.model = Model.of(engine.description, engine.context)
            drafts = engine.draft_model if draft is None else draft.description
            self.draft_model = None if drafts is None else Model.of(drafts)
        self.environment = Environment.current()
        self.started, self._began = utc_now(), time.perf_counter()

    @property
    def seconds(self) -> float:
        """The seconds that the run has taken."""
        return time.perf_counter() - self._began

    def result(self, findings: Findings) -> BenchResult:
        """Return the result: this header with the findings."""
        return BenchResult(
            command=self.command,
            arguments=self.arguments,
            environment=self.environment,
            model=self.model,
            draft_model=self.draft_model,
            started=self.started,
            seconds=self.seconds,
            **msgspec.structs.asdict(findings),
        )


def _without_paths(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_without_paths(entry) for entry in value]
    return str(value) if isinstance(value, Path) else value
