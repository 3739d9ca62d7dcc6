"""Compares a result with an earlier one of the same command."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from akunu_py.bench.bootstrap import Ratio
from akunu_py.bench.measured_model import Model
from akunu_py.bench.result_file import BenchResult
from akunu_py.bench.rows import plain
from akunu_py.bench.tables import Cell, Column, Table, table_of
from akunu_py.system.errors import ConfigError

DEFAULT_TOLERANCE = 0.1

_MISSING = "missing"
_CHANGES_ROUNDING = ("device", "machine", "blas")
"""If one of these differs, logits are rounded differently, so replies may differ."""

_VERSIONS = ("akunu", "mlx", "mlx_lm", "python", "platform", "device_name", "commit")


_PAIR = (Column("path", "figure"), Column("baseline", "baseline"), Column("now", "now"))
_RATIO = (
    Column("name", "ratio"),
    *(Column(name, name, ".3f") for name in ("baseline", "now", "low", "high")),
    Column("verdict", "verdict"),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure that changed; the value of a side without it is "missing"."""

    path: str
    baseline: Cell
    now: Cell


@dataclass(frozen=True, slots=True)
class RatioCheck:
    """A paired ratio next to the baseline's; `low` and `high` are the interval of the present one.

    `worse` is whether even the upper end lies below the baseline by more than the tolerance. A
    single pair has no interval; then the ratio itself is compared.
    """

    name: str
    baseline: float
    now: float | None
    low: float | None
    high: float | None
    worse: bool


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a comparison.

    Attributes:
        context: differences of versions and machine, which are not errors.
        differences: deterministic figures and failed items that differ.
        ratios: timing; empty if it was left out.
        checked: number of deterministic figures that were compared.

    """

    context: tuple[Difference, ...]
    differences: tuple[Difference, ...]
    ratios: tuple[RatioCheck, ...]
    checked: int

    @property
    def passed(self) -> bool:
        """Whether no deterministic figure differs and no ratio is worse."""
        return not self.differences and not any(ratio.worse for ratio in self.ratios)

    @property
    def tables(self) -> tuple[Table, ...]:
        """Tables of the differences and the ratios."""
        found = [
            table_of(name, title, _PAIR, map(asdict, entries))
            for name, title, entries in (
                ("context", "Measured with", self.context),
                ("differences", "Figures that must be the same and are not", self.differences),
            )
            if entries
        ]
        if self.ratios:
            rows = [
                {**asdict(ratio), "verdict": "worse" if ratio.worse else "holds"}
                for ratio in self.ratios
            ]
            found.append(table_of("ratios", "Paired ratios", _RATIO, rows))
        return tuple(found)


def check_results(
    baseline: BenchResult,
    now: BenchResult,
    *,
    tolerance: float = DEFAULT_TOLERANCE,
    deterministic: bool = False,
    force: bool = False,
    defaults: Mapping[str, object] | None = None,
) -> Check:
    """Compare a result with an earlier one.

    Deterministic figures must be equal to the last digit. A timing ratio is worse where its
    interval lies below the baseline's value times 1 - `tolerance`; with `deterministic` timing is
    left out. `defaults` are the defaults of the command's options: a baseline that is older than
    an option was measured with its default.

    Raises ConfigError for results of other commands or arguments, unfinished results, a tolerance
    out of range, and, unless `force`, for another model, device or BLAS, since figures then differ
    for good reasons.
    """
    if not 0 <= tolerance < 1:
        raise ConfigError(f"the tolerance is {tolerance!r}; give 0 or more, below 1")
    _refuse_other_runs(baseline, now, defaults or {})
    context = tuple(_context(baseline, now))
    if not force:
        _refuse_other_machines(context)
    ours, theirs = dict(_flat(now.deterministic)), dict(_flat(baseline.deterministic))
    for results, figures in ((baseline, theirs), (now, ours)):
        figures |= {f"failures.{failure.item}": failure.error for failure in results.failures}
    names = [*theirs, *(name for name in ours if name not in theirs)]
    return Check(
        context=context,
        differences=tuple(_differences(names, theirs, ours)),
        ratios=() if deterministic else tuple(_ratios(baseline, now, tolerance)),
        checked=len(names),
    )


def _refuse_other_runs(
    baseline: BenchResult, now: BenchResult, defaults: Mapping[str, object]
) -> None:
    if baseline.command != now.command:
        raise ConfigError(
            f"the baseline is of `akunu bench {baseline.command}`, the result of "
            f"`akunu bench {now.command}`; compare results of one command"
        )
    for name, result in (("baseline", baseline), ("result", now)):
        if not result.finished:
            raise ConfigError(f"the {name} is unfinished; run its command to the end first")
    known = {name: value for name, value in defaults.items() if name in now.arguments}
    before = {**known, **baseline.arguments}
    different = [
        f"{difference.path} ({difference.baseline} and {difference.now})"
        for difference in _differences(
            sorted({*before, *now.arguments}),
            {name: _cell(value) for name, value in before.items()},
            {name: _cell(value) for name, value in now.arguments.items()},
        )
    ]
    if different:
        raise ConfigError(
            f"baseline and result were made with different options: {', '.join(different)}"
        )


def _refuse_other_machines(context: tuple[Difference, ...]) -> None:
    refused = [entry for entry in context if entry.path in _CHANGES_ROUNDING + _MODELS]
    if refused:
        said = ", ".join(f"{entry.path} ({entry.baseline} and {entry.now})" for entry in refused)
        raise ConfigError(
            f"baseline and result differ in {said}, so their figures differ, too; record a "
            "baseline of this machine and model, or compare anyway with --force"
        )


_MODELS = ("model", "model weights", "draft_model", "draft_model weights")


def _context(baseline: BenchResult, now: BenchResult) -> Iterator[Difference]:
    for name in ("model", "draft_model"):
        theirs: Model | None = getattr(baseline, name)
        ours: Model | None = getattr(now, name)
        yield from _difference(name, _hash(theirs), _hash(ours))
        yield from _difference(
            f"{name} weights",
            None if theirs is None else theirs.weights,
            None if ours is None else ours.weights,
        )
    before, present = plain(baseline.environment), plain(now.environment)
    for name in (*_CHANGES_ROUNDING, *_VERSIONS):
        yield from _difference(name, _cell(before.get(name)), _cell(present.get(name)))


def _hash(model: Model | None) -> str | None:
    return None if model is None else model.sha256


def _difference(path: str, baseline: Cell, now: Cell) -> Iterator[Difference]:
    if baseline != now:
        yield Difference(path, baseline, now)


def _differences(
    names: list[str], baseline: Mapping[str, Cell], now: Mapping[str, Cell]
) -> Iterator[Difference]:
    for name in names:
        if name not in now or name not in baseline or not _same(baseline[name], now[name]):
            yield Difference(name, baseline.get(name, _MISSING), now.get(name, _MISSING))


def _same(one: Cell, other: Cell) -> bool:
    # True equals 1 in Python, but is not the same figure.
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _flat(value: object, path: str = "") -> Iterator[tuple[str, Cell]]:
    """Yield each figure of nested values with its path; an empty value is a figure, too."""
    entries: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        entries = [(str(name), entry) for name, entry in value.items()]
    elif isinstance(value, list | tuple):
        entries = [(str(index), entry) for index, entry in enumerate(value)]
    if not entries:
        yield path, _cell(value)
    for name, entry in entries:
        yield from _flat(entry, f"{path}.{name}" if path else name)


def _cell(value: object) -> Cell:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def _ratios(baseline: BenchResult, now: BenchResult, tolerance: float) -> Iterator[RatioCheck]:
    present = now.ratios
    for name, before in baseline.ratios.items():
        if before.ratio is None:
            continue
        found = present.get(name, Ratio(None, None, None, 0))
        upper = found.ratio if found.high is None else found.high
        worse = upper is None or upper < before.ratio * (1 - tolerance)
        yield RatioCheck(name, before.ratio, found.ratio, found.low, found.high, worse)
