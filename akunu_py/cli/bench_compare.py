"""`akunu bench compare`: other programs on the same weights and token ids, in one run."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from akunu_py.bench.workloads import CATEGORIES
from akunu_py.cli import completing
from akunu_py.cli.bench_options import category_option, limit_option, limited
from akunu_py.cli.bench_output import Output, output_options, quick_option
from akunu_py.cli.count_progress import count_progress
from akunu_py.cli.loading_options import check_memory, draft_model_option, model_options, model_path

if TYPE_CHECKING:
    from akunu_py.bench.compare.arm import Program
    from akunu_py.bench.result_file import BenchResult
    from akunu_py.models.memory_check import MemoryPart

_QUICK_LIMIT = 1
_QUICK_TOKENS = 48
_TOKENS = 96
_PROGRAMS = ("mlx-lm", "llama.cpp", "transformers")
_MODULES = {"llama.cpp": "llama_cpp", "transformers": "torch"}


@click.command()
@click.argument("model", required=False, shell_complete=completing.models)
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
    help="Compare with this program; repeatable. All, when left out.",
)
@category_option
@limit_option
@quick_option
@click.option(
    "--max-tokens",
    type=click.IntRange(min=2),
    metavar="N",
    help=f"Generate at most N tokens a reply.  [default: {_TOKENS}; {_QUICK_TOKENS} with --quick]",
)
@click.option(
    "--num-draft-tokens",
    type=click.IntRange(1, 64),
    metavar="N",
    help="Draft at most N tokens a pass, in all programs; each one's own number when left out.",
)
@click.option(
    "--draft-budget",
    type=click.Choice(["auto", "always"]),
    default="auto",
    show_default=True,
    help="akunu's: draft what pays on this machine, or always all there is. With always its passes "
    "are the same in every run.",
)
@output_options
@model_options
@draft_model_option
def compare(  # noqa: PLR0917 - click passes by name
    model: str | None,
    drafters: tuple[str, ...],
    programs: tuple[str, ...],
    categories: tuple[str, ...],
    limit: int | None,
    quick: bool,
    max_tokens: int | None,
    loading: dict[str, Any],
    output: Output,
    **decoding: Any,
) -> None:
    """Compare akunu with mlx-lm, llama.cpp and transformers, greedily, in one run.

    Each prompt is encoded once and decoded by every arm from empty caches, another one first each
    time. mlx-lm runs the model that akunu loaded, llama.cpp the same GGUF file, transformers the
    dequantised weights in float32. What is not installed or cannot run the model is skipped and
    named; pip install 'akunu-py[compare]' brings llama.cpp and transformers.

    \b
    Examples:
      akunu bench compare --quick
      akunu bench compare model.gguf --draft-model small.gguf --output compared
    """  # noqa: D301 - \b keeps click from wrapping the examples
    limit = limited(limit, _QUICK_LIMIT, is_quick=quick)
    for name in ("kv_bits", "reproducible"):
        if loading[name]:
            raise click.UsageError(f"--{name.replace('_', '-')} has no counterpart elsewhere")
    if not drafters:
        drafters = ("auto", "ngram", *(["draft-model"] if loading["draft_model"] else []))
    if max_tokens is None:
        max_tokens = _QUICK_TOKENS if quick else _TOKENS
    arguments = {
        "model": model,
        "drafters": list(dict.fromkeys(drafters)),
        "programs": [name for name in _PROGRAMS if not programs or name in programs],
        "categories": [name for name in CATEGORIES if not categories or name in categories],
        "limit": limit,
        "max_tokens": max_tokens,
        **decoding,
        **{name: value for name, value in loading.items() if name != "draft_model"},
        "draft_model": None if loading["draft_model"] is None else str(loading["draft_model"]),
    }
    result = _run(arguments, output)
    output.emit(result, _head(result))


def _run(arguments: dict[str, Any], output: Output) -> "BenchResult":
    from akunu_py.bench.compare.run import CompareOptions, run_compare  # noqa: PLC0415 - MLX
    from akunu_py.bench.workloads import load_prompts  # noqa: PLC0415
    from akunu_py.models.load import LoadOptions, draft_options, load_model  # noqa: PLC0415

    names = ("weights", "compute_type", "exact_weights", "q6k", "pre_tokenizer")
    context, draft_path = arguments["context"], None
    path = model_path(arguments["model"])
    if arguments["draft_model"] is not None:
        draft_path = model_path(arguments["draft_model"])
    arguments["exact_weights"] = check_memory(
        path, draft_path, arguments, _others(path, arguments["programs"])
    )
    options = LoadOptions(**{name: arguments[name] for name in names})
    loaded = load_model(path, options, context=context)
    draft_model = None
    if draft_path is not None:
        draft_model = load_model(draft_path, draft_options(draft_path, options))
    with count_progress("replies", "setting up") as progress:
        return run_compare(
            loaded,
            load_prompts(arguments["categories"], limit=arguments["limit"]),
            CompareOptions(
                drafters=tuple(arguments["drafters"]),
                programs=_programs(arguments["programs"]),
                max_tokens=arguments["max_tokens"],
                num_draft_tokens=arguments["num_draft_tokens"],
                draft_budget=arguments["draft_budget"],
            ),
            context=context,
            draft_model=draft_model,
            arguments=arguments,
            open_store=output.items,
            progress=progress,
        )


def _others(path: Path, programs: Sequence[str]) -> list["MemoryPart"]:
    """Return what installed programs will hold of a GGUF file, beside akunu: mlx-lm shares."""
    from akunu_py.gguf.reader import GGUFFile  # noqa: PLC0415
    from akunu_py.models.memory_check import MemoryPart  # noqa: PLC0415 - MLX

    if not path.is_file():
        return []
    with GGUFFile.open(path) as file:
        numbers = sum(tensor.rows * tensor.cols for tensor in file.tensors.values())
        sizes = {"llama.cpp": file.nbytes, "transformers": 4 * numbers}
    return [
        MemoryPart(f"{name}'s weights", sizes[name])
        for name in programs
        if name in sizes and importlib.util.find_spec(_MODULES[name]) is not None
    ]


def _programs(names: list[str]) -> tuple["Program", ...]:
    """Return akunu and the programs of these names."""
    from akunu_py.bench.compare.run import PROGRAMS  # noqa: PLC0415

    return tuple(PROGRAMS[name] for name in ("akunu", *names))


def _head(result: "BenchResult") -> str:
    environment, found = result.environment, result.model
    weights = "" if found is None else f"{found.name}, {found.weights} weights; "
    return (
        f"{weights}{environment.device_name} ({environment.device}), {environment.cpu_count} cores,"
        f" MLX {environment.mlx}\n{len(result.items)} prompts, greedy, up to "
        f"{result.arguments['max_tokens']} tokens a reply; {result.seconds:.0f} s\n"
    )
