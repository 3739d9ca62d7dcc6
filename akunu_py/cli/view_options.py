"""Options of how a reply is drawn, and the view they make."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from akunu_py.cli.command import option, stack

if TYPE_CHECKING:
    from akunu_py.cli.reply_view import Reasoning, ReplyView
    from akunu_py.cli.reply_view.draft_tint import NameOf
    from akunu_py.engine.reply_stream import ReplyStream
    from akunu_py.protocols import Tokenizer

_P = ParamSpec("_P")
_R = TypeVar("_R")


def view_options(function: Callable[_P, _R]) -> Callable[..., _R]:
    """Add `--plain` and `--reasoning`, passed as `plain` and `reasoning`."""
    options: tuple[Callable[..., Any], ...] = (
        option(
            "--reasoning", type=click.Choice(["show", "fold", "hide"]), default="show",
            metavar="HOW",
            help="Show, fold or hide the thoughts of a model.",
        ),
        option(
            "--plain", is_flag=True,
            help="Print Markdown as it is, without formatting it.",
        ),
    )  # fmt: skip
    return stack(options, function)


def view_of(
    stream: "ReplyStream",
    tokenizer: "Tokenizer",
    *,
    plain: bool,
    reasoning: "Reasoning",
    show_drafts: bool = False,
    name_source: "NameOf | None" = None,
) -> "ReplyView":
    """Return what shows a reply on standard output."""
    from akunu_py.cli.reply_view import make_view
    from akunu_py.engine.reasoning import end_of_prompt

    return make_view(
        plain=plain,
        show_drafts=show_drafts,
        name_source=name_source,
        reasoning=reasoning,
        stream=sys.stdout,
        prompt_end=end_of_prompt(stream.prompt, tokenizer),
    )
