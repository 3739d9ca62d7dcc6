"""`akunu bench replay`: drafters compared on recorded outputs."""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from akunu_py.cli.count_progress import count_progress
from akunu_py.cli.terminal import printable

if TYPE_CHECKING:
    from rich.table import Table

    from akunu_py.bench.replay.jobs import Memory
    from akunu_py.bench.replay.report import CurveReport, ReplayReport
    from akunu_py.bench.replay.results import Figures
    from akunu_py.bench.replay.runner import ReplayItem
    from akunu_py.bench.replay.traces import TraceItem
    from akunu_py.types import Tokenizer

_WIDTH_OF_A_FILE = 120
"""Columns of a table that does not go to a terminal."""

_DEFAULT_CURVE = "m5-max-70b-4bit"

_CONVERTED = "metadata.gguf"
"""What holds the tokenizer of a model that `akunu models convert` wrote."""


@click.command()
@click.argument("traces", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--drafter",
    "drafters",
    multiple=True,
    metavar="NAME",
    help="Replay this drafter or baseline; repeatable. All, when left out.",
)
@click.option(
    "--curve",
    "curves",
    multiple=True,
    metavar="NAME|FILE",
    help=f"What passes cost: a shipped curve or a JSON file; repeatable.  [default: "
    f"{_DEFAULT_CURVE}]",
)
@click.option(
    "--tokenizer",
    "tokenizer_path",
    type=click.Path(path_type=Path),
    metavar="MODEL|GGUF",
    help="Whose tokenizer counts; a vocabulary is enough. The model that ships, when left out.",
)
@click.option(
    "--tune",
    is_flag=True,
    help="Choose each baseline's draft length on half of the sessions, report the other half.",
)
@click.option(
    "--memory",
    type=click.Choice(["trace", "session"]),
    default="trace",
    show_default=True,
    help="How long drafters remember earlier replies.",
)
@click.option(
    "--by",
    type=click.Choice(["category", "trace"]),
    default="category",
    show_default=True,
    help="What the table is divided by.",
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Replay in N processes.  [default: one a core]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of tables.")
def replay(  # noqa: PLR0917 - click passes by name
    traces: tuple[Path, ...],
    drafters: tuple[str, ...],
    curves: tuple[str, ...],
    tokenizer_path: Path | None,
    tune: bool,
    memory: "Memory",
    by: str,
    processes: int | None,
    as_json: bool,
) -> None:
    """Compare drafters on recorded outputs, without a model.

    TRACES are files of one JSON object a line: id, category, prompt, output. The outputs are
    played back as the target's choices. Speed is tokens over the cost of all passes under a cost
    curve, 1 being plain decoding; of several files the geometric mean. Ranges are 95 % intervals
    over sessions.

    \b
    Examples:
      akunu bench replay mine.jsonl --drafter ngram --drafter suffix-64
      akunu bench replay traces/*.jsonl --curve gentle-slope --tune --by trace
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_py.bench.replay.arms import NOT_REPLAYABLE, check_names, known_names  # noqa: PLC0415
    from akunu_py.bench.replay.curves import load_curves  # noqa: PLC0415
    from akunu_py.bench.replay.jobs import plan_jobs, run_jobs  # noqa: PLC0415
    from akunu_py.bench.replay.report import make_report  # noqa: PLC0415
    from akunu_py.bench.replay.results import Results  # noqa: PLC0415

    arms = tuple(dict.fromkeys(drafters)) or known_names()
    check_names(arms)
    chosen_curves = load_curves(curves or (_DEFAULT_CURVE,))
    items = _read(traces, tokenizer_path)
    if tune:
        _check_halves(items)
    replayable = [arm for arm in arms if arm not in NOT_REPLAYABLE]
    jobs = plan_jobs(items, replayable, list(chosen_curves), memory=memory, tune=tune)
    count = min(processes or os.cpu_count() or 1, max(1, len(jobs)))
    with count_progress("replays") as progress:
        done = list(run_jobs(jobs, items, chosen_curves, processes=count, progress=progress))
    results = Results(items, chosen_curves, done, tune=tune)
    report = make_report(results, arms, memory=memory)
    if as_json:
        click.echo(json.dumps(report.to_dict()))
    else:
        _print(report, by)


def _read(
    paths: Iterable[Path], tokenizer_path: Path | None
) -> "dict[str, tuple[ReplayItem, ...]]":
    """Read all traces before any is tokenized: a mistake in the last one is told at once."""
    from akunu_py.bench.replay.tokens import tokenize  # noqa: PLC0415
    from akunu_py.bench.replay.traces import read_trace  # noqa: PLC0415

    read: dict[str, list[TraceItem]] = {}
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise click.UsageError(f"{path} is given twice")
        seen.add(path.resolve())
        read[path.stem if path.stem not in read else str(path)] = read_trace(path)
    tokenizer = load_tokenizer(tokenizer_path)
    total, done = sum(map(len, read.values())), 0
    with count_progress("items tokenized") as progress:

        def count() -> None:
            nonlocal done
            done += 1
            progress(done, total)

        return {
            name: tuple(tokenize(items, tokenizer, progress=count)) for name, items in read.items()
        }


def load_tokenizer(path: Path | None) -> "Tokenizer":
    """Return a model's tokenizer; its weights are not looked at."""
    if path is not None and path.is_dir() and not (path / _CONVERTED).is_file():
        from akunu_py.models.mlx_folder import (  # noqa: PLC0415 - mlx-lm takes over a second
            FolderTokenizer,
            read_folder_config,
        )

        return FolderTokenizer(path, read_folder_config(path))
    from akunu_py.gguf import GGUFFile  # noqa: PLC0415
    from akunu_py.tokenizers import from_gguf  # noqa: PLC0415

    if path is None:
        from akunu_py.models.load import default_model_path  # noqa: PLC0415 - imports MLX

        path = default_model_path()
    elif path.is_dir():
        path /= _CONVERTED
    elif not path.is_file():
        raise click.UsageError(f"there is no {path}; give a GGUF file or an MLX model folder")
    with GGUFFile.open(path) as file:
        return from_gguf(file.metadata)


def _check_halves(items: "Mapping[str, tuple[ReplayItem, ...]]") -> None:
    for half, use in ((0, "choose by"), (1, "report")):
        if not any(item.half == half for trace in items.values() for item in trace):
            raise click.UsageError(
                f"--tune finds no session to {use}: all fall into the other half; give more items, "
                "or leave it out"
            )


def _print(report: "ReplayReport", by: str) -> None:
    from rich.console import Console  # noqa: PLC0415 - 0.1 s that --help must not pay
    from rich.text import Text  # noqa: PLC0415

    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE, highlight=False)
    memory = {"trace": "across the items of a trace", "session": "within a session"}
    items = (
        "half of the sessions, draft lengths chosen on the other" if report.tune else "all items"
    )
    for curve in report.curves:
        console.print(
            Text(printable(f"{curve.curve}: {items}; drafters remember {memory[report.memory]}"))
        )
        groups = curve.categories if by == "category" else curve.traces
        for name, arms in (*groups.items(), ("all", curve.total)):
            if arms:
                size = max(figures.items for figures in arms.values())
                console.print(Text(printable(f"{name}, {size} items"), style="bold"))
                console.print(_table(arms))
                console.print()
        for line in _comparisons(curve):
            console.print(Text(printable(line)))
    for arm, reason in report.not_replayable.items():
        console.print(Text(f"{arm}: not replayable; {reason}"))


