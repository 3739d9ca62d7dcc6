"""`akunu bench recorded`: the speed of passes whose choices are forced to recorded replies."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from akunu_lab.study.options import speed_options, tokenizer_option
from akunu_lab.study.study import Study
from akunu_py.api import Command, load_tokenizer, measuring

if TYPE_CHECKING:
    from akunu_py.api import Engine, Failure, Item, Tokenizer

_OPTIONS_OF_FILES = ("compute_type", "q6k", "pre_tokenizer", "context")
_MOST_PROMPT_TOKENS = 1024


@click.command(cls=Command)
@click.argument("traces", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--model", metavar="MODEL", help="Run this model.  [default: the settings' own]")
@click.option(
    "--random-model",
    metavar="NAME",
    help="Build a model with random weights instead: llama-135m, llama-tiny.",
)
@speed_options
@click.option(
    "--max-prompt-tokens",
    type=click.IntRange(min=8),
    default=_MOST_PROMPT_TOKENS,
    show_default=True,
    metavar="N",
    help="Leave out items with longer prompts.",
)
@tokenizer_option(
    "With --random-model: tokenize with this model's tokenizer.  [default: the shipped model]"
)
@measuring(
    Study,
    loading=("draft_model", "heads"),
    drafters="Measure this drafter; repeatable.",
    drafters_default=("none", "ngram", "auto"),
    limit="Use N items of each trace.",
    limit_default=4,
    quick=1,
)
def recorded(
    bench: Study,
    traces: tuple[Path, ...],
    random_model: str | None,
    tokenizer: Path | None,
    max_prompt_tokens: int,
    **options: Any,
) -> None:
    """Compare decoding with mlx-lm's own, forced to recorded replies.

    TRACES are files of one JSON object a line: id, category, prompt, output. Passes are real, and
    how much is accepted is the recording's. Figures are those of `akunu bench speed`.

    \b
    Examples:
      akunu bench recorded edits.jsonl
      akunu bench recorded edits.jsonl --random-model llama-135m
    """  # noqa: D301 - \b keeps click from wrapping the examples
    if random_model is not None and bench.model is not None:
        raise click.UsageError("give either --model or --random-model")
    if tokenizer is not None and random_model is None:
        raise click.UsageError("--tokenizer goes with --random-model; a model has its own")
    for name in ("kv_bits", "reproducible"):
        if getattr(bench.loading, name):
            raise click.UsageError(
                f"--{name.replace('_', '-')} has no counterpart in mlx-lm's loop"
            )
    from akunu_lab.study.hashes import items_hash
    from akunu_py.api import run_speed  # imports MLX

    arguments = {
        **bench.settled,
        "traces": traces,
        "random_model": random_model,
        "tokenizer": tokenizer,
        "limit": bench.limit,
        "max_prompt_tokens": max_prompt_tokens,
        "drafters": bench.drafters,
        **options,
    }
    with _engine(bench, random_model, tokenizer) as engine:
        failures: list[Failure] = []
        items = _items(
            engine.tokenizer,
            traces,
            failures,
            limit=bench.limit,
            max_prompt_tokens=max_prompt_tokens,
            max_tokens=options["max_tokens"],
        )
        inputs = {"cases": items_hash(items)}
        with (
            bench.study(arguments, engine=engine, inputs=inputs) as run,
            bench.progress("replies", "measuring passes") as progress,
        ):
            report = run_speed(
                engine, items, drafters=bench.drafters, store=run.store, progress=progress,
                **options,
            )  # fmt: skip
    result = run.result(report.findings(failures))
    sizes = {name: options[name] for name in ("max_tokens", "num_draft_tokens")}
    bench.emit(result, report.head(result, "forced to recorded replies", **sizes))


def _engine(bench: Study, random_model: str | None, tokenizer: Path | None) -> "Engine":
    if random_model is None:
        return bench.engine(waits=True)
    _refuse_options_of_files()
    from akunu_lab.random_models import build_random_model

    return build_random_model(random_model, load_tokenizer(tokenizer))


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
    limit: int | None,
    max_prompt_tokens: int,
    max_tokens: int,
) -> list["Item"]:
    """Return the first items of each trace that are short enough to ask and long enough to tell.

    Lines and items that cannot be used go to `failures`.
    """
    from akunu_lab.replay.tokens import tokenize
    from akunu_lab.replay.traces import read_trace
    from akunu_py.api import Item

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
