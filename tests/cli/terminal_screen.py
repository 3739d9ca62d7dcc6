"""A terminal in memory: what a stream writes, and what of it can be seen."""

import os
import re

import pyte
from pyte.modes import LNM


class _Screen(pyte.HistoryScreen):
    """Joiners and variation selectors have no cell; pyte drops what comes behind them with them."""

    def draw(self, data):
        for part in re.split("[\u200d\ufe0f]", data):
            super().draw(part)


class TerminalScreen:
    """A stream that is a terminal of `columns` x `lines`, with all that scrolled out of it."""

    encoding = "utf-8"

    def __init__(self, columns=80, lines=24):
        self.screen = _Screen(columns, lines, history=100_000, ratio=0.5)
        # The line discipline of a real one makes a carriage return of each line feed.
        self.screen.set_mode(LNM)
        self.modes = set(self.screen.mode)
        self._stream = pyte.Stream(self.screen)
        self.written = []

    def write(self, text):
        if isinstance(text, bytes):
            raise TypeError("this is a stream of text")  # click asks by writing b""
        self.written.append(text)
        self._stream.feed(text)
        return len(text)

    def flush(self):
        pass

    def isatty(self):
        return True

    def fileno(self):
        raise OSError("there is no file of it")

    def size(self):
        return os.terminal_size((self.screen.columns, self.screen.lines))

    def _row(self, row):
        end = max(row, default=-1) + 1
        return "".join(row[column].data for column in range(end)).rstrip()

    def rows(self):
        """All rows, those scrolled out first, without empty ones at the end."""
        found = [self._row(row) for row in self.screen.history.top]
        found += [self._row(self.screen.buffer[row]) for row in range(self.screen.lines)]
        while found and not found[-1]:
            found.pop()
        return found

    def text(self):
        return "\n".join(self.rows())

    def cells(self, word):
        """The cells of a word's first letter, on the screen."""
        for row in range(self.screen.lines):
            column = self._row(self.screen.buffer[row]).find(word)
            if column >= 0:
                return self.screen.buffer[row][column]
        raise AssertionError(f"no {word!r} in {self.text()!r}")
