"""The result of a bench command (header, figures, tables and rows) and its file."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import msgspec

from akunu_py.bench.bootstrap import Ratio
from akunu_py.bench.environment import Environment
from akunu_py.bench.measured_model import Model
from akunu_py.bench.rows import Number, Row, encode, parse, read_file, typed
from akunu_py.bench.tables import Table
from akunu_py.system.errors import ConfigError
from akunu_py.system.files import replace_file
from akunu_py.values.cost_curve import CostCurve

FORMAT: Final = "akunu bench result 2"
FILE = "result.json"


class Costs(Row, frozen=True):
    """C(m), measured in the run.

    Attributes:
        unit_s: seconds of one step of plain decoding.
        costs: rows of a pass -> its time in these steps.

    Raises ConfigError for costs that do not form a curve.

    """

    unit_s: Number
    costs: dict[int, float]

    def __post_init__(self) -> None:
        if self.costs:
            self.curve()

    def curve(self) -> CostCurve:
        """Return the curve."""
        return CostCurve(dict(self.costs))


class Failure(Row, frozen=True):
    """An item that could not be measured, and why."""

    item: str
    error: str


class BenchResult(Row, frozen=True, kw_only=True):
    """The result of a bench command.

    Attributes:
        format: of the file.
        command: its name under `akunu bench`.
        arguments: final options by name, enough to repeat the run.
        environment: versions and machine.
        model: the model; `draft_model` likewise, None if there is none.
        costs: C(m) of this run; None where it was not measured.
        deterministic: figures that are the same in every run on a machine, nested by name; no
            seconds. `costs` has the points of cost curves that were loaded, by name.
        timing: figures that vary; `ratios` has paired comparisons by name, each with the fields of
            `Ratio`, and fields with seconds end in _s.
        tables: for people.
        items: the rows of the run, each with "id" and "category".
        failures: items that could not be measured.
        started: ISO 8601, UTC.
        seconds: duration of the run, all its parts included if it was continued.
        finished: False for a run that was interrupted.

    Raises ConfigError for seconds among the deterministic figures, malformed ratios, costs that are
    not curves, and items without id or category.

    """

    format: Literal["akunu bench result 2"] = FORMAT
    command: Annotated[str, msgspec.Meta(min_length=1)]
    arguments: Mapping[str, Any]
    environment: Environment
    model: Model | None = None
    draft_model: Model | None = None
    costs: Costs | None = None
    deterministic: Mapping[str, Any]
    timing: Mapping[str, Any]
    tables: tuple[Table, ...]
    items: tuple[Mapping[str, Any], ...]
    failures: tuple[Failure, ...] = ()
    started: Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\dT[\d:.]+[+-]\d\d:\d\d$")]
    seconds: Number
    finished: bool = True

    def __post_init__(self) -> None:
        _refuse_seconds(self.deterministic, "deterministic")
        typed(self.timing.get("ratios", {}), dict[str, Ratio], "timing.ratios")
        _ = self.doubts  # Raises where costs are not curves.
        for index, item in enumerate(self.items):
            if not isinstance(item.get("id"), str) or not isinstance(item.get("category"), str):
                raise ConfigError(f"items[{index}] has no id or no category")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the result in a file, or in a folder's result.json.

        Raises ConfigError, which names the file and its error, and what to do.
        """
        path = path / FILE if path.is_dir() else path
        return cls.parse(read_file(path), str(path))

    @classmethod
    def parse(cls, content: bytes | str, where: str = "the result") -> Self:
        """Return the result in a JSON text; raises as `read` does."""
        try:
            value = parse(content, where)
            _check_format(value, where)
            return typed(value, cls, where)
        except ConfigError as error:
            raise ConfigError(
                f"{error}; give another file, or run its command again with --output"
            ) from None

    def json(self, *, indent: int = 0) -> str:
        """Return the result as JSON, on one line unless it is indented."""
        return encode(self, indent=indent)

    def write(self, path: Path) -> None:
        """Write the result as JSON, atomically; raises ConfigError if that fails."""
        try:
            replace_file(path, f"{self.json(indent=1)}\n".encode(), private=False)
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error

    def model_line(self, *, with_file: bool = False) -> str:
        """Return in words what was measured and on what."""
        environment, model = self.environment, self.model
        name = ""
        if model is not None:
            file = f" ({Path(model.path).name})" if with_file else ""
            name = f"{model.name}{file}, {model.weights} weights; "
        return f"{name}{environment.device_name} ({environment.device}), MLX {environment.mlx}"

    @property
    def doubts(self) -> tuple[str, ...]:
        """What makes the costs of passes implausible that figures of the result rest on."""
        loaded = typed(
            self.deterministic.get("costs", {}), dict[str, dict[int, float]], "deterministic.costs"
        )
        curves = {name: CostCurve(points) for name, points in loaded.items()}
        if self.costs is not None and self.costs.costs:
            curves["the measured costs"] = self.costs.curve()
        return tuple(
            f"{name}: {curve.doubt}; a pass over more rows should not cost less"
            for name, curve in curves.items()
            if curve.doubt
        )

    @property
    def ratios(self) -> dict[str, Ratio]:
        """The paired comparisons in `timing`."""
        return typed(self.timing.get("ratios", {}), dict[str, Ratio], "timing.ratios")


def _check_format(value: object, where: str) -> None:
    form = value.get("format") if isinstance(value, dict) else None
    if form != FORMAT:
        said = "is not a result file" if form is None else f"has the format {form!r:.60}"
        raise ConfigError(f"{where} {said}; this version reads {FORMAT!r}")


def utc_now() -> str:
    """Return the current time for `BenchResult.started`."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _refuse_seconds(value: object, where: str) -> None:
    if isinstance(value, Mapping):
        for key, entry in value.items():
            if key == "seconds" or key.endswith("_s"):
                raise ConfigError(f"{where} holds {key}; times belong in timing")
            _refuse_seconds(entry, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for entry in value:
            _refuse_seconds(entry, where)
