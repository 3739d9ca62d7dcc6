"""One run of a bench command: a header, rows saved as they are finished, and a result."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import msgspec

from akunu_py.bench.environment import Environment
from akunu_py.bench.measured_model import Model
from akunu_py.bench.result_file import BenchResult, Costs, Failure, utc_now
from akunu_py.bench.resume import ItemStore
from akunu_py.bench.rows import plain
from akunu_py.bench.tables import Table


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
    """A run, from its final arguments to its result; a context manager that closes its file.

    Args:
        folder: folder of --output, whose finished rows are taken over; None saves nothing.
        command: its name under `akunu bench`.
        arguments: final options by name, enough to repeat the run.
        model: the model; `draft_model` likewise, None if there is none.
        inputs: hashes of other inputs, such as traces.

    Raises ConfigError if the folder has another run's rows, or cannot be used.

    """

    def __init__(
        self,
        folder: Path | None,
        command: str,
        arguments: Mapping[str, object],
        *,
        model: Model | None = None,
        draft_model: Model | None = None,
        inputs: Mapping[str, object] | None = None,
    ) -> None:
        self.command = command
        self.arguments = plain(arguments, "arguments")
        self.model = model
        self.draft_model = draft_model
        self.environment = Environment.current()
        self.started = utc_now()
        environment = self.environment
        self.store = ItemStore(
            folder,
            {
                "command": command,
                "arguments": self.arguments,
                "inputs": inputs or {},
                # Models are identified by hash, so files may be moved.
                "models": [found.sha256 for found in (model, draft_model) if found is not None],
                "akunu": environment.akunu,
                "mlx": environment.mlx,
                "device": environment.device_name,
                "blas": environment.blas,
            },
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def result(self, findings: Findings) -> BenchResult:
        """Return the result: this header with the findings."""
        return BenchResult(
            command=self.command,
            arguments=self.arguments,
            environment=self.environment,
            model=self.model,
            draft_model=self.draft_model,
            started=self.started,
            seconds=self.store.seconds,
            **msgspec.structs.asdict(findings),
        )
