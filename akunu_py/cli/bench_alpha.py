"""`akunu bench alpha`: how likely a model accepts a drafted token, by where it was drafted from."""

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from akunu_py.bench.workloads import CATEGORIES, load_prompts
from akunu_py.cli.count_progress import count_progress
from akunu_py.cli.options import load_engine, model_options
from akunu_py.cli.terminal import printable

if TYPE_CHECKING:
    from rich.console import Console

    from akunu_py.bench.alpha.report import AlphaReport, Figure, Prediction, Setting

_WIDTH_OF_A_FILE = 100
_DEFAULT_DRAFT = "akunu-tiny-draft.gguf"


@click.command()
@click.argument("model", required=False)
@click.option(
    "--draft-model",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A smaller model to draft with. For the model that ships with akunu, the one that ships "
    "with it.",
)
@click.option(
    "--temperature",
    "--temp",
    "temperatures",
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
    default=10_000,
    show_default=True,
    metavar="N",
    help="Measure on N tokens for each temperature.",
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
    help="Fit unigrams and bigrams on this text (UTF-8); without it on the replies to the other "
    "half of the prompts.",
)
@click.option(
    "--category",
    "categories",
    multiple=True,
    type=click.Choice(CATEGORIES),
    help="Use the prompts of this category; repeatable. All, when left out.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the noise.")
@click.option(
    "--speed",
    is_flag=True,
    help="Also hold the speed that theory predicts against a clock, for the drafter ngram and the "
    "draft model.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of tables.")
@model_options
def alpha(  # noqa: PLR0917 - click passes by name
    model: str | None,
    draft_model: Path | None,
    categories: tuple[str, ...],
    speed: bool,
    as_json: bool,
    loading: dict[str, Any],
    **measuring: Any,
) -> None:
    """Measure how likely a model accepts a drafted token, for several ways to draft it.

    The model answers the shipped prompts; at each of its tokens p is its distribution and q that of
    the draft, both after the same transforms. alpha is sum min(p, q), what rejection sampling
    accepts; coupled what draws by the target's own noise accept, which is the default; independent
    what draws with other noise accept. All are computed from p and q.

    \b
    Examples:
      akunu bench alpha
      akunu bench alpha --temperature 0.5 --temperature 1.5 --tokens 2000
      akunu bench alpha large.gguf --draft-model small.gguf --lenience 0.5 --lenience 0.1
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_py.bench.alpha.run import (  # noqa: PLC0415 - MLX
        check_alpha_options,
        run_alpha,
        with_predictions,
    )

    # A mistyped option should not cost the seconds that a large model takes to load.
    check_alpha_options(
        measuring["temperatures"],
        measuring["num_tokens"],
        measuring["lenience"],
        measuring["seed"],
    )
    if draft_model is None and model is None:
        draft_model = _shipped_draft()
    prompts = load_prompts(categories or None)
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(load_engine(model, loading))
        draft = None
        if draft_model is not None:
            draft = stack.enter_context(load_engine(str(draft_model), loading))
        progress = stack.enter_context(count_progress("tokens"))
        report = run_alpha(engine, prompts, draft=draft, progress=progress, **measuring)
    if speed:
        # An engine of its own: there the draft model drafts.
        with (
            load_engine(model, {**loading, "draft_model": draft_model}) as engine,
            count_progress("replies", "measuring passes") as progress,
        ):
            report = with_predictions(report, engine, prompts, progress=progress)
    if as_json:
        click.echo(json.dumps(report.to_dict()))
    else:
        _print(report)


def _shipped_draft() -> Path | None:
    """Return the draft model next to the default model, where it is installed."""
    from akunu_py.models.load import default_model_path  # noqa: PLC0415 - MLX

    path = default_model_path().with_name(_DEFAULT_DRAFT)
    return path if path.is_file() else None


def _print(report: "AlphaReport") -> None:
    from rich.console import Console  # noqa: PLC0415 - 0.1 s that --help must not pay
    from rich.text import Text  # noqa: PLC0415

    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE, highlight=False)
    draft = "none" if report.draft_model is None else report.draft_model.name
    # Text, not markup: a model's name may hold brackets.
    console.print(
        Text(
            printable(
                f"{report.model.name}, {report.model.weights} weights; draft model {draft}; "
                f"seed {report.seed}\n"
                f"unigrams and bigrams fitted on {report.corpus}"
            )
        )
    )
    for setting in report.settings:
        _print_setting(console, setting, report.num_tokens)
    if report.predictions:
        _print_predictions(console, report.predictions)


def _print_setting(console: "Console", setting: "Setting", num_tokens: int) -> None:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console.print()
    console.print(
        Text(
            f"temperature {setting.temperature:g}: {setting.num_tokens} tokens of "
            f"{setting.num_replies} replies"
        )
    )
    if setting.num_tokens < num_tokens:
        console.print(
            Text(f"fewer than {num_tokens}: greedy replies to these prompts have no more")
        )
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("q", no_wrap=True)
    lenience = list(setting.sources[0].lenient)
    for heading in (
        "drafts",
        "alpha",
        "95 %",
        "coupled",
        "independent",
        *(f"lenient\n{share:g}" for share in lenience),
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for source in setting.sources:
        low, high = source.alpha.interval
        figures: list[Figure] = [source.coupled, source.match]
        figures += (source.lenient[share] for share in lenience)
        table.add_row(
            source.name,
            f"{source.known:.0%}",
            f"{source.alpha.value:.3f}",
            f"{low:.3f}-{high:.3f}",
            *(f"{figure.value:.3f}" for figure in figures),
        )
    console.print(table)
    if lenience:
        console.print(Text("lenient: not exact; what is accepted does not follow the model's law"))


def _print_predictions(console: "Console", predictions: "Sequence[Prediction]") -> None:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console.print()
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("drafter", no_wrap=True)
    for heading in (
        "T", "gamma", "drafts", "accepted", "c", "C", "speed\n3.8", "speed\nwith C",
        "speed\nmeasured", "a pass\npredicted", "a pass\nmeasured",
    ):  # fmt: skip
        table.add_column(heading, justify="right", no_wrap=True)
    for made in predictions:
        table.add_row(
            made.drafter,
            f"{made.temperature:g}",
            str(made.num_draft_tokens),
            f"{made.known:.0%}",
            f"{made.acceptance:.3f}",
            f"{made.draft_cost:.3f}",
            f"{made.pass_cost:.2f}",
            f"{made.theorem:.2f}",
            f"{made.predicted:.2f}",
            f"{made.measured:.2f}",
            f"{made.predicted_tokens_per_pass:.2f}",
            f"{made.tokens_per_pass:.2f}",
        )
    console.print(table)
    console.print(
        Text(
            "accepted: by coupled draws, where there is a draft. c, C: a drafted token, and a\n"
            "pass over gamma + 1 rows, in plain steps. speed: over plain decoding, predicted by\n"
            "theorem 3.8 of arXiv:2211.17192, with C in place of 1, and measured. a pass: tokens"
        )
    )
