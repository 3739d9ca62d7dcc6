#!/usr/bin/env python3
"""Record `akunu chat` or `akunu demo` with the default model as a picture and as text, for the docs.

    python scripts/record_session.py chat --picture docs/session.svg --text docs/session.txt
    python scripts/record_session.py demo --picture docs/demo.svg --text docs/demo.txt

Runs the command on a pseudo-terminal with settings, costs and history of its own, and draws what
the terminal shows. In the chat it types a question about a file and an edit; `/draft show`
colours copied text. Nothing of a reply is edited; the replies are greedy, so they repeat, and
the times do not. The picture is light or dark as the reader's system is.
"""

import argparse
import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from html import escape
from itertools import groupby
from pathlib import Path

import pyte
from pyte.modes import LNM
from pyte.screens import Char
from rich.color import Color

from akunu_py.cpu import KERNELS_VARIABLE, load_kernels
from akunu_py.model_store.known_models import fetched_model_path

COLUMNS, LINES = 80, 90
PATIENCE_S = 600

FILE = "readers.py"
CODE = """\
def read_all(paths, encoding):
    contents = []
    for path in paths:
        with open(path, encoding=encoding) as stream:
            contents.append(stream.read())
    return contents
"""

CHAT = ("chat", "--max-tokens", "160")
TYPED = (
    f"In one sentence, what does the function in @{FILE} take and return?",
    "/draft show",
    'Write the function again with `encoding="utf-8"` as the default. Keep everything else as it is.',
    "/exit",
)

_PROMPT_BEGINS = "\x1b[?2004h"
"""What prompt_toolkit writes when it begins to read a line: bracketed paste is switched on."""

# The chat's own colours can be read on both; here are the terminal's.
_STYLE = """\
.back{fill:#fff;stroke:#d0d7de}.text{fill:#1f2328}.pale{fill:#6e7781}
@media(prefers-color-scheme:dark){.back{fill:#16181d;stroke:#3d444d}.text{fill:#e4e6eb}.pale{fill:#9198a1}}"""
_PALE = "010203"
"""Stands for dim text, which pyte does not know."""
_DIM = re.compile(r"\x1b\[(2)(?=[;m])")
_FONTS = "ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace"
_CELL, _ROW, _EDGE = 8.0, 18, 16
_WORDS = re.compile(r"\S+(?: \S+)*")


def record(command: tuple[str, ...], typed: tuple[str, ...], folder: Path) -> str:
    """Return all that a command writes to its terminal while messages are typed, one by one."""
    environment = {name: value for name, value in os.environ.items() if "AKUNU" not in name}
    (folder / FILE).write_text(CODE, encoding="utf-8")
    environment |= {
        "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CACHE_HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder), "TERM": "xterm-256color", "COLORTERM": "truecolor",
        # Nobody here answers where the cursor is.
        "PROMPT_TOOLKIT_NO_CPR": "1",
        # Built for this machine already; its cache folder is not that of the recording.
        KERNELS_VARIABLE: str(load_kernels().path or "mlx"),
    }  # fmt: skip
    for name in ("AKUNU_BLAS", "AKUNU_DATA_DIR"):
        if name in os.environ:
            environment[name] = os.environ[name]
    leader, follower = pty.openpty()
    fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    child = subprocess.Popen(
        [sys.executable, "-m", "akunu_py", *command],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
        env=environment,
        cwd=folder,
    )
    os.close(follower)
    terminal = _Terminal(leader)
    try:
        for message in typed:
            terminal.wait_for_prompt()
            terminal.type(message)
        terminal.read_to_end()
        if child.wait(PATIENCE_S):
            sys.exit(f"akunu {command[0]} ended with {child.returncode}:\n{terminal.seen[-2000:]}")
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
        child.wait()
        os.close(leader)
    return terminal.seen


