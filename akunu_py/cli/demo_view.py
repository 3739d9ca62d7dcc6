"""Two replies in columns side by side, each below its name and clock."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style

from akunu_py.cli.reply_view.blocks import BlockRenderer
from akunu_py.cli.reply_view.draft_sources import name_of
from akunu_py.cli.reply_view.draft_tint import DraftTint
from akunu_py.cli.reply_view.live_lines import Line, LiveLines, Size
from akunu_py.cli.reply_view.view import terminal_size
from akunu_py.cli.terminal import printable
from akunu_py.values.types import StreamEvent, TextPiece

_GAP = " \N{BOX DRAWINGS LIGHT VERTICAL} "
_BOLD, _PALE = Style(bold=True), Style(dim=True)


class ReplyColumn:
    """One reply as it grows: its Markdown, tinted where drafts were accepted."""

    def __init__(self, title: str, tint: DraftTint, stream: TextIO) -> None:
        self.title = title
        self._tint = tint
        self._stream = stream
        self._text = self._marks = ""
        self._tokens = 0

    def take(self, event: StreamEvent) -> None:
        """Add what a step brought."""
        self._tokens += len(event.token_ids)
        for piece in event.pieces or (TextPiece(event.text),):
            text = printable(piece.text, self._stream)
            self._text += text
            self._marks += self._tint.mark(piece.source, piece.place) * len(text)
        if event.step is not None:
            self._tint.count(event.step)

    def head(self, seconds: float, width: int) -> str:
        """Return the title, tokens a second where there is room, and the clock."""
        clock = f"{seconds:.1f} s"
        pace = f"{self._tokens / seconds:.0f} tokens/s \u00b7 {clock}" if self._tokens else clock
        fits = cell_len(self.title) + len(pace) < width
        return _between(self.title, pace if fits else clock, width)

    def lines(self, renderer: BlockRenderer, width: int) -> list[Line]:
        """Return the text so far as lines of at most `width` cells."""
        return renderer.lines(self._text, width, self._marks)


class SideBySide:
    """Draws two columns in place, as much of their ends as the screen holds."""

    def __init__(self, stream: TextIO, titles: tuple[str, str], size: Size | None = None) -> None:
        self._stream = stream
        self._size = size or terminal_size(stream)
        self._live = LiveLines(stream, self._size)
        has_colors = BlockRenderer(stream).has_colors
        # That of the second column knows what was drafted from what.
        plain, self.tint = (DraftTint(_source, has_colors=has_colors) for _ in titles)
        self._renderer = BlockRenderer(stream, self.tint.styles)
        self.columns = tuple(
            ReplyColumn(title, tint, stream)
            for title, tint in zip(titles, (plain, self.tint), strict=True)
        )

    def draw(self, seconds: Sequence[float]) -> None:
        """Show the replies so far; the clocks say `seconds`."""
        self._live.draw(self._rows(seconds, self._size().lines - 3))

    def finish(self, seconds: Sequence[float]) -> None:
        """Show the whole replies for good."""
        self._live.finish(self._rows(seconds, None))

    def print_summary(self) -> None:
        """Print what the second reply was made of."""
        Console(file=self._stream, highlight=False).print(self.tint.summary())

    def _rows(self, seconds: Sequence[float], most: int | None) -> list[Line]:
        width = max(20, (self._size().columns - len(_GAP)) // 2)
        paint = self._renderer.paint
        heads = [
            column.head(shown, width) for column, shown in zip(self.columns, seconds, strict=True)
        ]
        gap = paint(_GAP, _PALE)
        rule = "\N{BOX DRAWINGS LIGHT HORIZONTAL}"
        cross = f"{rule}\N{BOX DRAWINGS LIGHT VERTICAL AND HORIZONTAL}{rule}"
        cells = 2 * width + len(_GAP)
        rows = [
            Line(gap.join(paint(head, _BOLD) for head in heads), cells),
            Line(paint(rule * width + cross + rule * width, _PALE), cells),
        ]
        bodies = [column.lines(self._renderer, width) for column in self.columns]
        if most is not None:
            longest = max(map(len, bodies))
            bodies = [body[max(0, longest - max(1, most)) :] for body in bodies]
        for left, right in zip_longest(*bodies, fillvalue=Line("", 0)):
            padding = " " * (width - left.cells)
            rows.append(
                Line(f"{left.text}{padding}{gap}{right.text}", width + len(_GAP) + right.cells)
            )
        return rows


def _between(left: str, right: str, width: int) -> str:
    return left + " " * max(1, width - cell_len(left) - cell_len(right)) + right


def _source(source: str, place: int) -> str:
    return "the function above" if source == "prompt" else name_of(source, place)
