"""The progress bar of a long prompt."""

from terminal_screen import TerminalScreen

from akunu_py.cli.terminal import prompt_progress


def written(monkeypatch, *steps):
    """Everything that a terminal is sent of steps (done, total)."""
    screen = TerminalScreen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    with prompt_progress() as progress:
        for done, total in steps:
            progress(done, total)
    assert not "".join(screen.rows()).strip()
    return "".join(screen.written)


def test_a_bar_has_the_prompts_tokens_from_its_first_frame_on(monkeypatch):
    text = written(monkeypatch, (0, 1500), (512, 1500), (1500, 1500))
    assert "0/1500 tokens" in text
    assert "/100" not in text


def test_a_short_rest_of_a_prompt_has_no_bar(monkeypatch):
    assert "tokens" not in written(monkeypatch, (1000, 1500), (1500, 1500))
