"""`akunu demo`: two real runs of one edit, in turns, on a terminal and without."""

import re
from types import SimpleNamespace

import pytest

pytest.importorskip("termios")

from click.testing import CliRunner
from gguf_files import write_tiny_llama
from pty_child import PtyChild
from terminal_screen import TerminalScreen

from akunu_py.cli import demo_race
from akunu_py.cli.demo_race import Runner, race
from akunu_py.cli.demo_view import SideBySide
from akunu_py.cli.main import cli
from akunu_py.values.types import GenerationConfig, StreamEvent, TextPiece


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The random llama, with room for the demo's prompt."""
    return write_tiny_llama(
        tmp_path_factory.mktemp("demo") / "m.gguf", vocabulary="spm", tied=False, context=1024
    )


def test_without_a_terminal_both_replies_are_printed(model):
    result = CliRunner().invoke(cli, ["demo", str(model)])
    assert result.exit_code == 0, result.output
    plain, drafted = re.findall(
        r"^(?:plain|with drafts): (\d+) tokens in \d+\.\d s$", result.output, re.MULTILINE
    )
    assert int(plain) == int(drafted)
    assert re.search(rf"^{drafted} tokens? in \d+ pass", result.output, re.MULTILINE)
    assert re.search(
        rf"The same {plain} tokens, \d+\.\d times as (fast|slow): \d+ instead of \d+ tokens/s, "
        r"\d+\.\d s instead of \d+\.\d s\.",
        result.output,
    )
    assert "\x1b" not in result.output


@pytest.mark.slow
@pytest.mark.parametrize("columns", [50, 80, 160])
def test_on_a_terminal_they_stand_side_by_side(model, tmp_path, columns):
    with PtyChild("demo", model, home=tmp_path, rows=50, columns=columns) as child:
        child.until("plain ")
        child.type("typed\r\r\r")  # for the shell, and not into what is drawn
        assert child.wait() == 0
    screen = TerminalScreen(columns, 50)
    screen.write(child.seen)
    rows = screen.rows()
    assert max(map(len, rows)) <= columns
    (head,) = (row for row in rows if row.startswith("plain "))
    clock = r"(\d+ tokens/s · )?\d+\.\d s"
    assert re.fullmatch(rf"plain +{clock} │ with drafts +{clock}", head)
    assert ("tokens/s" in head) == (columns > 50)
    assert "typed" not in screen.text()
    assert any(row.startswith("The same") for row in rows)
    assert len([row for row in rows if "─┼─" in row]) == 1


@pytest.mark.slow
def test_an_interrupt_ends_it(model, tmp_path):
    with PtyChild("demo", model, home=tmp_path) as child:
        child.until("with drafts")
        child.interrupt()
        assert child.wait() == 130
    assert "Traceback" not in child.seen


def test_whoever_is_behind_goes_on():
    turns = []

    class Fake:
        def __init__(self, name, pace):
            self.name, self.pace, self.seconds, self.steps, self.result = name, pace, 0.0, 0, None

        def run(self):
            turns.append(self.name)
            self.seconds += self.pace
            self.steps += 1
            self.result = "done" if self.steps == 3 else None

    shown = []
    race([Fake("a", 1.0), Fake("b", 0.4)], lambda: shown.append(len(turns)))
    assert "".join(turns) == "abbbaa"
    assert shown == [1, 2, 3, 4, 5, 6]


def test_a_clock_runs_in_its_own_turns_until_the_device_is_idle(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(demo_race, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def steps():
        for number in range(5):
            now[0] += 0.04
            yield StreamEvent(f"w{number}", (number,), None, "over" if number == 4 else None)

    def wait():
        now[0] += 0.01

    engine = SimpleNamespace(stream_chat=lambda _messages, _config: steps(), wait=wait)
    taken = []
    runner = Runner(engine, [], GenerationConfig(), taken.append)
    runner.run(0.1)
    assert (len(taken), runner.seconds) == (3, pytest.approx(0.13))
    now[0] += 100  # somebody else's turn
    runner.run(0.1)
    assert (len(taken), runner.seconds) == (5, pytest.approx(0.22))
    assert runner.result == "over"


def test_columns_wrap_and_are_tinted():
    screen = TerminalScreen(70, 12)
    view = SideBySide(screen, ("plain", "with drafts"), screen.size)
    plain, drafted = view.columns
    words = "some words that go on and on, " * 3
    plain.take(StreamEvent(words, (1,)))
    drafted.take(StreamEvent(words, (1, 2, 3, 4), None, None, (TextPiece(words, "prompt", 3),)))
    view.draw([1.0, 0.5])
    view.finish([1.25, 0.5])
    rows = screen.rows()
    # Of one and of four tokens.
    assert re.fullmatch(r"plain +1 tokens/s · 1\.2 s │ with drafts +8 tokens/s · 0\.5 s", rows[0])
    assert all(row[34] == "│" for row in rows[2:])
    cells = screen.screen.buffer[2]
    assert cells[0].fg == "default"
    assert cells[36].fg != "default"
