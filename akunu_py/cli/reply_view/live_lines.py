"""Lines at the end of a terminal's output that are drawn again until they are final."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TextIO

Size = Callable[[], os.terminal_size]

# Row by row: erasing all below the screen's first row would leave a copy in tmux's history.
_ERASE, _UP_AND_ERASE = "\x1b[2K", "\x1b[A\x1b[2K"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"


@dataclass(frozen=True, slots=True)
class Line:
    """A line with its escape codes, and the cells it takes."""

    text: str
    cells: int


class LiveLines:
    """Draws lines so that only those that changed are written, each time in one piece.

    No more than the screen's height is ever drawn again: what has scrolled out, or would, stays as
    it was drawn. Between two calls the cursor stands behind the last line.

    Attributes:
        fixed: how many lines of the open block can no longer change.

    """

    def __init__(self, stream: TextIO, size: Size) -> None:
        self._stream = stream
        self._size = size
        self._drawn: list[Line] = []
        self.fixed = 0

    def draw(self, lines: Sequence[Line]) -> None:
        """Show a block's lines, the fixed ones included, in place of those shown last."""
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
        self._drawn, self.fixed = [], 0

    def fit(self) -> None:
        """Give up lines from the top that the screen, as large as it is now, has no room for."""
        room = max(1, self._size().lines - 1)
        rows = [self._rows(line) for line in self._drawn]
        gone, total = 0, sum(rows)
        while total > room and gone < len(rows) - 1:
            total -= rows[gone]
            gone += 1
        self._drawn = self._drawn[gone:]
        self.fixed += gone

    def _change(self, new: list[Line], *, again: bool = False) -> str:
        """Return what turns the lines drawn into new ones.

        With `again` the last one is written whatever it was, and for good: it may wrap.
        """
        drawn = self._drawn
        self._drawn = new
        same = 0
        while same < min(len(drawn), len(new)) and drawn[same] == new[same]:
            same += 1
        if same == len(drawn) == len(new) and not again:
            return ""
        if same == len(drawn) and same < len(new) and not again:
            start = "\n" if drawn else ""
        else:
            same = max(0, min(same, len(new) - 1, len(drawn) - 1))
            up = sum(map(self._rows, drawn[same:])) - 1
            start = f"\r{_ERASE}{_UP_AND_ERASE * up}" if drawn else ""
        text = "\n".join(line.text for line in new[same:])
        # What takes more cells than this library thinks must not take another row. Lines made for
        # a wider screen are to wrap.
        if text and not again and all(self._rows(line) == 1 for line in new[same:]):
            text = f"{_NO_WRAP}{text}{_WRAP}"
        return start + text

    def _rows(self, line: Line) -> int:
        """Return the rows of a line on the screen of now; terminals wrap anew when resized."""
        return max(1, -(-line.cells // max(1, self._size().columns)))

    def _write(self, text: str) -> None:
        if text:
            self._stream.write(text)
            self._stream.flush()
