"""What is typed, pasted and piped, where it wraps, and the history, without a terminal."""

import io
import threading
from itertools import pairwise

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prompt_toolkit.application import create_app_session
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import fragment_list_to_text
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.layout.controls import BufferControl
from prompt_toolkit.layout.processors import TransformationInput
from prompt_toolkit.output import DummyOutput
from prompt_toolkit.utils import get_cwidth

from akunu_py.cli.chat.commands import Completion
from akunu_py.cli.chat.line_input import InputLine, PlainLines, TypedLines
from akunu_py.cli.chat.typing_aids import WordWrap, row_starts
from akunu_py.cli.input_text import MOST_BYTES


@pytest.fixture
def keys():
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        yield keys


@pytest.fixture
def typed(keys):
    lines = TypedLines(
        list, lambda before: [Completion("/help", len(before))],
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
        ("hello\r", InputLine("hello")),
        ("a\x1b\rb\r", InputLine("a\nb")),
        ('"""a\rb"""\r', InputLine("a\nb", quoted=True)),
        ('"""/help"""\r', InputLine("/help", quoted=True)),
        ('"""\r"""\r', InputLine("", quoted=True)),
        ('"""""\ra"""\r', InputLine('""\na', quoted=True)),
        (paste("a\r\nb\rc\n") + "d\r", InputLine("a\nb\nc\nd")),
        ("gone\x03kept\r", InputLine("kept")),
        ("/h\t\r", InputLine("/help")),
        (paste("x\x1b[2Jy") + "\r", InputLine("x\x1b[2Jy")),
    ],
)
def test_what_is_typed(typed, text, line):
    assert typed(text) == line


def test_an_interrupt_and_the_end(typed):
    with pytest.raises(KeyboardInterrupt):
        typed("\x03")
    with pytest.raises(EOFError):
        typed("\x04")
    assert typed("on\r") == InputLine("on")


@pytest.mark.parametrize(
    "text", ["x" * 1_001, "a\n" * 10, pytest.param("y" * 2**20, marks=pytest.mark.slow)]
)
def test_a_long_paste_comes_out_whole(typed, text):
    assert typed("before " + paste(text) + " after " + paste(text) + "\r") == InputLine(
        f"before {text} after {text}"
    )
    # What stood for it is text again.
    words = f"[paste 1: {len(text):,} characters]"
    assert typed(words + "\r") == InputLine(words)


def test_what_is_taller_than_the_screen_comes_back(typed):
    lines = "\n".join(f"line {number}" for number in range(60))
    assert typed('"""' + lines.replace("\n", "\r") + '"""\r') == InputLine(lines, quoted=True)
    assert typed("on\r") == InputLine("on")
    # Over "on", and then line by line.
    assert typed("\x1b[A\x1b[A\r") == InputLine(lines, quoted=True)


def test_quotes_around_a_paste(typed):
    assert typed('"""' + paste('def f():\n    """doc"""\n' * 50) + '\r"""\r') == InputLine(
        ('def f():\n    """doc"""\n' * 50).strip("\n"), quoted=True
    )


def test_what_was_typed_comes_back(keys):
    earlier = iter(["latest", '"""\n/help\n"""', "oldest"])
    lines = TypedLines(lambda: earlier, lambda _: [], source=keys, screen=DummyOutput())

    def read(text):
        keys.send_text(text)
        return lines.read()

    up = "\x1b[A"
    assert read(up + "\r") == InputLine("latest")
    for text in ("typed", "z" * 5_000, "x" * 10_001):
        assert read(paste(text) + "\r") == InputLine(text)
    # What is very long is not offered again.
    assert read(up + "\r") == InputLine("z" * 5_000)
    assert read("\x12typ\r\r") == InputLine("typed")
    assert read("\x12/he\r\r") == InputLine("/help", quoted=True)


def test_piped_lines(monkeypatch):
    content = '\ufeffone\r\n"""a\n\ufeffé\n"""\n\n  """x"""\n/help\n"""open'.encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), "utf-8"))
    lines = PlainLines()
    found = [lines.read() for _ in range(6)]
    assert found == [
        InputLine("one"), InputLine("a\n\ufeffé", quoted=True), InputLine(""), InputLine("x", quoted=True), InputLine("/help"),
        InputLine("open", quoted=True),
    ]  # fmt: skip
    with pytest.raises(EOFError):
        lines.read()


@pytest.mark.parametrize(
    ("content", "byte"), [(b"caf\xe9\n", 3), (b'"""a\n\xff\n"""\n', 5), (b"\xc3", 0)]
)
def test_piped_bytes_that_are_no_text(monkeypatch, content, byte):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), "utf-8"))
    with pytest.raises(click.UsageError, match=f"standard input is not UTF-8 text .byte {byte}"):
        PlainLines().read()


def test_a_piped_line_that_is_too_long(monkeypatch):
    line = io.BytesIO(b"a" * (MOST_BYTES + 1))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(line, "utf-8"))
    with pytest.raises(click.UsageError, match="standard input is larger than 64 MB"):
        PlainLines().read()


def rows(text, width):
    starts = [*row_starts(text, width), len(text)]
    return [text[begin:end] for begin, end in pairwise(starts)]


TEXTS = st.text("ab 中", max_size=40)


@given(TEXTS, st.integers(2, 12))
@example("aaaa bbb", 4)
def test_no_row_is_too_wide_and_nothing_is_lost(text, width):
    found = rows(text, width)
    assert "".join(found) == text
    assert all(sum(map(get_cwidth, row.rstrip(" "))) <= width for row in found)
    for row, after in pairwise(found):
        # A word is cut only where it is longer than a row.
        if not row.endswith(" "):
            word = (row.rpartition(" ")[2] + after.partition(" ")[0]).strip()
            assert sum(map(get_cwidth, word)) > width


def shown(text, columns):
    given_ = TransformationInput(
        BufferControl(Buffer()), Document(text), 0, lambda place: place, [("", text)], columns, 10
    )
    return WordWrap(2).apply_transformation(given_)


@given(TEXTS, st.integers(4, 14))
def test_rows_are_filled_up_and_places_go_there_and_back(text, columns):
    transformation = shown(text, columns)
    display = fragment_list_to_text(transformation.fragments)
    width = columns - 2
    begin = 0
    for row in rows(text, width)[:-1]:
        # prompt_toolkit breaks a row where it is full: each but the last is.
        end, cells = begin, 0
        while cells + get_cwidth(display[end]) <= width and cells < width:
            cells += get_cwidth(display[end])
            end += 1
        assert display[begin:end].rstrip(" ") == row.rstrip(" ")[: end - begin].rstrip(" ")
        begin = end
    assert "".join(display.split()) == "".join(text.split())
    places = [transformation.source_to_display(place) for place in range(len(text) + 1)]
    assert places == sorted(places)
    for place, letter in enumerate(text):
        if letter != " ":
            assert display[places[place]] == letter
            assert transformation.display_to_source(places[place]) == place
    assert transformation.source_to_display(len(text)) == len(display)
    assert transformation.display_to_source(len(display)) == len(text)
