"""One run of a bench command: a header, rows that are kept as they are finished, a result."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from akunu_py.bench.environment import Environment
from akunu_py.bench.measured_model import Model
from akunu_py.bench.result_file import BenchResult, Costs, Failure, utc_now
from akunu_py.bench.resume import ItemStore
from akunu_py.bench.rows import plain
from akunu_py.bench.tables import Table

T = TypeVar("T")


class Findings(msgspec.Struct, kw_only=True):
    """Figures, tables and rows that a command has worked out: a result without its header.

    The fields are described in `BenchResult`. Figures may hold rows such as `Ratio`; they are
    turned into what JSON has. Raises ConfigError for what JSON cannot say.
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
    """A run, from its settled arguments to its result. Used with `with`, it closes its file.

    Args:
        folder: of --output, whose finished rows it goes on from; None keeps none.
        command: its name under `akunu bench`.
        arguments: settled options by name, enough to run it again.
        model: the model, `draft_model` its draft model; None where there is none.
        inputs: hashes of whatever else the figures depend on, such as traces.

    Raises ConfigError where the folder holds another run's rows, or cannot be used.

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
                # By their hashes: a file that was moved is the same.
                "models": [found.sha256 for found in (model, draft_model) if found is not None],
                "akunu": environment.akunu,
                "mlx": environment.mlx,
                "device": environment.device_name,
                "blas": environment.blas,
            },
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
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


def turned(arms: Sequence[T], number: int) -> list[T]:
    """Return what is measured in the order for item `number`: another first, either way round.

    So a machine that grows warm or gets other work slows all alike.
    """
    start = number // 2 % len(arms)
    order = [*arms[start:], *arms[:start]]
    return order[::-1] if number % 2 else order
