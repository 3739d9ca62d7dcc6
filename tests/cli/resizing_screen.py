"""A terminal in memory that can be resized: lines are wrapped anew as tmux does, or cut as xterm does."""

import os
import re

_PARTS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n\b]|[^\x1b\r\n\b]")


class ResizingScreen:
    """A stream for text of one cell a character; `rows` are all, those scrolled out included."""

    encoding = "utf-8"

    def __init__(self, columns=80, lines=24, *, reflows=True):
        self.columns, self.lines, self.reflows = columns, lines, reflows
        self._rows = [""]
        self._wrapped = [False]  # whether a row goes on in the next one
        self._row = self._column = 0
        self._top = 0
        self._wraps = True

    def size(self):
        return os.terminal_size((self.columns, self.lines))

    def isatty(self):
        return True

    def flush(self):
        pass

    def rows(self):
        return [row.rstrip() for row in self._rows]

    def write(self, text):
        for part in _PARTS.findall(text):
            if part == "\n":
                self._column = 0
                self._go_down(wrapped=False)
            elif part == "\r":
                self._column = 0
            elif part == "\b":
                self._move("D", 1)
            elif found := re.fullmatch(r"\x1b\[(\d*)([ACD])", part):
                self._move(found[2], int(found[1] or 1))
            elif part in ("\x1b[K", "\x1b[J"):
                self._rows[self._row] = self._rows[self._row][: self._column]
                self._wrapped[self._row] = False
                if part == "\x1b[J":
                    del self._rows[self._row + 1 :], self._wrapped[self._row + 1 :]
            elif part == "\x1b[2K":
                self._rows[self._row] = ""
                self._wrapped[self._row] = False
            elif part in ("\x1b[?7l", "\x1b[?7h"):
                self._wraps = part.endswith("h")
            elif not part.startswith("\x1b"):
                self._put(part)
            else:
                assert part.endswith("m") or part.startswith("\x1b[?"), part
        return len(text)

    def _move(self, direction, count):
        if direction == "A":
            self._row = max(self._top, self._row - count)
        else:
            column = min(self._column, self.columns - 1)
            count = count if direction == "C" else -count
            self._column = min(max(0, column + count), self.columns - 1)

    def _put(self, letter):
        if self._column >= self.columns:
            if self._wraps:
                self._column = 0
                self._go_down(wrapped=True)
            else:
                self._column = self.columns - 1
        row = self._rows[self._row].ljust(self._column)
        self._rows[self._row] = row[: self._column] + letter + row[self._column + 1 :]
        self._column += 1

    def _go_down(self, *, wrapped):
        self._wrapped[self._row] = wrapped
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append("")
            self._wrapped.append(False)
        self._top = max(self._top, self._row - self.lines + 1)

    def resize(self, columns, lines):
        """Change the height, blank rows below the cursor first; then the width."""
        # Blank rows between the last one written and the screen's end take part, as in tmux.
        below = max(0, self._top + min(lines, self.lines) - 1 - self._row)
        if lines > self.lines:
            below += max(0, lines - self.lines - self._top)
        self.lines = lines
        if columns < self.columns and not self.reflows:
            self._rows = [row[:columns] for row in self._rows]
            self._column = min(self._column, columns - 1)
        elif self.reflows:
            self._reflow(columns)
        self.columns = columns
        self._top = max(0, len(self._rows) + below - lines)
        if not self.reflows:
            self._top = max(0, self._row - lines + 1)
        if self._row < self._top:
            self._row, self._column = self._top, 0
            while len(self._rows) <= self._row:
                self._rows.append("")
                self._wrapped.append(False)

    def _reflow(self, columns):
        joined, place, text = [], (0, 0), ""
        for number, row in enumerate(self._rows):
            if number == self._row:
                place = len(joined), len(text) + self._column
            text += row
            if not self._wrapped[number]:
                joined.append(text.rstrip())
                text = ""
        self._rows, self._wrapped = [], []
        for number, line in enumerate(joined):
            parts = [line[at : at + columns] for at in range(0, len(line), columns)] or [""]
            if number == place[0]:
                last = min(place[1] // columns, len(parts) - 1)
                self._row = len(self._rows) + last
                self._column = place[1] - last * columns
            self._rows += parts
            self._wrapped += [True] * (len(parts) - 1) + [False]
