"""`akunu bench`: measurements on this machine."""

import importlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from akunu_py.bench.workloads import CATEGORIES, load_prompts
from akunu_py.cli.count_progress import count_progress
from akunu_py.cli.options import draft_model_option, load_engine, model_options
from akunu_py.cli.terminal import printable

if TYPE_CHECKING:
    from akunu_py.bench.report import HitRateReport, Summary
    from akunu_py.bench.workloads import Prompt

_QUICK_LIMIT = 3
_WIDTH_OF_A_FILE = 100
"""Columns of a table that does not go to a terminal."""


_LATER = {
    "alpha": "akunu_py.cli.bench_alpha:alpha",
    "compare": "akunu_py.cli.bench_compare:compare",
    "replay": "akunu_py.cli.bench_replay:replay",
    "speed": "akunu_py.cli.bench_speed:speed",
    "sweep": "akunu_py.cli.bench_sweep:sweep",
}


class _BenchGroup(click.Group):
    """Imports most commands when they are asked for: their options are their own."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, for --help."""
        return sorted({*super().list_commands(ctx), *_LATER})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name."""
        if cmd_name not in _LATER:
            return super().get_command(ctx, cmd_name)
        module, _, name = _LATER[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.group(cls=_BenchGroup)
def bench() -> None:
    """Measure what drafting brings on this machine."""


@bench.command("hit-rate")
@click.argument("model", required=False)
@click.option(
    "--drafter",
    default="ngram",
    show_default=True,
    help="auto, ngram, ngram-window, lookup, recycling, tree, draft-model, draft-model-ngram, or a "
    "plug-in's name; none shows how far two equal runs differ.",
)
@click.option(
    "--num-draft-tokens",
    type=int,
    metavar="N",
    help="Draft at most N tokens a pass; the drafter's own number when left out.",
)
@click.option(
    "--draft-budget",
    type=click.Choice(["auto", "always"]),
    default="always",
    show_default=True,
    help="Draft all there is, for rates that are the drafter's own, or what pays on this machine.",
)
@click.option(
    "--max-tokens",
    type=int,
    default=128,
    show_default=True,
    metavar="N",
    help="Generate at most N tokens a reply.",
)
@click.option(
    "--temperature",
    "--temp",
    type=float,
    default=0.0,
    show_default=True,
    help="0 takes the likeliest token; above 0 tokens are drawn.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the noise.")
@click.option(
    "--category",
    "categories",
    multiple=True,
    type=click.Choice(CATEGORIES),
    help="Use the prompts of this category; repeatable. All, when left out.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="Use N prompts of each category."
)
@click.option("--quick", is_flag=True, help=f"The same as --limit {_QUICK_LIMIT}.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of a table.")
@model_options
@draft_model_option
def hit_rate(  # noqa: PLR0917 - click passes by name
    model: str | None,
    categories: tuple[str, ...],
    limit: int | None,
    quick: bool,
    as_json: bool,
    loading: dict[str, Any],
    **measuring: Any,
) -> None:
    """Measure how many drafted tokens a model accepts, and the speedup.

    Each prompt of a shipped set is answered with and without drafting. Fire rate is the share of
    passes with a draft, hit rate accepted over drafted tokens, alpha accepted over compared ones;
    tokens a pass counts all passes. Speeds are of decoding alone. Identical counts the prompts
    whose two replies are the same, token by token.

    \b
    Examples:
      akunu bench hit-rate
      akunu bench hit-rate model.gguf --quick --category edit
    """  # noqa: D301 - \b keeps click from wrapping the examples
    if quick and limit is not None:
        raise click.UsageError("give either --quick or --limit")
    from akunu_py.bench.hit_rate import check_options, run_hit_rate  # noqa: PLC0415 - MLX

    # A mistyped option should not cost the seconds that a large model takes to load.
    check_options(**measuring)
    prompts = _limited(load_prompts(categories or None), _QUICK_LIMIT if quick else limit)
    with (
        load_engine(model, loading) as engine,
        count_progress("replies", "warming up") as progress,
    ):
        report = run_hit_rate(engine, prompts, progress=progress, **measuring)
    if as_json:
        click.echo(json.dumps({**report.to_dict(), "kv_bits": loading["kv_bits"]}))
    else:
        _print_table(report)


def _limited(prompts: Iterable["Prompt"], limit: int | None) -> list["Prompt"]:
    """Keep the first prompts of each category."""
    kept: list[Prompt] = []
    counts: dict[str, int] = {}
    for prompt in prompts:
        counts[prompt.category] = counts.get(prompt.category, 0) + 1
        if limit is None or counts[prompt.category] <= limit:
            kept.append(prompt)
    return kept


def _print_table(report: "HitRateReport") -> None:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - 0.1 s that --help must not pay
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE, highlight=False)
    config, model, environment = report.config, report.model, report.environment
    # Text, not markup: a model's name may hold brackets.
    console.print(
        Text(
            printable(
                f"{model.name} ({Path(model.path).name}), {model.weights} weights; "
                f"{environment.device_name} ({environment.device}), MLX {environment.mlx}\n"
                f"drafter {config.drafter}, up to {config.num_draft_tokens} tokens drafted, "
                f"up to {config.max_tokens} generated, temperature {config.temperature:g}, "
                f"seed {config.seed}"
            )
        )
    )
    # Lines and spaces saved until the table fits into 80 columns.
    table = Table(
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
        padding=(0, 1, 0, 0),
    )
    table.add_column("category", no_wrap=True)
    headings = (
        "fire\nrate", "hit\nrate", "alpha", "tokens\na pass", "tokens/s\noff", "tokens/s\non",
        "speedup", "identical",
    )  # fmt: skip
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for category, summary in report.categories.items():
        table.add_row(category, *_cells(summary))
    table.add_section()
    table.add_row("all", *_cells(report.total), style="bold")
    console.print(table)
    for outcome in report.differences:
        margin = outcome.top2_margin
        reason = "" if margin is None else f"; the two likeliest lie {margin:.2g} apart there"
        console.print(
            Text(
                f"{outcome.id}: differs from generated token {outcome.first_difference} on{reason}"
            )
        )


def _cells(summary: "Summary") -> list[str]:
    stats = summary.stats
    return [
        _cell(stats.fire_rate, ".0%"),
        _cell(stats.hit_rate, ".0%"),
        _cell(stats.alpha, ".0%"),
        _cell(stats.tokens_per_pass, ".2f"),
        _cell(summary.off_tokens_per_s, ".1f"),
        _cell(summary.on_tokens_per_s, ".1f"),
        _cell(summary.speedup, ".2f", "x"),
        f"{summary.num_identical}/{summary.num_prompts}",
    ]


def _cell(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"
