"""Lines at the end of a terminal's output that are drawn again until they are final."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TextIO

Size = Callable[[], os.terminal_size]

# Row by row: erasing all below the screen's first row would leave a copy in tmux's history.
_ERASE, _UP_AND_ERASE = "\x1b[2K", "\x1b[A\x1b[2K"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_RESET = "\x1b[0m"
_CODE = re.compile(r"(\x1b\[[0-9;]*m)")


@dataclass(frozen=True, slots=True)
class Line:
    """A line with its escape codes, and the cells it takes."""

    text: str
    cells: int


class LiveLines:
    """Draws lines so that only those that changed are written, each time in one piece.

    No more than the screen's height is ever drawn again: what has scrolled out, or would, stays as
    it was drawn. Between two calls the cursor stands behind the last line.

    Lines that a screen wrapped before or after it was resized are not drawn again either: some
    terminals wrap them anew and some cut them off, and tmux moves rows out of its screen for that
    while blank ones are left below. The last one of them can still get longer.
    """

    def __init__(self, stream: TextIO, size: Size) -> None:
        self._stream = stream
        self._size = size
        self._columns = 0  # of the screen that the lines were drawn on
        self._drawn: list[Line] = []
        self._wrapped = False  # whether the first line drawn is one that can only get longer
        self.fixed = 0  # lines of the open block that can no longer change

    @property
    def settled(self) -> bool:
        """Whether part of the open block stays as it was laid out."""
        return self._wrapped or self.fixed > 0

    def draw(self, lines: Sequence[Line]) -> None:
        """Show a block's lines, the fixed ones included, in place of those shown last."""
        self.fit()
        self._write(self._change(list(lines[self.fixed :])))
        self.fit()

    def finish(self, lines: Sequence[Line]) -> None:
        """Show a block's lines for good and go to a new line; the next block has none yet.

        What was drawn may hold more than this block: items that were one list. Where all of it and
        more is beyond change, what is left to draw is the next block's.
        """
        if self.fixed > len(lines):
            self.fixed -= len(lines)
            return
        new = list(lines[self.fixed :])
        # An interrupt's ^C may stand behind the last line.
        self._write(self._change(new, again=True) + ("\n" if new or self._drawn else ""))
        self._drawn, self.fixed, self._wrapped = [], 0, False

    def fit(self) -> None:
        """Give up lines that the screen, as large as it is now, has no room for."""
        screen = self._size()
        before, self._columns = self._columns, screen.columns
        least = min(before, screen.columns)
        if screen.columns != before and any(line.cells > least for line in self._drawn):
            self.fixed += len(self._drawn) - 1
            self._drawn = self._drawn[-1:]
            self._wrapped = self._drawn[0].cells > least
        room = max(1, screen.lines - 1)
        rows = [self._rows(line) for line in self._drawn]
        gone, total = 0, sum(rows)
        while total > room and gone < len(rows) - 1:
            total -= rows[gone]
            gone += 1
        self._drawn = self._drawn[gone:]
        self.fixed += gone
        # What is left may be one line that is higher than the screen.
        self._wrapped = self._wrapped or total > room

    def _change(self, new: list[Line], *, again: bool = False) -> str:
        """Return the codes that turn the lines drawn into new ones.

        With `again` the last one is written whatever it was, and for good: it may wrap.
        """
        drawn = self._drawn
        rest = ""
        if self._wrapped:
            rest = _rest(drawn[0], new[0]) if new else ""
            if len(new) <= 1:
                self._drawn = new or drawn
                return rest
            rest += "\n"
            drawn, new = [], new[1:]
            self.fixed += 1
            self._wrapped = False
        self._drawn = new
        same = 0
        while same < min(len(drawn), len(new)) and drawn[same] == new[same]:
            same += 1
        if same == len(drawn) == len(new) and not again:
            return ""
        texts = [line.text for line in new]
        if same == len(drawn) and same < len(new) and not again:
            start = "\n" if drawn else ""
        elif (
            same == len(drawn) - 1
            and same < len(new)
            and not again
            and _goes_on(drawn[-1], new[same])
        ):
            # Nothing is erased, so this holds on a screen that has been resized just now, too.
            texts[same] = _rest(drawn[-1], new[same])
            start = ""
        else:
            same = max(0, min(same, len(new) - 1, len(drawn) - 1))
            up = sum(map(self._rows, drawn[same:])) - 1
            start = f"\r{_ERASE}{_UP_AND_ERASE * up}" if drawn else ""
        text = "\n".join(texts[same:])
        # What takes more cells than this library thinks must not take another row; letters of one
        # cell each do not. Lines made for a wider screen are to wrap.
        if text and not again and self._may_surprise(new[same:]):
            text = f"{_NO_WRAP}{text}{_WRAP}"
        return rest + start + text

    def _may_surprise(self, lines: Sequence[Line]) -> bool:
        odd = any(line.cells != len(_plain(line)) for line in lines)
        return odd and all(self._rows(line) == 1 for line in lines)

    def _rows(self, line: Line) -> int:
        """Return the rows of a line on the screen of now; terminals wrap anew when resized."""
        return max(1, -(-line.cells // max(1, self._size().columns)))

    def _write(self, text: str) -> None:
        if text:
            self._stream.write(text)
            self._stream.flush()


def _plain(line: Line) -> str:
    return _CODE.sub("", line.text)


def _goes_on(drawn: Line, line: Line) -> bool:
    """Return whether a line begins with one drawn, in the same styles, and goes on in Latin.

    In other scripts, and with emoji, what is added may join what is there into one letter.
    """
    joint = _plain(line)[max(0, len(_plain(drawn)) - 1) :]
    return (
        line.text.startswith(drawn.text.removesuffix(_RESET)) and max(joint, default="") < "\u0300"
    )


def _rest(drawn: Line, line: Line) -> str:
    """Return the codes that turn one line drawn into another: further text, or all of it anew."""
    shown = len(_plain(drawn))
    if not _plain(line).startswith(_plain(drawn)):
        return f"\n{line.text}"
    parts = _CODE.split(line.text)
    # Every other part is a code.
    for at, text in enumerate(parts[::2]):
        parts[2 * at] = text[shown:]
        shown = max(0, shown - len(text))
    return "".join(parts)
