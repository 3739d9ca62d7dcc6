"""`akunu bench compare`: other programs on the same weights and token ids, in one run."""

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from akunu_py.cli import completing
from akunu_py.cli.bench_options import chosen_prompts, limit_option, limited, prompt_options
from akunu_py.cli.bench_output import Output, output_options, quick_option
from akunu_py.cli.command import Command
from akunu_py.cli.count_progress import count_progress
from akunu_py.cli.loading_options import (
    LoadingOptions,
    loading_options,
    model_argument,
    model_path,
    recorded,
    settle_weights,
)
from akunu_py.cli.terminal import let_others_end

if TYPE_CHECKING:
    from akunu_py.bench.result_file import BenchResult, Failure
    from akunu_py.bench.workloads import Prompt
    from akunu_py.models.load import LoadOptions
    from akunu_py.models.memory_check import MemoryPart

_QUICK_LIMIT = 1
_QUICK_TOKENS = 48
_TOKENS = 96
_PROGRAMS = ("mlx-lm", "llama.cpp", "transformers")
_MODULES = {"mlx-lm": "mlx_lm", "llama.cpp": "xllamacpp", "transformers": "torch"}


@click.command(cls=Command)
@model_argument
@click.option(
    "--drafter",
    "drafters",
    shell_complete=completing.drafters,
    multiple=True,
    metavar="NAME",
    help="Measure akunu with this drafter; repeatable. auto and ngram, and draft-model with "
    "--draft-model, when left out.",
)
@click.option(
    "--program",
    "programs",
    multiple=True,
    type=click.Choice(_PROGRAMS),
    help="Compare with this program; repeatable.  [default: all]",
)
@click.option(
    "-t",
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="Compute with N threads in every program, on the CPU; one a core, when left out.",
)
@prompt_options
@limit_option
@quick_option
@click.option(
    "--max-tokens",
    type=click.IntRange(min=2),
    metavar="N",
    help=f"Generate at most N tokens a reply.  [default: {_TOKENS}; {_QUICK_TOKENS} with --quick]",
)
@click.option(
    "--draft-budget",
    type=click.Choice(["auto", "always"]),
    default="auto",
    show_default=True,
    help="akunu's drafts: what pays on this machine, or always everything. With always the passes "
    "are the same in every run.",
)
@output_options
@loading_options(draft_model=True)
def compare(  # noqa: PLR0917 - click passes by name
    model: str | None,
    drafters: tuple[str, ...],
    programs: tuple[str, ...],
    threads: int | None,
    categories: tuple[str, ...],
    files: tuple[Path, ...],
    limit: int | None,
    quick: bool,
    max_tokens: int | None,
    draft_budget: str,
    loading: LoadingOptions,
    output: Output,
) -> None:
    """Compare akunu with mlx-lm, llama.cpp and transformers, greedily, in one run.

    Each prompt is encoded once. Every arm decodes it from empty caches, with another arm first each
    time, and each program has its own process. mlx-lm decodes plainly and with --draft-model, on
    akunu's weights; llama.cpp plainly and with each of its n-gram modes, on the same GGUF file;
    transformers plainly and with its prompt lookup, on the dequantised weights in float32. All
    draft with their default settings. A program that is not installed or cannot run the model is
    skipped with the reason, and with the command that installs it.

    \b
    Examples:
      akunu bench compare --quick
      akunu bench compare model.gguf --program llama.cpp --threads 4 --output compared
    """  # noqa: D301 - \b keeps click from wrapping the examples
    limit = limited(limit, _QUICK_LIMIT, is_quick=quick)
    for name in ("adapter", "kv_bits", "reproducible"):
        if getattr(loading, name):
            raise click.UsageError(f"--{name.replace('_', '-')} has no counterpart elsewhere")
    if not drafters:
        drafters = ("auto", "ngram", *(["draft-model"] if loading.draft_model else []))
    if max_tokens is None:
        max_tokens = _QUICK_TOKENS if quick else _TOKENS
    from akunu_py.cpu.blas import allowed_cores

    prompts, failures = chosen_prompts(files, categories, limit)
    arguments = {
        "model": model,
        "drafters": list(dict.fromkeys(drafters)),
        "programs": [name for name in _PROGRAMS if not programs or name in programs],
        "threads": threads or allowed_cores(),
        "category": categories,
        "prompts": files,
        "limit": limit,
        "max_tokens": max_tokens,
        "draft_budget": draft_budget,
        **recorded(loading),
    }
    let_others_end()
    result = _run(arguments, loading, prompts, failures, output)
    output.emit(result, _head(result))


def _run(
    arguments: dict[str, Any],
    loading: LoadingOptions,
    prompts: Sequence["Prompt"],
    failures: Sequence["Failure"],
    output: Output,
) -> "BenchResult":
    from akunu_lab.compare.run import PROGRAMS, CompareOptions, run_compare  # imports MLX

    path, draft_path = model_path(arguments["model"]), None
    if loading.draft_model is not None:
        draft_path = model_path(str(loading.draft_model))
    others = _others(path, loading.of_model(), arguments["programs"])
    loading = settle_weights(path, replace(loading, draft_model=draft_path), others)
    arguments["exact_weights"] = loading.exact_weights
    with count_progress("replies", "setting up") as progress:
        return run_compare(
            path,
            prompts,
            CompareOptions(
                drafters=tuple(arguments["drafters"]),
                programs=tuple(PROGRAMS[name] for name in arguments["programs"]),
                max_tokens=arguments["max_tokens"],
                draft_budget=arguments["draft_budget"],
                num_threads=arguments["threads"],
                load=loading.of_model(),
                context=loading.context,
                draft_path=draft_path,
            ),
            begin=partial(output.run, "compare", arguments),
            failures=failures,
            progress=progress,
        )


def _others(path: Path, options: "LoadOptions", programs: Sequence[str]) -> list["MemoryPart"]:
    """Return the bytes of a model's weights that the installed programs will need beside akunu."""
    from akunu_py.models.memory_check import MemoryPart  # imports MLX
    from akunu_py.models.requirements import requirements

    if not (path.is_file() or path.is_dir()):
        return []
    found = requirements(path, options)
    sizes = {
        "mlx-lm": found.weights_bytes,
        "llama.cpp": found.file_bytes if path.is_file() else 0,
        "transformers": 4 * found.parameters,
    }
    return [
        MemoryPart(f"{name}'s weights", sizes[name])
        for name in programs
        if importlib.util.find_spec(_MODULES[name]) is not None
    ]


def _head(result: "BenchResult") -> str:
    environment, found = result.environment, result.model
    weights = "" if found is None else f"{found.name}, {found.weights} weights; "
    threads = f"{result.arguments['threads']} threads, " if environment.device == "cpu" else ""
    return (
        f"{weights}{environment.device_name} ({environment.device}), {threads}"
        f"MLX {environment.mlx}\n{len(result.items)} prompts, greedy, up to "
        f"{result.arguments['max_tokens']} tokens a reply; {result.seconds:.0f} s\n"
    )