class _Terminal:
    """The side of a pseudo-terminal where somebody sits."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._prompts = 0
        self.seen = ""

    def wait_for_prompt(self) -> None:
        self._prompts += 1
        end = time.monotonic() + PATIENCE_S
        while self.seen.count(_PROMPT_BEGINS) < self._prompts:
            if time.monotonic() > end or not self._read(1.0):
                sys.exit(f"akunu chat does not ask for a message:\n{self.seen[-2000:]}")

    def type(self, message: str) -> None:
        os.write(self._leader, "".join(f"{line}\r" for line in message.split("\n")).encode())

    def read_to_end(self) -> None:
        while self._read(1.0):
            pass

    def _read(self, seconds: float) -> bool:
        """Read for so long at most; return whether more may come."""
        if not select.select([self._leader], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._leader, 65536)
        except OSError:  # the other side is closed
            return False
        self.seen += self._decoder.decode(data)
        return bool(data)


def screen_rows(written: str) -> list[list[Char]]:
    """Return the rows of cells that a terminal shows after all this."""
    screen = pyte.HistoryScreen(COLUMNS, LINES, history=10_000, ratio=0.5)
    screen.set_mode(LNM)
    pyte.Stream(screen).feed(_DIM.sub("\x1b[38;2;1;2;3", written))
    buffers = [*screen.history.top, *(screen.buffer[number] for number in range(LINES))]
    rows = [[row[column] for column in range(COLUMNS)] for row in buffers]
    while rows and not _text(rows[-1]):
        rows.pop()
    return rows


def _text(row: list[Char]) -> str:
    return "".join(cell.data for cell in row).rstrip()


def picture(rows: list[list[Char]], title: str) -> str:
    """Return an SVG of rows of cells; what is tinted lies on a rectangle of its colour."""
    width = round(COLUMNS * _CELL + 2 * _EDGE)
    height = len(rows) * _ROW + 2 * _EDGE
    window = f'class="back" width="{width - 1}" height="{height - 1}"'
    font = f'class="text" font-family="{_FONTS}" font-size="13"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect x=".5" y=".5" rx="8" {window}/>',
        f"<g {font}>",
    ]
    for number, row in enumerate(rows):
        parts += _draw_row(row, _EDGE + number * _ROW)
    return "\n".join([*parts, "</g>", "</svg>", ""])


def _draw_row(row: list[Char], top: int) -> Iterator[str]:
    """Yield the elements of a row: backgrounds, and texts of one style.

    Each letter has its place, whatever the font's width. Blanks at an edge and beside each other are
    in no text: programs that draw it do not agree which of them they keep.
    """
    column = 0
    for (back, attributes, _), group in groupby(row, _kind):
        cells = list(group)
        left, length = _EDGE + column * _CELL, len(cells) * _CELL
        column += len(cells)
        if back:
            yield (
                f'<rect x="{left:g}" y="{top}" width="{length:g}" height="{_ROW}" fill="{back}"/>'
            )
        for words in _WORDS.finditer("".join(cell.data[:1] or " " for cell in cells)):
            begin, end = words.span()
            text = escape("".join(cell.data for cell in cells[begin:end]), quote=False)
            places = " ".join(f"{left + place * _CELL:g}" for place in range(begin, end))
            yield f'<text x="{places}" y="{top + 13}"{attributes}>{text}</text>'


def _kind(cell: Char) -> tuple[str, str, str]:
    """Return a cell's background, "" for the window's, its letter's attributes, and an odd letter."""
    front, back = (cell.bg, cell.fg) if cell.reverse else (cell.fg, cell.bg)
    attributes = ""
    if front == _PALE:
        attributes += ' class="pale"'
    elif front != "default":
        attributes += f' fill="{_colour(front)}"'
    if cell.bold:
        attributes += ' font-weight="bold"'
    if cell.italics:
        attributes += ' font-style="italic"'
    odd = "" if cell.data.isascii() else cell.data
    return "" if back == "default" else _colour(back), attributes, odd


def _colour(name: str) -> str:
    """Return a colour of pyte's, a name or six hexadecimal digits, as SVG wants it."""
    if re.fullmatch("[0-9a-f]{6}", name):
        return f"#{name}"
    return Color.parse(name).get_truecolor().hex


def main() -> None:
    """Record, then write both files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["chat", "demo"], help="the command to record")
    parser.add_argument("--picture", type=Path, required=True, help="the SVG to write")
    parser.add_argument("--text", type=Path, required=True, help="the transcript to write")
    options = parser.parse_args()
    if fetched_model_path() is None:
        sys.exit("the default model is not here; fetch it with: akunu models pull smollm2")
    with tempfile.TemporaryDirectory() as folder:
        if options.what == "demo":
            written = record(("demo",), (), Path(folder))
        else:
            written = record(CHAT, TYPED, Path(folder))
    rows = screen_rows(written)
    options.picture.write_text(
        picture(rows, f"A session of akunu {options.what}"), encoding="utf-8"
    )
    lines = "\n".join(_text(row) for row in rows)
    options.text.write_text(f"{lines}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