def _table(arms: "Mapping[str, Figures]") -> "Table":
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.markup import escape  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    # Lines and spaces saved until the table fits into 80 columns.
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=0)
    table.add_column("drafter", no_wrap=True)
    headings = (
        "up\nto", "fire\nrate", "hit\nrate", "alpha", "mean\ndraft", "tok/\npass", "", "speed", "",
        "us a\npass",
    )  # fmt: skip
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for arm, figures in arms.items():
        table.add_row(escape(arm), *_cells(figures))
    return table


def _cells(figures: "Figures") -> list[str]:
    return [
        str(figures.limit),
        f"{figures.fire_rate:.0%}",
        _cell(figures.hit_rate, ".0%"),
        _cell(figures.alpha, ".0%"),
        _cell(figures.mean_draft, ".1f"),
        f"{figures.tokens_per_pass:.2f}",
        _range(figures.tokens_per_pass_interval),
        f"{figures.speed:.3f}",
        _range(figures.speed_interval),
        f"{figures.us_a_pass:.0f}",
    ]


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"


def _range(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.2f}-{interval[1]:.2f}"


def _comparisons(curve: "CurveReport") -> list[str]:
    """Return how akunu's drafters do against the best baselines."""
    lines: list[str] = []
    for arm, ratio in curve.against_best.items():
        low, high = ratio.interval
        lines.append(
            f"{arm}: {ratio.value - 1:+.1%} ({low - 1:+.1%} to {high - 1:+.1%}) against "
            f"{ratio.against}, the best baseline"
        )
        for trace, ratios in curve.against_best_of_trace.items():
            ours = ratios[arm]
            if ours.interval[1] < 1:
                lines.append(
                    f"  behind on {trace}: {ours.value - 1:+.1%} against {ours.against}, the best "
                    "baseline there"
                )
    return lines
