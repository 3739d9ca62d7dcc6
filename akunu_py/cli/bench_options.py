"""Options that commands under `akunu bench` share; those of results are in `bench_output`."""

from collections.abc import Callable
from typing import Any

import click

from akunu_py.bench.workloads import CATEGORIES

Command = Callable[..., Any]


def category_option(command: Command) -> Command:
    """Add --category over the shipped workloads, `categories`; none are all."""
    return click.option(
        "--category",
        "categories",
        multiple=True,
        type=click.Choice(CATEGORIES),
        help="Use the prompts of this category; repeatable. All, when left out.",
    )(command)


def limit_option(command: Command) -> Command:
    """Add --limit, prompts of each category, `limit`; None is all."""
    return click.option(
        "--limit", type=click.IntRange(min=1), metavar="N", help="Use N prompts of each category."
    )(command)


def temperature_option(command: Command) -> Command:
    """Add --temperature of replies, greedy when left out."""
    return click.option(
        "--temperature",
        "--temp",
        type=float,
        default=0.0,
        show_default=True,
        help="0 takes the likeliest token; above 0 tokens are drawn.",
    )(command)


def seed_option(command: Command) -> Command:
    """Add --seed, 0 when left out: a measurement is to be the same twice."""
    return click.option(
        "--seed", type=int, default=0, show_default=True, help="Seed of the noise."
    )(command)


def processes_option(command: Command) -> Command:
    """Add --processes of a replay, `processes`; None is one a core."""
    return click.option(
        "--processes",
        type=click.IntRange(min=1),
        metavar="N",
        help="Replay in N processes.  [default: one a core]",
    )(command)


def limited(limit: int | None, quick: int, *, is_quick: bool) -> int | None:
    """Return how many prompts or items are taken: what --limit says, or `quick` with --quick."""
    return quick if is_quick and limit is None else limit
