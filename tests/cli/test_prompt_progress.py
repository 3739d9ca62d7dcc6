"""The progress bar of what takes a while: prompts that are read, passes that are measured."""

import time

import pytest
from terminal_screen import TerminalScreen

from akunu_py.cli import terminal
from akunu_py.cli.terminal import prompt_progress


def screen_in(monkeypatch):
    """Make standard error a terminal; in the test itself, as pytest exchanges it before."""
    screen = TerminalScreen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    return screen


def shown(screen, words):
    """Wait for words on the screen: another thread draws."""
    end = time.monotonic() + 300
    while words not in screen.text():
        assert time.monotonic() < end, screen.text()
        time.sleep(0.01)


def test_a_bar_comes_while_the_first_pass_is_under_way(monkeypatch):
    screen = screen_in(monkeypatch)
    monkeypatch.setattr(terminal, "_BAR_AFTER_S", 0.0)
    with prompt_progress() as progress:
        progress(0, 1500)
        # Nobody calls back before the pass is over.
        shown(screen, "reading")
        shown(screen, "0/1500 tokens")
        progress(512, 1500)
        shown(screen, "512/1500 tokens")
        progress(1500, 1500)
        assert not screen.text().strip()
    assert not screen.text().strip()
    assert not screen.screen.cursor.hidden


def test_passes_of_a_minute_have_a_time_that_is_left(monkeypatch):
    screen = screen_in(monkeypatch)
    now = [0.0]
    monkeypatch.setattr(terminal, "_BAR_AFTER_S", 0.0)
    monkeypatch.setattr("rich.console.monotonic", lambda: now[0])
    with prompt_progress() as progress:
        for done in (0, 512, 1024):
            progress(done, 1536)
            now[0] += 60
        shown(screen, "1024/1536 tokens 01:00")


def test_an_interrupt_leaves_no_bar(monkeypatch):
    screen = screen_in(monkeypatch)
    monkeypatch.setattr(terminal, "_BAR_AFTER_S", 0.0)

    def interrupted():
        with prompt_progress("measuring", "rounds") as progress:
            progress(0, 7)
            shown(screen, "0/7 rounds")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not screen.text().strip()


def test_what_is_over_soon_has_no_bar(monkeypatch):
    screen = screen_in(monkeypatch)
    monkeypatch.setattr(terminal, "_BAR_AFTER_S", 3600)
    with prompt_progress() as progress:
        progress(0, 1500)
        progress(1500, 1500)
    with prompt_progress() as progress:
        progress(0, 1500)
    assert "tokens" not in "".join(screen.written)


def test_a_bar_is_due_within_a_third_of_a_second():
    assert terminal._BAR_AFTER_S <= 0.3


@pytest.mark.parametrize("kind", ["dumb", "unknown"])
def test_a_dumb_terminal_has_no_bar(monkeypatch, kind):
    screen = screen_in(monkeypatch)
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr(terminal, "_BAR_AFTER_S", 0.0)
    with prompt_progress() as progress:
        progress(0, 1500)
        progress(1500, 1500)
    assert not screen.written
