"""`akunu bench recorded`: the speed of passes whose choices are forced to recorded replies."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from akunu_lab.commands.replay import load_tokenizer
from akunu_py.cli import completing
from akunu_py.cli.bench_options import limited
from akunu_py.cli.bench_output import Output, output_options, quick_option
from akunu_py.cli.bench_speed import speed_head
from akunu_py.cli.command import Command
from akunu_py.cli.count_progress import count_progress
from akunu_py.cli.loading_options import (
    LoadingOptions,
    load_engine,
    loading_options,
)
from akunu_py.cli.loading_options import (
    recorded as recorded_options,
)
from akunu_py.cli.terminal import let_others_end

if TYPE_CHECKING:
    from akunu_py.bench.result_file import Failure
    from akunu_py.bench.runner import Item
    from akunu_py.engine.engine import Engine
    from akunu_py.protocols import Tokenizer

_OPTIONS_OF_FILES = ("compute_type", "exact_weights", "q6k", "pre_tokenizer", "context")
_MOST_PROMPT_TOKENS = 1024
_LIMIT, _QUICK_LIMIT = 4, 1


@click.command(cls=Command)
@click.argument("traces", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--model", metavar="MODEL", help="Run this model.  [default: the settings' own]")
@click.option(
    "--random-model",
    metavar="NAME",
    help="Build a model with random weights instead: llama-135m, llama-tiny.",
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
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Use N items of each trace.  [default: {_LIMIT}]",
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
    help="Leave out items with longer prompts.",
)
@quick_option
@loading_options(draft_model=True, heads=True)
@output_options
def recorded(  # noqa: PLR0917 - click passes by name
    traces: tuple[Path, ...],
    model: str | None,
    random_model: str | None,
    tokenizer_path: Path | None,
    limit: int | None,
    quick: bool,
    max_prompt_tokens: int,
    loading: LoadingOptions,
    output: Output,
    **measuring: Any,
) -> None:
    """Compare decoding with mlx-lm's own, forced to recorded replies.

    TRACES are files of one JSON object a line: id, category, prompt, output. Passes are real, and
    how much is accepted is the recording's. Figures are those of `akunu bench speed`.

    \b
    Examples:
      akunu bench recorded edits.jsonl
      akunu bench recorded edits.jsonl --random-model llama-135m
    """  # noqa: D301 - \b keeps click from wrapping the examples
    if random_model is not None and model is not None:
        raise click.UsageError("give either --model or --random-model")
    if tokenizer_path is not None and random_model is None:
        raise click.UsageError("--tokenizer goes with --random-model; a model has its own")
    for name in ("kv_bits", "reproducible"):
        if getattr(loading, name):
            raise click.UsageError(
                f"--{name.replace('_', '-')} has no counterpart in mlx-lm's loop"
            )
    limit = limited(limit, _QUICK_LIMIT, is_quick=quick) or _LIMIT
    from akunu_py.bench.engine_arm import model_of  # imports MLX
    from akunu_py.bench.measured_model import model_from
    from akunu_py.bench.speed import content_hash, run_speed, speed_findings

    arguments = {
        "traces": traces,
        "model": model,
        "random_model": random_model,
        "tokenizer": tokenizer_path,
        "limit": limit,
        "max_prompt_tokens": max_prompt_tokens,
        **measuring,
        **recorded_options(loading),
    }
    let_others_end()
    with _engine(model, random_model, tokenizer_path, loading) as engine:
        failures: list[Failure] = []
        items = _items(
            engine.tokenizer,
            traces,
            failures,
            limit=limit,
            max_prompt_tokens=max_prompt_tokens,
            max_tokens=measuring["max_tokens"],
        )
        described = model_of(engine, hashed=random_model is None)
        draft = None if engine.draft_model is None else model_from(engine.draft_model)
        inputs = {"cases": content_hash(items)}
        with (
            output.run(
                "recorded", arguments, model=described, draft_model=draft, inputs=inputs
            ) as run,
            count_progress("replies", "measuring passes") as progress,
        ):
            report = run_speed(engine, items, store=run.store, progress=progress, **measuring)
    result = run.result(speed_findings(report, failures))
    output.emit(result, speed_head(result, report, "forced to recorded replies", **measuring))


def _engine(
    model: str | None, random_model: str | None, tokenizer: Path | None, loading: LoadingOptions
) -> "Engine":
    if random_model is None:
        return load_engine(model, loading)
    _refuse_options_of_files()
    from akunu_lab.random_models import build_random_model
    from akunu_py.engine.engine import Engine  # imports MLX

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


def _items(
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
    from akunu_lab.replay.tokens import tokenize
    from akunu_lab.replay.traces import read_trace
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
