"""`--plain` and `--reasoning` as commands pass them on; a reply on a terminal, and in a pipe."""

from types import SimpleNamespace

import pytest
from terminal_screen import TerminalScreen

from akunu_py.cli.view_options import view_of
from akunu_py.values.types import StreamEvent

TEXT = "thought</think>**said**"


class Tokens:
    """A tokenizer whose ids are characters; 0 is a control token."""

    def decode(self, ids, *, with_control=False):
        return "".join("<think>" * with_control if id_ == 0 else chr(id_) for id_ in ids)


@pytest.mark.parametrize(
    ("prompt", "options", "rows"),
    [
        ([*b"x" * 99, 0, 10], {}, ["thought", "", "said"]),
        ([*b"x" * 99, 0, 10], {"reasoning": "hide"}, ["said"]),
        ([*b"x" * 99, 0, 10], {"reasoning": "hide", "plain": True}, ["**said**"]),
        ([*b"x"], {"reasoning": "hide"}, ["thought</think>said"]),
        ([*b"x"], {"plain": True}, ["thought</think>**said**"]),
    ],
)
def test_a_view_is_told_how_the_prompt_ends(monkeypatch, prompt, options, rows):
    screen = TerminalScreen()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    screen.fileno = lambda: -1
    options = {"plain": False, "reasoning": "show", **options}
    with view_of(SimpleNamespace(prompt=tuple(prompt)), Tokens(), **options) as view:
        view.feed(StreamEvent(TEXT, ()))
    assert screen.rows() == rows


def test_a_reply_that_fails_is_ended(monkeypatch):
    screen = TerminalScreen()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    screen.fileno = lambda: -1
    view = view_of(SimpleNamespace(prompt=()), Tokens(), plain=False, reasoning="show")

    def fail():
        with view:
            view.feed(StreamEvent("half a", ()))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert screen.rows() == ["half a"]
    assert screen.screen.cursor.x == 0
    assert screen.screen.mode == screen.modes
