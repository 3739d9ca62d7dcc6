"""The result of a bench command as one value, and the file it is kept in.

`result.schema.json` beside this module is the file's JSON schema (draft 2020-12).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from akunu_py.atomic_file import replace_file
from akunu_py.bench.environment import Environment
from akunu_py.bench.measured_model import Model
from akunu_py.bench.record import Record, check_json, read_json
from akunu_py.bench.tables import Table
from akunu_py.cost_curve import CostCurve
from akunu_py.errors import ConfigError

FORMAT = "akunu bench result 1"


@dataclass(frozen=True, slots=True)
class Costs:
    """C(m) as it was measured in the run.

    Attributes:
        unit_s: seconds of one step of plain decoding.
        costs: rows of a pass -> its time in such steps.

    """

    unit_s: float
    costs: Mapping[int, float]

    def curve(self) -> CostCurve:
        """Return the curve; raises ConfigError for costs that are none."""
        return CostCurve(dict(self.costs))

    def to_dict(self) -> dict[str, object]:
        """Return the costs as JSON-ready values."""
        return {
            "unit_s": self.unit_s,
            "costs": {str(rows): self.costs[rows] for rows in sorted(self.costs)},
        }

    @classmethod
    def from_dict(cls, record: Record) -> "Costs":
        """Return the costs of a JSON object; raises ConfigError saying what is wrong with them."""
        unit_s = record.number("unit_s")
        costs: dict[int, float] = {}
        entries = record.record("costs")
        for rows in record.mapping("costs"):
            # int() would take " 1", "1_0" and digits of other scripts.
            if not rows.isascii() or not rows.isdigit() or rows != str(int(rows)):
                raise ConfigError(f"{entries.where} has the rows {rows!r}; give a whole number")
            costs[int(rows)] = entries.number(rows)
        record.end()
        found = cls(unit_s, costs)
        if costs:
            found.curve()
        return found


@dataclass(frozen=True, slots=True)
class Failure:
    """An item that could not be measured, and why."""

    item: str
    error: str

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON-ready values."""
        return {"item": self.item, "error": self.error}

    @classmethod
    def from_dict(cls, record: Record) -> "Failure":
        """Return the failure of a JSON object."""
        failure = cls(record.text("item"), record.text("error"))
        record.end()
        return failure


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """What a bench command came to.

    Attributes:
        command: its name under `akunu bench`.
        arguments: settled options by name, enough to run it again.
        environment: versions and machine.
        model: the model, and `draft_model` its draft model; None where there is none.
        costs: C(m) of this run; None where it was not measured.
        deterministic: what must be the same in every run on a machine, nested by name; no seconds.
        timing: what need not be; `ratios` holds paired comparisons, {name: {"ratio", "low",
            "high", "pairs"}}, and fields with seconds end in _s.
        tables: for people.
        items: one entry an item, each with "id" and "category".
        failures: items that could not be measured.
        started: ISO 8601, UTC.
        seconds: that the run took, all of its parts if it was continued.
        finished: False for a run that was interrupted.

    Raises ConfigError for what JSON cannot say, seconds among the deterministic figures, ratios
    that are none and items without id or category.

    """

    command: str
    arguments: Mapping[str, object]
    environment: Environment
    model: Model | None = None
    draft_model: Model | None = None
    costs: Costs | None = None
    deterministic: Mapping[str, object]
    timing: Mapping[str, object]
    tables: tuple[Table, ...]
    items: tuple[Mapping[str, object], ...]
    failures: tuple[Failure, ...] = ()
    started: str
    seconds: float
    finished: bool = True

    def __post_init__(self) -> None:
        if not self.command:
            raise ConfigError("a result has no command")
        check_json(self.arguments, "arguments")
        check_json(self.deterministic, "deterministic")
        _refuse_seconds(self.deterministic, "deterministic")
        check_json(self.timing, "timing")
        _check_ratios(self.timing.get("ratios", {}))
        for index, item in enumerate(self.items):
            check_json(item, f"items[{index}]")
            if not isinstance(item.get("id"), str) or not isinstance(item.get("category"), str):
                raise ConfigError(f"items[{index}] has no id or no category")
        names = [table.name for table in self.tables]
        if len(set(names)) != len(names):
            raise ConfigError(f"two tables have one name: {names}")
        try:
            started = datetime.fromisoformat(self.started)
        except ValueError:
            started = None
        if started is None or started.utcoffset() is None:
            raise ConfigError(f"started is {self.started!r}; give ISO 8601 with a time zone")

    def to_dict(self) -> dict[str, object]:
        """Return everything as JSON-ready values."""
        return {
            "format": FORMAT,
            "command": self.command,
            "arguments": _plain(self.arguments),
            "environment": self.environment.to_dict(),
            "model": None if self.model is None else self.model.to_dict(),
            "draft_model": None if self.draft_model is None else self.draft_model.to_dict(),
            "costs": None if self.costs is None else self.costs.to_dict(),
            "deterministic": _plain(self.deterministic),
            "timing": _plain(self.timing),
            "tables": [table.to_dict() for table in self.tables],
            "items": [_plain(item) for item in self.items],
            "failures": [failure.to_dict() for failure in self.failures],
            "started": self.started,
            "seconds": self.seconds,
            "finished": self.finished,
        }

    @classmethod
    def from_dict(cls, value: object, where: str = "the result") -> "BenchResult":
        """Return the result of a JSON object; `where` names it in errors.

        Raises ConfigError saying what is wrong with it.
        """
        try:
            return cls._read(Record(value, where))
        except ConfigError as error:
            message = str(error)
            raise ConfigError(message if where in message else f"{where}: {message}") from None

    @classmethod
    def _read(cls, record: Record) -> "BenchResult":
        form = record.text("format")
        if form != FORMAT:
            raise ConfigError(f"the format is {form!r}; this version reads {FORMAT!r}")
        models = {
            name: None if record.is_null(name) else Model.from_dict(record.record(name))
            for name in ("model", "draft_model")
        }
        items = record.values("items")
        if not all(isinstance(item, dict) for item in items):
            raise ConfigError("items holds something that is no object")
        result = cls(
            command=record.text("command"),
            arguments=record.mapping("arguments"),
            environment=Environment.from_dict(record.record("environment")),
            model=models["model"],
            draft_model=models["draft_model"],
            costs=None if record.is_null("costs") else Costs.from_dict(record.record("costs")),
            deterministic=record.mapping("deterministic"),
            timing=record.mapping("timing"),
            tables=tuple(Table.from_dict(table) for table in record.records("tables")),
            items=tuple(_plain(item) for item in items),
            failures=tuple(Failure.from_dict(item) for item in record.records("failures")),
            started=record.text("started"),
            seconds=record.number("seconds"),
            finished=record.flag("finished"),
        )
        record.end()
        return result

    def finished_as(self, *, finished: bool) -> "BenchResult":
        """Return the same result, finished or not."""
        return replace(self, finished=finished)


