"""`akunu bench speed`: tokens a second next to mlx-lm's own decoding."""

from typing import TYPE_CHECKING, Any

import click

from akunu_py.cli import completing
from akunu_py.cli.bench_options import StreamCounts, category_option, limited, temperature_option
from akunu_py.cli.bench_output import Output, model_line, output_options, quick_option
from akunu_py.cli.command import Command
from akunu_py.cli.count_progress import count_progress
from akunu_py.cli.loading_options import (
    LoadingOptions,
    load_engine,
    loading_options,
    model_argument,
    recorded,
)
from akunu_py.cli.terminal import let_others_end

if TYPE_CHECKING:
    from akunu_py.bench.result_file import BenchResult
    from akunu_py.bench.speed import SpeedReport

_LIMIT, _QUICK_LIMIT = 4, 1


@click.command(cls=Command)
@model_argument
@click.option(
    "--drafter",
    "drafters",
    shell_complete=completing.drafters,
    multiple=True,
    default=("none", "ngram", "auto"),
    show_default=True,
    metavar="NAME",
    help="Measure this drafter; repeatable.",
)
@click.option(
    "--streams",
    type=StreamCounts(),
    default=None,
    metavar="N,N...",
    help="Compare numbers of replies at once, such as 1,2,4,8, instead of mlx-lm.",
)
@category_option
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Use N prompts of each category.  [default: {_LIMIT}]",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Decode each reply N times in every way, in turns.",
)
@click.option(
    "--num-draft-tokens",
    type=click.IntRange(0, 64),
    metavar="N",
    help="Draft at most N tokens a pass; each drafter's own number when left out.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=8),
    default=96,
    show_default=True,
    metavar="N",
    help="Decode N tokens a reply.",
)
@temperature_option
@quick_option
@loading_options(draft_model=True, heads=True)
@output_options
def speed(  # noqa: PLR0917 - click passes by name
    model: str | None,
    limit: int | None,
    quick: bool,
    streams: tuple[int, ...] | None,
    categories: tuple[str, ...],
    loading: LoadingOptions,
    output: Output,
    **measuring: Any,
) -> None:
    """Compare decoding with mlx-lm's own, greedily, ids to ids, in one run.

    Every case is decoded by mlx-lm's generate_step and by akunu with each drafter, in turns. Ratios
    are of tokens a second to mlx-lm's: the median of the pairs with its 95 % interval; files have
    that of all tokens, too. Outside is the share of the time that is not spent in passes. A second
    table counts drafted tokens by where they come from, if a drafter has several sources.

    With --streams mlx-lm has no part. Figures are tokens per second of processor time while all
    places are taken, prompts left out, and ratios are to the first number of the same drafter, and
    to the first drafter at the same number, which a second table has by kind of text. A kind needs
    five times as many prompts as the largest number for an interval.

    \b
    Examples:
      akunu bench speed
      akunu bench speed --streams 1,2,4,8 --limit 20 --drafter none --drafter auto
    """  # noqa: D301 - \b keeps click from wrapping the examples
    for name in ("kv_bits", "reproducible"):
        if getattr(loading, name):
            raise click.UsageError(
                f"--{name.replace('_', '-')} has no counterpart in mlx-lm's loop"
            )
    if measuring["temperature"] and not streams:
        raise click.UsageError("--temperature goes with --streams; mlx-lm's part is greedy")
    limit = limited(limit, _QUICK_LIMIT, is_quick=quick) or _LIMIT
    from akunu_py.bench.engine_arm import model_of  # imports MLX
    from akunu_py.bench.measured_model import model_from
    from akunu_py.bench.runner import encode_items
    from akunu_py.bench.speed import content_hash, run_speed, speed_findings
    from akunu_py.bench.streams import run_streams
    from akunu_py.bench.workloads import load_prompts

    arguments = {
        "model": model,
        "limit": limit,
        "streams": streams,
        "categories": categories,
        **measuring,
        **recorded(loading),
    }
    let_others_end()
    with load_engine(model, loading) as engine:
        items, failures = encode_items(
            engine.tokenizer, load_prompts(categories or None, limit=limit), engine.context
        )
        described = model_of(engine)
        draft = None if engine.draft_model is None else model_from(engine.draft_model)
        inputs = {"cases": content_hash(items)}
        with (
            output.run(
                "speed", arguments, model=described, draft_model=draft, inputs=inputs
            ) as run,
            count_progress("replies", "measuring passes") as progress,
        ):
            measuring |= {"store": run.store, "progress": progress}
            if streams is None:
                del measuring["temperature"]
                report = run_speed(engine, items, **measuring)
            else:
                report = run_streams(engine, items, streams=streams, **measuring)
    result = run.result(speed_findings(report, failures))
    output.emit(result, speed_head(result, report, "the model's own", **measuring))


def speed_head(
    result: "BenchResult",
    report: "SpeedReport",
    choices: str,
    *,
    max_tokens: int,
    num_draft_tokens: int | None,
    **_others: Any,
) -> str:
    """Return the lines above the tables: model, whose choices, sizes, costs of passes."""
    most = "each drafter's own number" if num_draft_tokens is None else num_draft_tokens
    how = f"choices: {choices}; {max_tokens} tokens a reply, up to {most} drafted"
    head = f"{model_line(result)}\n{how}"
    if (times := report.times) is None:
        return head
    costs = ", ".join(f"{rows}: {cost:.2f}" for rows, cost in times.costs.items())
    return f"{head}\na plain step takes {times.unit_s * 1e3:.2f} ms; rows and costs: {costs}"
