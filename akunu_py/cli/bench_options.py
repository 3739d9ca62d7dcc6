"""Options that commands under `akunu bench` share; those of results are in `bench_output`."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from akunu_py.bench.workloads import CATEGORIES
from akunu_py.cli.command import option, typed_name
from akunu_py.cli.reply_options import check_short_temperature

if TYPE_CHECKING:
    from akunu_py.bench.result_file import Failure
    from akunu_py.bench.workloads import Prompt

Command = Callable[..., Any]


def category_option(command: Command) -> Command:
    """Add --category over the shipped workloads, `categories`; none are all."""
    return click.option(
        "--category",
        "categories",
        multiple=True,
        type=click.Choice(CATEGORIES),
        help="Use the prompts of this category; repeatable.  [default: all]",
    )(command)


def prompt_options(command: Command) -> Command:
    """Add --category, `categories`, and --prompts, `files`; see `chosen_prompts`."""
    command = click.option(
        "--prompts",
        "files",
        multiple=True,
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Use the prompts of this file instead of the shipped ones; repeatable. It holds "
        "prompts, a trace, HumanEval's problems or Spec-Bench's questions, a line each.",
    )(command)
    return click.option(
        "--category",
        "categories",
        multiple=True,
        metavar="NAME",
        help=f"Use the prompts of this category; repeatable: {', '.join(CATEGORIES)}, or one that "
        "a file of --prompts names. All, when left out.",
    )(command)


def chosen_prompts(
    files: Iterable[Path], categories: tuple[str, ...], limit: int | None
) -> tuple[list["Prompt"], list["Failure"]]:
    """Return the prompts that `prompt_options` ask for, and the lines of files that do not fit.

    Of each category `limit`, where one is given. Raises ConfigError for a file that cannot be read,
    and, as click's UsageError, for a category that no prompt has.
    """
    from akunu_py.bench.prompt_files import read_prompts
    from akunu_py.bench.result_file import Failure
    from akunu_py.bench.workloads import first_of_each, load_prompts

    prompts: dict[str, Prompt] = {}
    failures: list[Failure] = []
    for path in files:
        found, failed = read_prompts(path)
        failures += failed
        for prompt in found:
            if prompt.id in prompts:
                failures.append(Failure(f"{path.name}, {prompt.id}", "the id occurs twice"))
            prompts.setdefault(prompt.id, prompt)
    if not files:
        return list(load_prompts(categories or None, limit=limit)), []
    kept = [item for item in prompts.values() if not categories or item.category in categories]
    for name in categories:
        if not any(prompt.category == name for prompt in kept):
            known = ", ".join(sorted({prompt.category for prompt in prompts.values()}))
            raise click.UsageError(f"no prompt is of the category {name!r}; there are {known}")
    return first_of_each(kept, limit), failures


def limit_option(command: Command) -> Command:
    """Add --limit, prompts of each category, `limit`; None is all."""
    return click.option(
        "--limit", type=click.IntRange(min=1), metavar="N", help="Use N prompts of each category."
    )(command)


def check_temperatures(
    context: click.Context, parameter: click.Option, given: float | tuple[float, ...]
) -> float | tuple[float, ...]:
    """Return what an option of temperatures was given; refuses a number of threads after -t."""
    for temperature in given if isinstance(given, tuple) else (given,):
        check_short_temperature(temperature, typed_name(parameter, context))
    return given


_MOST_STREAMS = 64


class StreamCounts(click.ParamType[tuple[int, ...]]):
    """Numbers of replies at once, such as 1,2,4,8."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        numbers = value.split(",")
        if not all(number.isdecimal() and 1 <= int(number) <= _MOST_STREAMS for number in numbers):
            self.fail(
                f"{value!r} is not a list of numbers from 1 to {_MOST_STREAMS}, such as 1,2,4,8",
                param,
                ctx,
            )
        return tuple(map(int, numbers))


def temperature_option(command: Command) -> Command:
    """Add --temperature of replies, greedy when left out."""
    return option(
        "-t",
        "--temperature",
        also=("--temp",),
        type=float,
        default=0.0,
        show_default=True,
        callback=check_temperatures,
        help="0 takes the likeliest token; above 0 tokens are drawn.",
    )(command)


def seed_option(command: Command) -> Command:
    """Add --seed, 0 when left out: a measurement is to be the same twice."""
    return option(
        "-s", "--seed", type=int, default=0, show_default=True, help="Seed of the noise."
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