def read_result(path: Path) -> BenchResult:
    """Return the result in a file, or in a folder's result.json.

    Raises ConfigError naming the file and what is wrong with it.
    """
    path = path / "result.json" if path.is_dir() else path
    return BenchResult.from_dict(read_json(path), str(path))


def write_result(result: BenchResult, path: Path) -> None:
    """Write a result as JSON, the file replaced whole; raises ConfigError where it cannot."""
    write_text(path, json.dumps(result.to_dict(), indent=1, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file, replaced whole, as open to others as the umask says.

    Raises ConfigError where it cannot.
    """
    try:
        replace_file(path, text.encode("utf-8", "surrogatepass"), private=False)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error


def utc_now() -> str:
    """Return the time of day for `BenchResult.started`."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _plain(value: Any) -> Any:
    """Return the value with dicts for mappings and lists for tuples."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value


def _refuse_seconds(value: object, where: str) -> None:
    if isinstance(value, Mapping):
        for key, entry in value.items():
            if key == "seconds" or key.endswith("_s"):
                raise ConfigError(f"{where} holds {key}; times belong into timing")
            _refuse_seconds(entry, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for entry in value:
            _refuse_seconds(entry, where)


def _check_ratios(ratios: object) -> None:
    if not isinstance(ratios, Mapping):
        raise ConfigError("timing.ratios is no object")
    for name, entry in ratios.items():
        record = Record(dict(entry) if isinstance(entry, Mapping) else entry, f"ratios.{name}")
        record.count("pairs")
        for bound in ("ratio", "low", "high"):
            # A ratio that no pair gave is null.
            if not record.is_null(bound):
                record.number(bound)
        record.end()
