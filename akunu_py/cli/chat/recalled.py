"""Turns of a conversation that goes on, shown as they were when they were said."""

import os
import shutil
import sys

import click

from akunu_py.cli.chat.attachments import find_attachments, question_of
from akunu_py.cli.chat.line_input import prompt_rows
from akunu_py.cli.reply_view import make_view
from akunu_py.cli.terminal import printable
from akunu_py.engine.conversation import Turn
from akunu_py.engine.reasoning import answer_of
from akunu_py.values.reply_deltas import ContentDelta
from akunu_py.values.types import StreamEvent

_CHARACTERS, _LINES = 1_000, 10
"""A longer message, a paste most often, is shown by its first line and its size."""


def show_turn(turn: Turn, *, plain: bool) -> None:
    """Print a message as it was typed, and the answer as it was drawn, on standard output."""
    question = question_of(turn.user)
    files = turn.user.removesuffix(question)
    for _, _, name in find_attachments(files):
        click.echo(click.style(printable(f"with {name}"), dim=True))
    if len(question) > _CHARACTERS or question.count("\n") >= _LINES:
        first = question.strip().partition("\n")[0][:_CHARACTERS]
        question = f"{first}\n[{len(question):,} characters]"
    mark = click.style("> ", bold=True, fg=None if os.environ.get("NO_COLOR") else 32)
    rows = prompt_rows(printable(question), shutil.get_terminal_size().columns)
    click.echo(mark + "\n  ".join(rows) + "\n")
    answer = answer_of(turn.assistant).strip("\n")
    with make_view(plain=plain, stream=sys.stdout) as view:
        view.feed(StreamEvent(answer, (), deltas=(ContentDelta(answer),)))
