"""Reasoning on a terminal: pale, or folded into a line."""

from collections.abc import Callable
from typing import TextIO

from akunu_py.cli.reply_view.blocks import BlockRenderer
from akunu_py.cli.reply_view.colors import PALE
from akunu_py.cli.reply_view.live_lines import Line, LiveLines, Size
from akunu_py.cli.terminal import printable


class DimmedReasoning:
    """Shows reasoning as it is, dimmed, and a blank line before the answer."""

    def __init__(self, renderer: BlockRenderer, stream: TextIO) -> None:
        self._renderer = renderer
        self._stream = stream

    def feed(self, text: str, tokens: int) -> None:  # noqa: ARG002 - the text says enough
        self._stream.write(self._renderer.paint(printable(text, self._stream), PALE))
        self._stream.flush()

    def finish(self) -> None:
        self._stream.write("\n\n")
        self._stream.flush()


class FoldedReasoning:
    """Shows one line in their place: tokens and seconds so far."""

    def __init__(
        self, renderer: BlockRenderer, stream: TextIO, size: Size, clock: Callable[[], float]
    ) -> None:
        self._renderer = renderer
        self._stream = stream
        self._live = LiveLines(stream, size)
        self._clock = clock
        self._started: float | None = None
        self._tokens = 0

    def feed(self, text: str, tokens: int) -> None:  # noqa: ARG002 - it is not shown
        self._tokens = tokens
        self._live.draw([self._line("thinking")])

    def finish(self) -> None:
        """End the line with the length of the reasoning, followed by a blank line."""
        self._live.finish([self._line("thought")])
        self._stream.write("\n")
        self._stream.flush()

    def _line(self, verb: str) -> Line:
        if self._started is None:
            self._started = self._clock()
        text = f"{verb}: {self._tokens} tokens, {self._clock() - self._started:.1f} s"
        return Line(self._renderer.paint(text, PALE), len(text))
