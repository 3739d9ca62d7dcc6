"""`akunu bench alpha`: the probability that a model accepts a drafted token, by source."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from akunu_lab.study.study import Study
from akunu_py.api import Command, measuring

if TYPE_CHECKING:
    from akunu_lab.alpha.report import AlphaReport
    from akunu_py.api import BenchResult

_TOKENS, _QUICK_TOKENS = 10_000, 350
_QUICK_PROMPTS = 2
_DEFAULT_DRAFT = "akunu-tiny-draft.gguf"


@click.command(cls=Command)
@click.option(
    "--draft-model",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A smaller model to draft with. For the model that ships with akunu, the one that ships "
    "with it.",
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
@click.option(
    "--speed",
    is_flag=True,
    help="Also compare predicted with measured speed, for the drafter ngram and the draft model.",
)
@click.option(
    "-t",
    "--temperature",
    "--temp",
    "temperatures",
    type=float,
    multiple=True,
    default=(0.0, 1.0),
    show_default=True,
    help="Of target and drafts alike; repeatable.",
)
@measuring(
    Study,
    model=True,
    loading=(),
    prompts="shipped",
    limit="Use N prompts of each category.",
    quick=_QUICK_PROMPTS,
    seed=True,
)
def alpha(
    bench: Study,
    draft_model: Path | None,
    *,
    speed: bool,
    num_tokens: int | None,
    temperatures: tuple[float, ...],
    **options: Any,
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
    measuring = {
        **options,
        "seed": bench.seed,
        "temperatures": tuple(dict.fromkeys(temperatures)),
        "num_tokens": num_tokens or (_QUICK_TOKENS if bench.quick else _TOKENS),
    }
    from akunu_lab.alpha.run import check_alpha_options, run_alpha, with_predictions  # imports MLX
    from akunu_lab.study.hashes import model_hash

    # A mistyped option should not cost the seconds that a large model takes to load.
    check_alpha_options(
        measuring["temperatures"], measuring["num_tokens"], measuring["lenience"], bench.seed
    )
    prompts, _ = bench.prompts()
    corpus = measuring["corpus"]
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(bench.engine())
        if draft_model is None and bench.model is None:
            shipped = engine.description.path.with_name(_DEFAULT_DRAFT)
            draft_model = shipped if shipped.is_file() else None
        draft = None
        if draft_model is not None:
            draft = stack.enter_context(bench.engine(str(draft_model)))
        corpus_hash = None if corpus is None else model_hash(corpus)
        arguments = {
            "category": bench.categories,
            "limit": bench.limit,
            "speed": speed,
            **measuring,
            **bench.settled,
            "draft_model": draft_model,
        }
        run = stack.enter_context(
            bench.study(arguments, engine=engine, draft=draft, inputs={"corpus_hash": corpus_hash})
        )
        progress = stack.enter_context(bench.progress("tokens"))
        report = run_alpha(
            engine, prompts, draft=draft, store=run.store, progress=progress, **measuring
        )
    if speed and report.finished:
        # A second engine, in which the draft model drafts.
        with (
            bench.engine(draft_model=draft_model) as engine,
            bench.progress("replies", "measuring passes") as progress,
        ):
            report = with_predictions(report, engine, prompts, progress=progress)
    result = run.result(report.findings(corpus_hash))
    bench.emit(result, _head(result, report))


def _head(result: "BenchResult", report: "AlphaReport") -> str:
    draft = "none" if result.draft_model is None else result.draft_model.name
    model = "" if result.model is None else f"{result.model.name}, {result.model.weights} weights; "
    return (
        f"{model}draft model {draft}; seed {report.seed}\n"
        f"unigrams and bigrams fitted on {report.corpus}\n"
    )
