"""`akunu bench sweep`: drafters over a grid of their settings, a heat map and a recommendation."""

import contextlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from akunu_lab.study.options import processes_option, tokenizer_option
from akunu_lab.study.study import Study
from akunu_py.api import Command, load_tokenizer, measuring

if TYPE_CHECKING:
    from akunu_lab.replay.cells import Cell, Setting
    from akunu_lab.sweep.report import Report
    from akunu_lab.sweep.run import SweepOptions
    from akunu_py.api import BenchResult, Engine, Tokenizer

_QUICK_TOKENS = 64
_TOKENS = 128


@click.command(cls=Command)
@click.option(
    "--trace",
    "traces",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Replay these recorded replies instead of the model's own; repeatable.",
)
@click.option(
    "--curve",
    metavar="NAME|FILE",
    help="Cost of passes: a shipped curve or a JSON file. Measured, when left out.",
)
@click.option(
    "--live",
    is_flag=True,
    help="Decode with every cell instead of replaying; for draft models and measured speeds.",
)
@click.option("--num-draft-tokens", multiple=True, metavar="N|A..B", help="Most tokens of a draft.")
@click.option("--order", multiple=True, metavar="N|A..B", help="Longest n-gram, in tokens.")
@click.option("--window", multiple=True, metavar="N|A..B", help="Last tokens that are counted.")
@click.option(
    "--min-match", multiple=True, metavar="N|A..B", help="Shortest context that may decide."
)
@click.option(
    "--draft-length",
    multiple=True,
    type=click.Choice(["budget", "fixed", "entropy", "lower-bound"]),
    help="What ends a draft; repeatable.",
)
@click.option(
    "--draft-sampling",
    multiple=True,
    type=click.Choice(["coupled", "rejection"]),
    help="How drafts are accepted, with --live; repeatable. With rejection replies differ, but "
    "follow the same distribution.",
)
@click.option(
    "--num-proposals",
    multiple=True,
    metavar="K|A..B",
    help="Tokens that a draft model proposes for each position, with --live.",
)
@click.option(
    "--lenience",
    multiple=True,
    type=float,
    metavar="L",
    help="Lenience of acceptance, with --live; repeatable. Below 1 replies are not exact.",
)
@click.option(
    "--no-adjust",
    is_flag=True,
    help="Also try each cell with rejection without adjusting the residual: not exact.",
)
@click.option(
    "--counts",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Counts of a corpus for --drafter corpus, with --live.",
)
@click.option(
    "--recommend",
    "recommendable",
    type=click.Choice(["identical", "law", "any"]),
    default="identical",
    show_default=True,
    help="Recommend only cells with the replies of plain decoding, also cells with the same "
    "distribution, or any, even those that are not exact.",
)
@click.option(
    "--heat-map", "heat_axes", metavar="X,Y", help="Axes of the heat map, such as window,order."
)
@click.option(
    "--memory",
    type=click.Choice(["trace", "session"]),
    default="session",
    show_default=True,
    help="How long drafters remember earlier replies of a replay.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Generate at most N tokens a reply.  [default: {_TOKENS}; {_QUICK_TOKENS} with --quick]",
)
@tokenizer_option("Tokenize traces with this tokenizer, with --curve; the model's, when left out.")
@processes_option
@measuring(
    Study,
    model=True,
    loading=("draft_model",),
    drafters="Sweep this drafter; repeatable. The n-gram drafters and auto, when left out.",
    prompts="shipped",
    limit="Use N prompts of each category, or N items of each trace.",
    quick=3,
    temperature=True,
    seed=True,
)
def sweep(bench: Study, tokenizer: Path | None, processes: int, **options: Any) -> None:
    """Find the drafter and the settings that are fastest here.

    The model answers the shipped prompts once, plainly. Then each cell of the grid is replayed on
    these replies, without further passes, at the cost of passes measured on this machine. Numbers
    are given one by one, as a range A..B, or with commas; each option may be repeated. Drafters
    keep their defaults for other settings; without any setting akunu chooses a grid.

    The recommendation is the cell that is best on half of the sessions, with its speed on the other
    half next to the default's. Cells whose replies differ from plain decoding are marked, and
    recommended only with --recommend.

    \b
    Examples:
      akunu bench sweep
      akunu bench sweep --drafter ngram --order 2..6 --num-draft-tokens 1..8 --output sweep
      akunu bench sweep --trace mine.jsonl --curve m5-max-70b-4bit
      akunu bench sweep --live --draft-model draft.gguf --drafter draft-model --draft-length entropy
      akunu bench sweep --live --temp 1 --drafter counts --draft-sampling coupled
          --draft-sampling rejection --lenience 1 --lenience 0.5
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_lab.sweep.heat_map import choose_axes  # numpy
    from akunu_lab.sweep.plan import make_plan
    from akunu_lab.sweep.run import SweepOptions

    axes = _axes(options)
    _check(bench, options)
    options["max_tokens"] = options["max_tokens"] or (_QUICK_TOKENS if bench.quick else _TOKENS)
    options |= {
        "categories": bench.categories,
        "limit": bench.limit,
        "temperature": bench.temperature,
        "seed": bench.seed,
    }
    loading = bench.loading
    plan = make_plan(
        bench.drafters,
        axes,
        live=options["live"],
        temperature=bench.temperature,
        has_draft_model=loading is not None and loading.draft_model is not None,
        has_counts=options["counts"] is not None,
        quick=bench.quick,
    )
    choose_axes(dict.fromkeys(plan.grid.cells, 1.0), options["heat_axes"], plan.default.drafter)
    _warn(plan.grid.cells, bench.temperature)
    settled = SweepOptions(plan=plan, processes=processes, **options)
    arguments = {
        "drafters": bench.drafters, "axes": axes, "tokenizer": tokenizer, **options,
        **bench.settled,
    }  # fmt: skip
    opened = bench.engine() if settled.needs_model else contextlib.nullcontext()
    with opened as engine:
        own = load_tokenizer(tokenizer) if engine is None else engine.tokenizer
        _measure(bench, settled, arguments, engine, own)


def _axes(options: dict[str, Any]) -> "dict[str, Sequence[Setting]]":
    """Remove the axes from the options, and return them."""
    from akunu_lab.sweep.grid import parse_numbers  # numpy

    numbers = ("num_draft_tokens", "order", "window", "min_match", "num_proposals")
    axes: dict[str, Sequence[Setting]] = {}
    for axis in (*numbers, "draft_length", "draft_sampling", "lenience"):
        if given := options.pop(axis):
            axes[axis] = parse_numbers(given) if axis in numbers else tuple(dict.fromkeys(given))
    if options.pop("no_adjust"):
        axes["adjust"] = ("yes", "no")
    return axes


def _warn(cells: "Iterable[Cell]", temperature: float) -> None:
    """Warn once if any cell is not exact."""
    from akunu_py.api import GenerationConfig

    relaxed = next((cell for cell in cells if not cell.is_exact), None)
    if relaxed is not None:
        config = relaxed.config(GenerationConfig(temperature=temperature))
        quiet = click.get_current_context().find_root().params.get("quiet")
        if config.exactness == "none" and not quiet:
            click.echo(
                "Warning: replies are not exact: what is drafted changes how likely they are.",
                err=True,
            )


def _check(bench: Study, options: Mapping[str, Any]) -> None:
    if options["traces"] and options["live"]:
        raise click.UsageError("--live decodes prompts; leave out --trace")
    if options["traces"] and bench.categories:
        raise click.UsageError("--category chooses shipped prompts; leave it out with --trace")


def _measure(
    bench: Study,
    options: "SweepOptions",
    arguments: dict[str, object],
    engine: "Engine | None",
    tokenizer: "Tokenizer",
) -> None:
    from akunu_lab.study.hashes import model_hash
    from akunu_lab.sweep.report import make_report, sweep_findings
    from akunu_lab.sweep.run import run_sweep

    inputs = {"traces_sha256": [model_hash(path) for path in options.traces]}
    with bench.study(arguments, engine=engine, inputs=inputs) as run:
        report = make_report(
            run_sweep(options, run.store, engine=engine, tokenizer=tokenizer, bar=bench.progress)
        )
    result = run.result(sweep_findings(report))
    if not (bench.as_json or bench.as_csv or bench.markdown):
        _print_heat_map(report)
    # A recommendation is printed below its table.
    words = () if report.recommendation is not None else (report.words,)
    bench.emit(
        result, _head(options, result, report), "\n".join((*options.plan.grid.notes, *words))
    )


def _head(options: "SweepOptions", result: "BenchResult", report: "Report") -> str:
    all_cells, done = len(options.plan.grid.cells), len(report.sweep.counts)
    size = f"{all_cells}" if done == all_cells else f"{done} of {all_cells}"
    what = "decoded" if options.live else "replayed on"
    source = f"{len(result.items)} items"
    cost = options.curve or "measured"
    speed = "by the clock" if options.live else f"passes cost as {cost}"
    name = "" if result.model is None else f"{result.model.name}; "
    return f"{name}{size} cells {what} {source}; {speed}"


def _print_heat_map(report: "Report") -> None:
    from rich.console import Console  # 0.1 s that --help must not pay
    from rich.text import Text

    from akunu_lab.sweep.heat_map import on_terminal

    heat_map = report.heat_map
    if heat_map is None:
        return
    console = Console(width=None if sys.stdout.isatty() else 100, highlight=False)
    title = f"Best speed by {heat_map.y_heading} (rows) and {heat_map.x_heading} (columns)"
    console.print(Text(title, style="bold"))
    console.print(on_terminal(heat_map))
    console.print()
