"""`akunu bench alpha`: the probability that a model accepts a drafted token, by source."""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from akunu_py.bench.workloads import first_of_each, load_prompts
from akunu_py.cli.bench_options import (
    category_option,
    check_temperatures,
    limit_option,
    limited,
    seed_option,
)
from akunu_py.cli.bench_output import Output, output_options, quick_option
from akunu_py.cli.command import Command, option
from akunu_py.cli.count_progress import count_progress
from akunu_py.cli.loading_options import (
    LoadingOptions,
    load_engine,
    loading_options,
    model_argument,
    recorded,
)
from akunu_py.model_store.default_model import default_model_path

if TYPE_CHECKING:
    from akunu_lab.alpha.report import AlphaReport
    from akunu_py.bench.result_file import BenchResult

_TOKENS, _QUICK_TOKENS = 10_000, 350
_QUICK_PROMPTS = 2
_DEFAULT_DRAFT = "akunu-tiny-draft.gguf"


@click.command(cls=Command)
@model_argument
@click.option(
    "--draft-model",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A smaller model to draft with. For the model that ships with akunu, the one that ships "
    "with it.",
)
@option(
    "-t",
    "--temperature",
    "temperatures",
    also=("--temp",),
    callback=check_temperatures,
    type=float,
    multiple=True,
    default=(0.0, 1.0),
    show_default=True,
    help="Of target and drafts alike; repeatable.",
)
@click.option(
    "--tokens",
    "num_tokens",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Measure on N tokens for each temperature.  [default: {_TOKENS:,}; {_QUICK_TOKENS} with "
    "--quick]",
)
@click.option(
    "--lenience",
    type=float,
    multiple=True,
    metavar="L",
    help="Also measure what is accepted with this lenience, above 0 and at most 1; repeatable.",
)
@click.option(
    "--corpus",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Fit unigrams and bigrams on this text (UTF-8); by default on the replies to the other "
    "half of the prompts.",
)
@category_option
@limit_option
@seed_option
@click.option(
    "--speed",
    is_flag=True,
    help="Also compare predicted with measured speed, for the drafter ngram and the draft model.",
)
@quick_option
@loading_options()
@output_options
def alpha(  # noqa: PLR0917 - click passes by name
    model: str | None,
    draft_model: Path | None,
    categories: tuple[str, ...],
    speed: bool,
    num_tokens: int | None,
    limit: int | None,
    quick: bool,
    loading: LoadingOptions,
    output: Output,
    **measuring: Any,
) -> None:
    """Measure the probability that a model accepts a drafted token, by the source of drafts.

    The model answers the shipped prompts. At each of its tokens p is its distribution and q the
    draft's, both after the same transforms. Three rates are computed from p and q: alpha is sum
    min(p, q), the acceptance of rejection sampling; coupled is the acceptance of draws with the
    target's own noise, which is the default; independent is that of draws with other noise.

    \b
    Examples:
      akunu bench alpha
      akunu bench alpha --temperature 0.5 --temperature 1.5 --tokens 2000
      akunu bench alpha large.gguf --draft-model small.gguf --lenience 0.5 --lenience 0.1
    """  # noqa: D301 - \b keeps click from wrapping the examples
    limit = limited(limit, _QUICK_PROMPTS, is_quick=quick)
    measuring["temperatures"] = tuple(dict.fromkeys(measuring["temperatures"]))
    measuring["num_tokens"] = num_tokens or (_QUICK_TOKENS if quick else _TOKENS)
    from akunu_lab.alpha.run import check_alpha_options, run_alpha, with_predictions
    from akunu_py.bench.engine_arm import model_of  # imports MLX
    from akunu_py.bench.measured_model import model_hash

    # A mistyped option should not cost the seconds that a large model takes to load.
    check_alpha_options(
        measuring["temperatures"],
        measuring["num_tokens"],
        measuring["lenience"],
        measuring["seed"],
    )
    if draft_model is None and model is None:
        draft_model = _shipped_draft()
    prompts = first_of_each(load_prompts(categories or None), limit)
    corpus = measuring["corpus"]
    arguments = {
        "model": model,
        "draft_model": draft_model,
        "category": categories,
        "limit": limit,
        "speed": speed,
        **measuring,
        **recorded(replace(loading, draft_model=draft_model)),
    }
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(load_engine(model, loading))
        draft, drafting = None, None
        if draft_model is not None:
            draft = stack.enter_context(load_engine(str(draft_model), loading))
            drafting = model_of(draft, hashed=True)
        corpus_hash = None if corpus is None else model_hash(corpus)
        run = stack.enter_context(
            output.run(
                "alpha",
                arguments,
                model=model_of(engine, hashed=True),
                draft_model=drafting,
                inputs={"corpus_hash": corpus_hash},
            )
        )
        progress = stack.enter_context(count_progress("tokens"))
        report = run_alpha(
            engine, prompts, draft=draft, store=run.store, progress=progress, **measuring
        )
    if speed and report.finished:
        # A second engine, in which the draft model drafts.
        with (
            load_engine(model, replace(loading, draft_model=draft_model)) as engine,
            count_progress("replies", "measuring passes") as progress,
        ):
            report = with_predictions(report, engine, prompts, progress=progress)
    result = run.result(report.findings(corpus_hash))
    output.emit(result, _head(result, report))


def _shipped_draft() -> Path | None:
    """Return the draft model next to the default model, where it is installed."""
    path = default_model_path().with_name(_DEFAULT_DRAFT)
    return path if path.is_file() else None


def _head(result: "BenchResult", report: "AlphaReport") -> str:
    draft = "none" if result.draft_model is None else result.draft_model.name
    model = "" if result.model is None else f"{result.model.name}, {result.model.weights} weights; "
    return (
        f"{model}draft model {draft}; seed {report.seed}\n"
        f"unigrams and bigrams fitted on {report.corpus}\n"
    )
