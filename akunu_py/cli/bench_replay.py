"""`akunu bench replay`: drafters compared on recorded outputs."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from akunu_py.cli.bench_options import limited, processes_option
from akunu_py.cli.bench_output import Output, output_options, quick_option
from akunu_py.cli.command import Command
from akunu_py.cli.count_progress import count_progress
from akunu_py.cli.default_model_offer import fetch_unasked
from akunu_py.cli.loading_options import model_path
from akunu_py.model_store.default_model import default_model_path

if TYPE_CHECKING:
    from akunu_py.bench.replay.jobs import Memory
    from akunu_py.bench.replay.results import ReplayReport
    from akunu_py.bench.replay.runner import ReplayItem
    from akunu_py.bench.result_file import Failure
    from akunu_py.protocols import Tokenizer

_QUICK_LIMIT = 20

_DEFAULT_CURVE = "m5-max-70b-4bit"

_CONVERTED = "metadata.gguf"
"""What holds the tokenizer of a model that `akunu models convert` wrote."""


@click.command(cls=Command)
@click.argument("traces", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--drafter",
    "drafters",
    multiple=True,
    metavar="NAME",
    help="Replay this drafter or baseline; repeatable.  [default: all]",
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
    help="Tokenize with this model's tokenizer; a vocabulary is enough.  [default: the shipped "
    "model]",
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
    help="Group the table by category or by trace.",
)
@processes_option
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="Use the first N items of each trace."
)
@quick_option
@output_options
def replay(  # noqa: PLR0917 - click passes by name
    traces: tuple[Path, ...],
    drafters: tuple[str, ...],
    curves: tuple[str, ...],
    tokenizer_path: Path | None,
    tune: bool,
    memory: "Memory",
    by: str,
    processes: int | None,
    limit: int | None,
    quick: bool,
    output: Output,
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
    limit = limited(limit, _QUICK_LIMIT, is_quick=quick)
    from akunu_py.bench.replay.arms import check_names, known_names, not_replayable
    from akunu_py.bench.replay.curves import load_curves
    from akunu_py.bench.replay.jobs import plan_jobs, run_stored_jobs
    from akunu_py.bench.replay.report import (
        comparisons,
        content_hashes,
        replay_findings,
    )
    from akunu_py.bench.replay.results import Results, make_report
    from akunu_py.bench.replay.tokens import read_traces, tokenize_traces

    arms = tuple(dict.fromkeys(drafters)) or known_names()
    check_names(arms)
    chosen_curves = load_curves(curves or (_DEFAULT_CURVE,))
    failures: list[Failure] = []
    # All are read before any is tokenized: a mistake in the last one is told at once.
    read = read_traces(traces, limit, failures)
    items = tokenize_traces(read, load_tokenizer(tokenizer_path), failures, count_progress)
    if tune:
        _check_halves(items)
    arguments: dict[str, object] = {
        "traces": traces,
        "drafter": arms,
        "curve": curves or (_DEFAULT_CURVE,),
        "tokenizer": tokenizer_path,
        "tune": tune,
        "memory": memory,
        "by": by,
        "limit": limit,
    }
    hashes = content_hashes(items, chosen_curves)
    replayable = [arm for arm in arms if not_replayable(arm) is None]
    jobs = plan_jobs(items, replayable, list(chosen_curves), memory=memory, tune=tune)
    count = min(processes or os.cpu_count() or 1, max(1, len(jobs)))
    with (
        output.run("replay", arguments, inputs={"hashes": hashes}) as run,
        count_progress("replays") as progress,
    ):
        done, finished = run_stored_jobs(
            jobs, items, chosen_curves, run.store, processes=count, progress=progress
        )
    # Figures are over all traces: an arm that an interrupt left without one has none.
    left = set(jobs) - {entry.job for entry in done}
    lacking = {job.arm for job in left}
    whole = [entry for entry in done if entry.job.arm not in lacking]
    results = Results(items, chosen_curves, whole, tune=tune)
    report = make_report(results, [arm for arm in arms if arm not in lacking], memory=memory)
    findings = replay_findings(
        report,
        done,
        by=by,
        hashes=hashes,
        costs=chosen_curves,
        failures=failures,
        finished=finished,
    )
    output.emit(run.result(findings), _head(report, limit), "\n".join(comparisons(report)))


def load_tokenizer(model: Path | None) -> "Tokenizer":
    """Return the tokenizer of a model by any of its names; its weights are not looked at.

    None is the model that ships, whatever the settings' own one is: figures are compared with it.
    """
    if model is None:
        fetch_unasked()
    path = default_model_path() if model is None else model_path(str(model))
    if path.is_dir() and not (path / _CONVERTED).is_file():
        # mlx-lm takes over a second
        from akunu_py.models.folder_settings import read_folder_config
        from akunu_py.models.folder_tokenizer import FolderTokenizer

        return FolderTokenizer(path, read_folder_config(path))
    from akunu_py.gguf import GGUFFile
    from akunu_py.tokenizers import from_gguf

    if path.is_dir():
        path /= _CONVERTED
    with GGUFFile.open(path) as file:
        return from_gguf(file.metadata)


def _check_halves(items: "Mapping[str, tuple[ReplayItem, ...]]") -> None:
    for half, use in ((0, "choose by"), (1, "report")):
        if not any(item.half == half for trace in items.values() for item in trace):
            raise click.UsageError(
                f"--tune finds no session to {use}: all fall into the other half; give more items, "
                "or leave it out"
            )


def _head(report: "ReplayReport", limit: int | None) -> str:
    memory = {"trace": "across the items of a trace", "session": "within a session"}
    items = (
        "half of the sessions, draft lengths chosen on the other" if report.tune else "all items"
    )
    if limit is not None:
        items = f"{items} of the first {limit} of each trace"
    curves = ", ".join(curve.curve for curve in report.curves)
    return f"{curves}: {items}; drafters remember {memory[report.memory]}"
