"""Markdown that is drawn while it is written."""

import re
from collections.abc import Callable
from typing import TextIO

from akunu_py.cli.reply_view.blocks import (
    Block,
    BlockRenderer,
    as_written,
    language_of,
    row_starts,
    split_blocks,
)
from akunu_py.cli.reply_view.draft_tint import DraftTint
from akunu_py.cli.reply_view.live_lines import Line, LiveLines, Size
from akunu_py.cli.terminal import printable
from akunu_py.values.reply_deltas import ContentDelta

_DRAWING_SHARE = 0.05
"""Of the time that goes by, at most this much goes to drawing: the model's steps wait for it."""

_CODE_LINES = 40
"""Lines of code that are highlighted at once: more would take longer than a step of a model."""

_FENCE = re.compile(r"( *(?:`{3,}|~{3,}))\s*(.*)")
_ITEM = "list_item_open"
_TABLE = "table_open"


class MarkdownStream:
    """Takes text as it comes; finished blocks are printed for good, the open one is drawn again.

    A table higher than the screen is printed as it was written: its columns could still move.
    """

    def __init__(
        self,
        renderer: BlockRenderer,
        stream: TextIO,
        size: Size,
        clock: Callable[[], float],
        tint: DraftTint | None,
    ) -> None:
        self._renderer = renderer
        self._stream = stream
        self._live = LiveLines(stream, size)
        self._size = size
        self._clock = clock
        self._tint = tint
        self._next_draw = 0.0
        self._text = ""  # from the beginning of the open block
        self._marks = ""  # a letter for each of its characters, a blank where there is no tint
        self._before = ""  # the kind of the block before; "" before the first
        self._gap = False  # whether blank lines came after that
        self._width = 0  # that the open block is laid out for
        self._as_written = False

    def feed(self, piece: ContentDelta) -> None:
        text = printable(piece.text, self._stream)
        mark = " " if self._tint is None else self._tint.mark(piece.source, piece.place)
        self._text += text
        self._marks += mark * len(text)
        if not text or self._clock() < self._next_draw:
            return
        started = self._clock()
        self._draw()
        ended = self._clock()
        self._next_draw = ended + (ended - started) * (1 / _DRAWING_SHARE - 1)

    def finish(self) -> None:
        """Print what is left for good; the stream can be fed anew."""
        self._print_finished(last_too=True)
        self._next_draw = 0.0

    def _draw(self) -> None:
        self._print_finished(last_too=False)
        while self._print_code():
            pass
        self._live.fit()
        blocks = split_blocks(self._text)
        self._live.draw(self._lines(self._text, self._marks, blocks[0].kind if blocks else ""))

    def _print_finished(self, *, last_too: bool) -> None:
        """Print blocks that no further text can change."""
        # Only whole lines decide: "#" is a heading, "#5" goes on with a paragraph.
        whole = self._text if last_too else self._text[: self._text.rfind("\n") + 1]
        blocks = split_blocks(whole)
        starts = row_starts(self._text)
        ends = [starts[block.begin] for block in blocks[1:]] + starts[-1:] * last_too
        for block, end in zip(blocks, ends, strict=False):
            self._print(block, starts[block.begin], end - 1)
        rest = ends[-1] if ends else 0
        self._text, self._marks = self._text[rest:], self._marks[rest:]

    def _print_code(self) -> bool:
        """Print the beginning of a long open code block for good; return whether there is one."""
        rows = self._text.split("\n")
        # The last row may still grow.
        if len(rows) < _CODE_LINES + 3:
            return False
        blocks = split_blocks(self._text)
        if len(blocks) != 1 or blocks[0].kind != "fence":
            return False
        first = blocks[0].begin + 1
        fence = _FENCE.fullmatch(rows[first - 1])
        # Blank lines at either side of the cut would be lost.
        cuts = range(first + _CODE_LINES, len(rows) - 1)
        cut = next((row for row in cuts if rows[row - 1].strip() and rows[row].strip()), None)
        # A fence that is closed is finished when the next block begins.
        closed = blocks[0].end <= len(rows) - 1 and _FENCE.fullmatch(rows[blocks[0].end - 1])
        if cut is None or fence is None or closed:
            return False
        end = row_starts(self._text)[cut]
        self._print(blocks[0], 0, end - 1)
        opening = f"{fence[1]}{language_of(fence[2])}\n"
        self._text = opening + self._text[end:]
        self._marks = " " * len(opening) + self._marks[end:]
        self._before = ""
        return True

    def _print(self, block: Block, begin: int, end: int) -> None:
        text = self._text[begin:end]
        self._live.fit()
        self._live.finish(self._lines(text, self._marks[begin:end], block.kind))
        self._before = block.kind
        self._gap = not text.rpartition("\n")[2].strip()

    def _lines(self, text: str, marks: str, kind: str) -> list[Line]:
        """Return the lines of a block, the blank one before it included."""
        screen = self._size()
        if not self._live.settled:
            # Lines that are fixed can be counted only as they were made.
            self._width = screen.columns
            self._as_written = False
        if not self._as_written:
            lines = self._renderer.lines(text, self._width, marks)
            self._as_written = kind == _TABLE and len(lines) + 2 > screen.lines
        if self._as_written:
            lines = as_written(text, self._width)
        tight = kind == self._before == _ITEM and not self._gap
        return lines if tight or not self._before or not lines else [Line("", 0), *lines]
