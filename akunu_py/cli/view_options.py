"""Options of how a reply is drawn."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import click

from akunu_py.cli.command import option, stack

_P = ParamSpec("_P")
_R = TypeVar("_R")


def view_options(function: Callable[_P, _R]) -> Callable[..., _R]:
    """Add `--plain` and `--reasoning`, passed as `plain` and `reasoning`."""
    options: tuple[Callable[..., Any], ...] = (
        option(
            "--reasoning", type=click.Choice(["show", "fold", "hide"]), default="show",
            metavar="HOW",
            help="Show, fold or hide the reasoning of a model.",
        ),
        option(
            "--plain", is_flag=True,
            help="Print Markdown as it is, without formatting it.",
        ),
    )  # fmt: skip
    return stack(options, function)
