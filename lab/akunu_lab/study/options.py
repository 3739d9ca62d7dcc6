"""Options that several commands of the laboratory have."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


def tokenizer_option(text: str) -> Callable[..., Any]:
    """Add --tokenizer, `tokenizer`, with this help."""
    return click.option(
        "--tokenizer", type=click.Path(path_type=Path), metavar="MODEL|GGUF", help=text
    )


_MOST_STREAMS = 64


class _Counts(click.ParamType[tuple[int, ...]]):
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


def streams_option(text: str, **more: Any) -> Callable[..., Any]:
    """Add --streams, numbers of replies at once, with this help."""
    return click.option("--streams", type=_Counts(), metavar="N,N...", help=text, **more)


processes_option = click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=lambda: os.cpu_count() or 1,
    show_default="one a core",
    metavar="N",
    help="Replay in N processes.",
)


def speed_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --rounds, --num-draft-tokens and --max-tokens, as `akunu bench speed` has them."""
    for added in (
        click.option(
            "--max-tokens", type=click.IntRange(min=8), default=96, show_default=True,
            metavar="N", help="Decode N tokens a reply.",
        ),
        click.option(
            "--num-draft-tokens", type=click.IntRange(0, 64), metavar="N",
            help="Draft at most N tokens a pass; each drafter's own number when left out.",
        ),
        click.option(
            "--rounds", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
            help="Decode each reply N times in every way, in turns.",
        ),
    ):  # fmt: skip
        function = added(function)
    return function
