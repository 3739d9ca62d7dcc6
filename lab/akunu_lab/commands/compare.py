"""`akunu bench compare`: other programs on the same weights and token ids, in one run."""

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from akunu_lab.study.study import Study
from akunu_py.api import Command, measuring

if TYPE_CHECKING:
    from akunu_py.api import BenchResult

_QUICK_TOKENS = 48
_TOKENS = 96
_PROGRAMS = ("mlx-lm", "llama.cpp", "transformers")
_MODULES = {"mlx-lm": "mlx_lm", "llama.cpp": "xllamacpp", "transformers": "torch"}


@click.command(cls=Command)
@click.option(
    "--program",
    "programs",
    multiple=True,
    type=click.Choice(_PROGRAMS),
    help="Compare with this program; repeatable.  [default: all]",
)
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
@click.option(
    "-t",
    "--threads",
    type=click.IntRange(min=1),
    default=lambda: len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
    show_default="one a core",
    metavar="N",
    help="Compute with N threads in every program, on the CPU.",
)
@measuring(
    Study,
    model=True,
    loading=("draft_model",),
    drafters="Measure akunu with this drafter; repeatable. auto and ngram, and draft-model with "
    "--draft-model, when left out.",
    prompts="files",
    limit="Use N prompts of each category.",
    quick=1,
)
def compare(
    bench: Study,
    programs: tuple[str, ...],
    max_tokens: int | None,
    threads: int,
    draft_budget: Literal["auto", "always"],
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
    loading = bench.loading
    for name in ("adapter", "kv_bits", "reproducible"):
        if getattr(loading, name):
            raise click.UsageError(f"--{name.replace('_', '-')} has no counterpart elsewhere")
    drafters = list(dict.fromkeys(bench.drafters)) or ["auto", "ngram"]
    if not bench.drafters and loading is not None and loading.draft_model:
        drafters.append("draft-model")
    programs = tuple(name for name in _PROGRAMS if not programs or name in programs)
    from akunu_lab.compare.run import CompareOptions, check_drafters, run_compare  # imports MLX

    check_drafters(drafters)
    prompts, failures = bench.prompts()
    options = CompareOptions(
        drafters=tuple(drafters),
        programs=programs,
        max_tokens=max_tokens or (_QUICK_TOKENS if bench.quick else _TOKENS),
        draft_budget=draft_budget,
        num_threads=threads,
    )
    arguments: dict[str, Any] = {
        "drafters": drafters,
        "programs": programs,
        "threads": threads,
        "category": bench.categories,
        "prompts": bench.files,
        "limit": bench.limit,
        "max_tokens": options.max_tokens,
        "draft_budget": draft_budget,
        **bench.settled,
    }
    with (
        bench.engine(
            beside=_others(programs, is_file=bench.model_path().is_file()), waits=True
        ) as engine,
        bench.progress("replies", "setting up") as progress,
    ):
        bench.fix_threads(threads)
        result = run_compare(
            engine,
            prompts,
            options,
            begin=lambda inputs: bench.study(arguments, engine=engine, inputs=inputs),
            failures=failures,
            progress=progress,
        )
    bench.emit(result, _head(result))


def _others(programs: Sequence[str], *, is_file: bool) -> Callable[[Any], Mapping[str, int]]:
    """Return the bytes of weights that the installed programs will need beside akunu."""

    def beside(model: Any) -> Mapping[str, int]:
        sizes = {
            "mlx-lm": model.weights_bytes,
            "llama.cpp": model.file_bytes if is_file else 0,
            "transformers": 4 * model.parameters,
        }
        return {
            f"{name}'s weights": sizes[name]
            for name in programs
            if importlib.util.find_spec(_MODULES[name]) is not None
        }

    return beside


def _head(result: "BenchResult") -> str:
    environment, found = result.environment, result.model
    weights = "" if found is None else f"{found.name}, {found.weights} weights; "
    threads = f"{result.arguments['threads']} threads, " if environment.device == "cpu" else ""
    return (
        f"{weights}{environment.device_name} ({environment.device}), {threads}"
        f"MLX {environment.mlx}\n{len(result.items)} prompts, greedy, up to "
        f"{result.arguments['max_tokens']} tokens a reply; {result.seconds:.0f} s\n"
    )
