"""What is typed, pasted and piped, and the history, without a terminal."""

import io
import os
import threading

import click
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from akunu_py.cli.chat.commands import Completion
from akunu_py.cli.chat.line_input import Line, PlainLines, TypedLines


@pytest.fixture
def keys():
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        yield keys


@pytest.fixture
def typed(keys, tmp_path):
    lines = TypedLines(
        tmp_path / "data" / "history", lambda before: [Completion("/help", len(before))],
        source=keys, screen=DummyOutput(),
    )  # fmt: skip

    def read(text):
        # A pipe takes 64 kB until somebody reads.
        sender = threading.Thread(target=keys.send_text, args=(text,))
        sender.start()
        try:
            return lines.read()
        finally:
            sender.join()

    return read


def paste(text):
    return f"\x1b[200~{text}\x1b[201~"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("hello\r", Line("hello")),
        ("a\x1b\rb\r", Line("a\nb")),
        ('"""a\rb"""\r', Line("a\nb", quoted=True)),
        ('"""/help"""\r', Line("/help", quoted=True)),
        ('"""\r"""\r', Line("", quoted=True)),
        ('"""""\ra"""\r', Line('""\na', quoted=True)),
        (paste("a\r\nb\rc\n") + "d\r", Line("a\nb\nc\nd")),
        ("gone\x03kept\r", Line("kept")),
        ("/h\t\r", Line("/help")),
        (paste("x\x1b[2Jy") + "\r", Line("x\x1b[2Jy")),
    ],
)
def test_what_is_typed(typed, text, line):
    assert typed(text) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\x12fir\r\r", "first"),  # Ctrl-R; Enter ends the search, and another takes the line
        ("\x12s\x12\r!\r", "fir!st"),  # where it was found
        ("half\x12fir\x03\r", "half"),  # Ctrl-C ends the search alone
        ("\x12zzz\x07x\r", "x"),  # so does Ctrl-G
    ],
)
def test_a_search_in_the_history(typed, text, line):
    for earlier in ("first\r", "second\r"):
        typed(earlier)
    assert typed(text).text == line
    # The prompt after it is no search.
    assert typed("on\r") == Line("on")


def test_an_interrupt_and_the_end(typed):
    with pytest.raises(KeyboardInterrupt):
        typed("\x03")
    with pytest.raises(EOFError):
        typed("\x04")
    assert typed("on\r") == Line("on")


@pytest.mark.parametrize(
    "text", ["x" * 1_001, "a\n" * 10, pytest.param("y" * 2**20, marks=pytest.mark.slow)]
)
def test_a_long_paste_comes_out_whole(typed, text):
    assert typed("before " + paste(text) + " after " + paste(text) + "\r") == Line(
        f"before {text} after {text}"
    )
    # What stood for it is text again.
    words = f"[paste 1: {len(text):,} characters]"
    assert typed(words + "\r") == Line(words)


def test_what_is_taller_than_the_screen_is_kept_in_the_history(typed, tmp_path):
    lines = "\n".join(f"line {number}" for number in range(60))
    assert typed('"""' + lines.replace("\n", "\r") + '"""\r') == Line(lines, quoted=True)
    assert typed("on\r") == Line("on")
    kept = (tmp_path / "data" / "history").read_text("utf-8")
    assert kept.count("\n+line 17\n") == kept.count('\n+line 59"""\n') == kept.count("+on\n") == 1


def test_quotes_around_a_paste(typed):
    assert typed('"""' + paste('def f():\n    """doc"""\n' * 50) + '\r"""\r') == Line(
        ('def f():\n    """doc"""\n' * 50).strip("\n"), quoted=True
    )


def test_the_history_lasts(keys, tmp_path):
    path = tmp_path / "data" / "history"
    for text in ("first\r", paste("z" * 5_000) + "\r", paste("x" * 10_001) + "\r"):
        keys.send_text(text)
        TypedLines(path, lambda _: [], source=keys, screen=DummyOutput()).read()
    lines = path.read_text("utf-8").splitlines()
    assert [line[1:] for line in lines if line.startswith("+")] == ["first", "z" * 5_000]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_long_history_is_halved(keys, tmp_path):
    path = tmp_path / "history"
    entries = [f"\n# 2026-01-01 00:00:00\n+{number} {'x' * 100}\n" for number in range(12_000)]
    path.write_text("".join(entries), "utf-8")
    TypedLines(path, lambda _: [], source=keys, screen=DummyOutput())
    kept = path.read_text("utf-8")
    assert kept == "".join(entries)[-len(kept) :]
    assert kept.startswith("\n# ")
    assert len("".join(entries)) * 0.49 < len(kept) <= len("".join(entries)) / 2


def test_a_chat_goes_on_without_a_history(keys, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "file" / "history", tmp_path / "folder", tmp_path / "pipe", None):
        lines = TypedLines(path, lambda _: [], source=keys, screen=DummyOutput())
        for text in ("one\r", "two\r"):
            keys.send_text(text)
            assert lines.read() == Line(text[:-1])


def test_piped_lines(monkeypatch):
    content = '\ufeffone\r\n"""a\n\ufeffé\n"""\n\n  """x"""\n/help\n"""open'.encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), "utf-8"))
    lines = PlainLines()
    found = [lines.read() for _ in range(6)]
    assert found == [
        Line("one"), Line("a\n\ufeffé", quoted=True), Line(""), Line("x", quoted=True), Line("/help"),
        Line("open", quoted=True),
    ]  # fmt: skip
    with pytest.raises(EOFError):
        lines.read()


@pytest.mark.parametrize(
    ("content", "byte"),
    [(b"caf\xe9\n", 3), (b'"""a\n\xff\n"""\n', 5), (b"\xc3", 0)],
)
def test_piped_bytes_that_are_no_text(monkeypatch, content, byte):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), "utf-8"))
    with pytest.raises(click.UsageError, match=f"standard input is not UTF-8 text .byte {byte}"):
        PlainLines().read()


def test_a_piped_line_that_is_too_long(monkeypatch):
    monkeypatch.setattr("akunu_py.cli.input_text.MOST_BYTES", 2**20)
    monkeypatch.setattr("akunu_py.cli.chat.line_input.MOST_BYTES", 2**20)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a" * 2**21), "utf-8"))
    with pytest.raises(click.UsageError, match="standard input is larger than 1 MB"):
        PlainLines().read()
