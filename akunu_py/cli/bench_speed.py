"""`akunu bench speed`: tokens a second next to mlx-lm's own decoding."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

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
    from akunu_py.bench.result_file import BenchResult, Failure
    from akunu_py.bench.runner import Item
    from akunu_py.bench.speed import SpeedReport
    from akunu_py.engine.engine import Engine
    from akunu_py.protocols import Tokenizer

_OPTIONS_OF_FILES = ("compute_type", "exact_weights", "q6k", "pre_tokenizer", "context")
_MOST_PROMPT_TOKENS = 1024
_LIMIT, _QUICK_LIMIT = 4, 1


@click.command(cls=Command)
@model_argument
@click.option(
    "--random-model",
    metavar="NAME",
    help="Build a model with random weights instead: llama-135m, llama-tiny.",
)
@click.option(
    "--trace",
    "traces",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Force the choices to the recorded replies of this file; repeatable. Without one the "
    "model answers the shipped prompts with its own.",
)
@click.option(
    "--tokenizer",
    "tokenizer_path",
    type=click.Path(path_type=Path),
    metavar="MODEL|GGUF",
    help="With --random-model: tokenize with this model's tokenizer.  [default: the shipped model]",
)
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
    help=f"Use N prompts of each category, or N items of each trace.  [default: {_LIMIT}]",
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
@click.option(
    "--max-prompt-tokens",
    type=click.IntRange(min=8),
    default=_MOST_PROMPT_TOKENS,
    show_default=True,
    metavar="N",
    help="Leave out items of a trace with longer prompts.",
)
@temperature_option
@quick_option
@loading_options(draft_model=True, heads=True)
@output_options
def speed(  # noqa: PLR0917 - click passes by name
    model: str | None,
    random_model: str | None,
    traces: tuple[Path, ...],
    tokenizer_path: Path | None,
    limit: int | None,
    quick: bool,
    max_prompt_tokens: int,
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
    table counts drafted tokens by where they come from, if a drafter has several sources. With
    --trace the choices are forced to recorded replies: passes are real, and how much is accepted is
    the recording's.

    With --streams mlx-lm has no part. Figures are tokens per second of processor time while all
    places are taken, prompts left out, and ratios are to the first number of the same drafter, and
    to the first drafter at the same number, which a second table has by kind of text. A kind needs
    five times as many prompts as the largest number for an interval.

    \b
    Examples:
      akunu bench speed
      akunu bench speed --random-model llama-135m --trace edits.jsonl
      akunu bench speed --streams 1,2,4,8 --limit 20 --drafter none --drafter auto
    """  # noqa: D301 - \b keeps click from wrapping the examples
    if random_model is not None and model is not None:
        raise click.UsageError("give either a MODEL or --random-model")
    if tokenizer_path is not None and random_model is None:
        raise click.UsageError("--tokenizer goes with --random-model; a MODEL has its own")
    for name in ("kv_bits", "reproducible"):
        if getattr(loading, name):
            raise click.UsageError(
                f"--{name.replace('_', '-')} has no counterpart in mlx-lm's loop"
            )
    if measuring["temperature"] and not streams:
        raise click.UsageError("--temperature goes with --streams; mlx-lm's part is greedy")
    if traces and (streams or categories):
        name = "--streams" if streams else "--category"
        raise click.UsageError(f"{name} is about the shipped prompts; leave out --trace")
    limit = limited(limit, _QUICK_LIMIT, is_quick=quick) or _LIMIT
    from akunu_py.bench.engine_arm import model_of  # imports MLX
    from akunu_py.bench.measured_model import model_from
    from akunu_py.bench.runner import encode_items
    from akunu_py.bench.speed import content_hash, run_speed, speed_findings
    from akunu_py.bench.streams import run_streams
    from akunu_py.bench.workloads import load_prompts

    arguments = {
        "model": model,
        "random_model": random_model,
        "trace": traces,
        "tokenizer": tokenizer_path,
        "limit": limit,
        "max_prompt_tokens": max_prompt_tokens,
        "streams": streams,
        "categories": categories,
        **measuring,
        **recorded(loading),
    }
    let_others_end()
    with _engine(model, random_model, tokenizer_path, loading) as engine:
        failures: list[Failure] = []
        if traces:
            items = _trace_items(
                engine.tokenizer,
                traces,
                failures,
                limit=limit,
                max_prompt_tokens=max_prompt_tokens,
                max_tokens=measuring["max_tokens"],
            )
        else:
            items, failures = encode_items(
                engine.tokenizer, load_prompts(categories or None, limit=limit), engine.context
            )
        described = model_of(engine, hashed=random_model is None)
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
    output.emit(result, _head(result, report, forced=bool(traces), **measuring))


def _engine(
    model: str | None, random_model: str | None, tokenizer: Path | None, loading: LoadingOptions
) -> "Engine":
    if random_model is None:
        return load_engine(model, loading)
    _refuse_options_of_files()
    from akunu_py.cli.bench_replay import load_tokenizer
    from akunu_py.engine.engine import Engine  # imports MLX
    from akunu_py.models.random_models import build_random_model

    engine = Engine(build_random_model(random_model, load_tokenizer(tokenizer)))
    engine.compares_rows = False
    return engine


def _refuse_options_of_files() -> None:
    """Refuse options that a model built here has no use for, rather than pass them over."""
    context = click.get_current_context()
    for name in _OPTIONS_OF_FILES:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"--{name.replace('_', '-')} is about a model that is loaded; leave it out with "
                "--random-model"
            )


def _trace_items(
    tokenizer: "Tokenizer",
    traces: tuple[Path, ...],
    failures: list["Failure"],
    *,
    limit: int,
    max_prompt_tokens: int,
    max_tokens: int,
) -> list["Item"]:
    """Return the first items of each trace that are short enough to ask and long enough to tell.

    Lines and items that cannot be used go to `failures`.
    """
    from akunu_py.bench.replay.tokens import tokenize
    from akunu_py.bench.replay.traces import read_trace
    from akunu_py.bench.runner import Item

    items: list[Item] = []
    for path in traces:
        found = 0
        for item in read_trace(path, failures):
            for encoded in tokenize([item], tokenizer, failures=failures):
                if len(encoded.prompt) > max_prompt_tokens:
                    continue
                if len(encoded.output) < max_tokens:
                    continue
                name = f"{path.stem}/{item.id}"
                items.append(
                    Item(name, path.stem, item.session, encoded.prompt, text=encoded.output)
                )
                found += 1
            if found == limit:
                break
        if not found:
            raise click.UsageError(
                f"{path} has no item with at most {max_prompt_tokens} tokens of prompt and at "
                f"least {max_tokens} of output"
            )
    return items


def _head(
    result: "BenchResult",
    report: "SpeedReport",
    *,
    forced: bool,
    max_tokens: int,
    num_draft_tokens: int | None,
    **_others: Any,
) -> str:
    choices = "forced to recorded replies" if forced else "the model's own"
    most = "each drafter's own number" if num_draft_tokens is None else num_draft_tokens
    how = f"choices: {choices}; {max_tokens} tokens a reply, up to {most} drafted"
    head = f"{model_line(result)}\n{how}"
    if (times := report.times) is None:
        return head
    costs = ", ".join(f"{rows}: {cost:.2f}" for rows, cost in times.costs.items())
    return f"{head}\na plain step takes {times.unit_s * 1e3:.2f} ms; rows and costs: {costs}"
