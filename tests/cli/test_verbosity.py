"""The log on a terminal."""

import logging

import click
import pytest
from terminal_screen import TerminalScreen

from akunu_py.cli.verbosity import set_up_logging


@pytest.fixture
def log():
    logger = logging.getLogger("akunu_py")
    before, level = list(logger.handlers), logger.level
    yield logging.getLogger("akunu_py.somewhere")
    logger.handlers[:] = before
    logger.setLevel(level)


def test_names_in_messages_cannot_change_the_terminals_state(monkeypatch, log):
    screen = TerminalScreen()
    monkeypatch.setattr("sys.stderr", screen)
    context = click.Context(click.Command("akunu"))
    context.params = {"verbose": False, "quiet": False}
    set_up_logging(context)
    log.warning("the memory %s is ignored", "a\x1b]0;owned\x07\x1b[31m\x9b2J\u202e")
    assert screen.screen.title == ""
    assert screen.rows()[0].startswith("akunu: the memory a\N{REPLACEMENT CHARACTER}]0;owned")
    assert not set("".join(screen.written)) & set("\x1b\x07\x9b\u202e")
