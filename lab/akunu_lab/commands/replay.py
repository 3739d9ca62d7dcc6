"""`akunu bench replay`: drafters compared on recorded outputs."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from akunu_lab.study.options import processes_option, streams_option, tokenizer_option
from akunu_lab.study.study import Study
from akunu_py.api import Command, load_tokenizer, measuring

if TYPE_CHECKING:
    from akunu_lab.replay.runner import ReplayItem
    from akunu_lab.replay.trace_replays import Memory
    from akunu_py.api import Failure

_DEFAULT_CURVE = "m5-max-70b-4bit"


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
@tokenizer_option(
    "Tokenize with this model's tokenizer; a vocabulary is enough.  [default: the shipped model]"
)
@processes_option
@streams_option("Replay auto with the engine's draft budget, for these numbers of replies at once.")
@measuring(
    Study,
    limit="Use the first N items of each trace.",
    quick=20,
)
def replay(
    bench: Study,
    traces: tuple[Path, ...],
    *,
    drafters: tuple[str, ...],
    curves: tuple[str, ...],
    tokenizer: Path | None,
    processes: int,
    streams: tuple[int, ...] | None,
    tune: bool,
    memory: "Memory",
    by: str,
) -> None:
    """Compare drafters on recorded outputs, without a model.

    TRACES are files of one JSON object a line: id, category, prompt, output. The outputs are
    played back as the target's choices. Speed is tokens over the cost of all passes under a cost
    curve, 1 being plain decoding; of several files the geometric mean. Ranges are 95 % intervals
    over sessions.

    With --streams the engine's draft budget decides how much of each draft is verified, and curves
    need costs for that many rows. Ranges are then over stretches of 16 passes.

    \b
    Examples:
      akunu bench replay mine.jsonl --drafter ngram --drafter suffix-64
      akunu bench replay traces/*.jsonl --curve gentle-slope --tune --by trace
      akunu bench replay traces/*.jsonl --streams 2,4,8
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_lab.replay.curves import load_curves
    from akunu_lab.replay.report import (
        comparison_lines,
        content_hashes,
        replay_cells,
        replay_rows,
        replay_tables,
        report_curve,
    )
    from akunu_lab.replay.tokens import read_traces, tokenize_traces
    from akunu_lab.replay.trace_drafters import not_replayable, replayable_names
    from akunu_lab.replay.trace_replays import ReplayInputs, plan_replays, run_replays
    from akunu_py.api import Findings

    limit = bench.limit
    if streams and (drafters or tune):
        name = "--drafter" if drafters else "--tune"
        raise click.UsageError(f"--streams replays auto with its own lengths; leave out {name}")
    if streams and min(streams) < 2:
        raise click.UsageError("--streams is about 2 replies at once and more")
    names = tuple(dict.fromkeys(drafters)) or replayable_names()
    left_out = {name: why for name in names if (why := not_replayable(name)) is not None}
    costs = load_curves(curves or (_DEFAULT_CURVE,))
    failures: list[Failure] = []
    # All are read before any is tokenized: a mistake in the last one is told at once.
    read = read_traces(traces, limit, failures)
    items = tokenize_traces(read, load_tokenizer(tokenizer), failures, bench.progress)
    if tune:
        _check_halves(items)
    arguments: dict[str, object] = {
        "traces": traces,
        "drafter": names,
        "curve": curves or (_DEFAULT_CURVE,),
        "tokenizer": tokenizer,
        "tune": tune,
        "memory": memory,
        "by": by,
        "limit": limit,
    }
    hashes = content_hashes(items, costs)
    if streams:
        from akunu_lab.replay.company import company_tables

        arguments["streams"] = streams
        with (
            bench.study(arguments, inputs={"hashes": hashes}) as run,
            bench.progress("replays") as progress,
        ):
            tables = company_tables(items, costs, streams, by=by, progress=progress)
        bench.emit(
            run.result(Findings(deterministic={"hashes": hashes}, tables=tables)),
            "auto with the engine's draft budget",
        )
        return
    cells = replay_cells([name for name in names if name not in left_out], costs, tune=tune)
    sizes = {
        name: sum(len(item.prompt) + len(item.output) for item in found)
        for name, found in items.items()
    }
    # The longest first: processes end at about the same time.
    replays = sorted(plan_replays(cells, items), key=lambda replay: -sizes[replay.trace])
    with (
        bench.study(arguments, inputs={"hashes": hashes}) as run,
        bench.progress("replays") as progress,
    ):
        counts, finished = run_replays(
            replays,
            ReplayInputs(items, costs, memory),
            run.store,
            processes=processes,
            progress=progress,
        )
    # Figures are over all traces: a drafter that an interrupt left without one has none.
    lacking = {cell.drafter for cell in cells if len(counts.get(cell, {})) < len(items)}
    whole = [cell for cell in cells if cell.drafter not in lacking]
    reports = [
        report_curve(name, curve, whole, counts, items, tune=tune) for name, curve in costs.items()
    ]
    findings = Findings(
        deterministic={
            "hashes": hashes,
            "costs": {name: curve.by_rows for name, curve in costs.items()},
            "curves": {report.curve: report.record() for report in reports},
            "not_replayable": left_out,
        },
        timing={
            "us_a_pass": {
                report.curve: {
                    name: figures.us_a_pass for name, (_, figures) in report.total.items()
                }
                for report in reports
            },
        },
        tables=replay_tables(reports, by),
        items=tuple(replay_rows(counts)),
        failures=tuple(failures),
        finished=finished,
    )
    tail = [f"{name}: not replayable; {why}" for name, why in left_out.items()]
    head = _head(costs, limit, tune=tune, memory=memory)
    bench.emit(run.result(findings), head, "\n".join((*comparison_lines(reports), *tail)))


def _check_halves(items: "Mapping[str, tuple[ReplayItem, ...]]") -> None:
    for half, use in ((0, "choose by"), (1, "report")):
        if not any(item.half == half for trace in items.values() for item in trace):
            raise click.UsageError(
                f"--tune finds no session to {use}: all fall into the other half; give more items, "
                "or leave it out"
            )


def _head(curves: Iterable[str], limit: int | None, *, tune: bool, memory: "Memory") -> str:
    remembered = {"trace": "across the items of a trace", "session": "within a session"}
    items = "half of the sessions, draft lengths chosen on the other" if tune else "all items"
    if limit is not None:
        items = f"{items} of the first {limit} of each trace"
    return f"{', '.join(curves)}: {items}; drafters remember {remembered[memory]}"
