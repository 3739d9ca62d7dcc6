"""A reply as it is shown: which parts, and each in its way."""

import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol, Self, TextIO

from akunu_py.cli.terminal import printable
from akunu_py.engine.reasoning import ReasoningSplitter
from akunu_py.values.types import StreamEvent, TextPiece

if TYPE_CHECKING:
    from rich.text import Text

    from akunu_py.cli.reply_view.blocks import BlockRenderer
    from akunu_py.cli.reply_view.draft_tint import DraftTint, NameOf
    from akunu_py.cli.reply_view.live_lines import Size

Reasoning = Literal["show", "fold", "hide"]


class Answer(Protocol):
    """Shows what is not reasoning."""

    def feed(self, piece: TextPiece) -> None:
        """Show a piece."""

    def finish(self) -> None:
        """End the reply's last line."""


class Thoughts(Protocol):
    """Shows reasoning."""

    def feed(self, text: str) -> None:
        """Show a part of it."""

    def progress(self, tokens: int) -> None:
        """Take in how many tokens there were so far, markers and whole steps included."""

    def finish(self) -> None:
        """Go on to the answer."""


class ReplyView:
    """Shows one reply: `feed` its events, then `finish`, which leaves the terminal as it was.

    As a context manager it is finished at the end, also where the reply failed, unless nothing was
    shown then.
    """

    def __init__(
        self,
        answer: Answer,
        thoughts: Thoughts | None,
        splitter: ReasoningSplitter | None,
        tint: "DraftTint | None" = None,
    ) -> None:
        self._answer = answer
        self._tint = tint
        self._thoughts = thoughts
        self._splitter = splitter
        self._thinking = self._answering = False
        self._tokens = 0
        self._begun = self._finished = False

    def feed(self, event: StreamEvent) -> None:
        self._begun = True
        pieces = event.pieces or ((TextPiece(event.text),) if event.text else ())
        splitter = self._splitter
        if splitter is None:
            self._show([(False, piece) for piece in pieces])
        else:
            if not splitter.answering:
                self._tokens += len(event.token_ids)
            self._show(splitter.feed(pieces))
            if self._thinking and self._thoughts is not None:
                self._thoughts.progress(self._tokens)
        if event.step is not None and self._tint is not None:
            self._tint.count(event.step)

    @property
    def drafts(self) -> "Text | None":
        """Return what the reply was made of, where drafts are tinted."""
        return None if self._tint is None else self._tint.summary()

    def finish(self) -> None:
        if self._finished:
            return
        self._finished = True
        if self._splitter is not None:
            self._show(self._splitter.finish())
        self._end_thoughts()
        self._answer.finish()

    def _show(self, parts: list[tuple[bool, TextPiece]]) -> None:
        for is_thought, piece in parts:
            if not is_thought:
                self._end_thoughts()
                self._answering = True
                self._answer.feed(piece)
            elif self._thoughts is not None and not self._answering:
                # Between two messages of an answer they would break into what is drawn.
                self._thinking = True
                self._thoughts.feed(piece.text)

    def _end_thoughts(self) -> None:
        if self._thinking and self._thoughts is not None:
            self._thoughts.progress(self._tokens)
            self._thoughts.finish()
        self._thinking = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None or self._begun:
            self.finish()


def make_view(
    *,
    plain: bool,
    show_drafts: bool,
    name_source: "NameOf | None" = None,
    stream: TextIO,
    reasoning: Reasoning = "show",
    prompt_end: str = "",
    size: "Size | None" = None,
    clock: Callable[[], float] = time.perf_counter,
) -> ReplyView:
    """Return what shows the next reply.

    On a terminal that is Markdown, or with `plain` text as it is; with `show_drafts` accepted
    drafts are tinted by their sources, as `name_source` names them. Anywhere else it is text as it
    is. `prompt_end` is the end of the prompt, control tokens
    written out: some templates open the reasoning. `size` is the terminal's, if the stream cannot
    say so; `clock` gives seconds.
    """
    draws = stream.isatty() and os.environ.get("TERM") not in {"dumb", "unknown"}
    as_is = not draws or (plain and not show_drafts)
    splitter = None if as_is and reasoning == "show" else ReasoningSplitter(prompt_end)
    if as_is and (not draws or reasoning != "fold"):
        return ReplyView(_PlainText(stream), None, splitter)
    # These import rich, which takes 0.1 s.
    from akunu_py.cli.reply_view.blocks import BlockRenderer
    from akunu_py.cli.reply_view.draft_tint import DraftTint, name_of
    from akunu_py.cli.reply_view.shown_thoughts import (
        FoldedThoughts,
        PaleThoughts,
    )

    renderer = BlockRenderer(stream)
    size = size or terminal_size(stream)
    tint = None
    if show_drafts:
        tint = DraftTint(name_source or name_of, has_colors=renderer.has_colors)
        renderer = BlockRenderer(stream, tint.styles)
    answer: Answer
    if plain:
        answer = _PlainText(stream, renderer, tint)
    else:
        answer = _MarkdownText(stream, renderer, size, clock, tint)
    thoughts: Thoughts | None = None
    if reasoning == "fold":
        thoughts = FoldedThoughts(renderer, stream, size, clock)
    elif reasoning == "show":
        thoughts = PaleThoughts(renderer, stream)
    return ReplyView(answer, thoughts, splitter, tint)


def terminal_size(stream: TextIO) -> "Size":
    """Return what asks a terminal for its size; 80 x 24 where it does not answer."""

    def size() -> os.terminal_size:
        try:
            found = os.get_terminal_size(stream.fileno())
        except (OSError, ValueError):
            return os.terminal_size((80, 24))
        # A serial line says 0 x 0.
        return os.terminal_size((found.columns or 80, found.lines or 24))

    return size


class _PlainText:
    """Text as it is; on a terminal without what would change its state."""

    def __init__(
        self,
        stream: TextIO,
        renderer: "BlockRenderer | None" = None,
        tint: "DraftTint | None" = None,
    ) -> None:
        self._stream = stream
        self._renderer = renderer
        self._tint = tint

    def feed(self, piece: TextPiece) -> None:
        text = printable(piece.text, self._stream)
        if self._renderer is not None and self._tint is not None and piece.source:
            style = self._tint.styles[self._tint.mark(piece.source, piece.place)]
            paint = self._renderer.paint
            # Underlining would otherwise go on to the end of a line that ends within it.
            text = "\n".join(paint(line, style) if line else "" for line in text.split("\n"))
        _write(self._stream, text)

    def finish(self) -> None:
        _write(self._stream, "\n")


class _MarkdownText:
    """Text as Markdown."""

    def __init__(
        self,
        stream: TextIO,
        renderer: "BlockRenderer",
        size: "Size",
        clock: Callable[[], float],
        tint: "DraftTint | None",
    ) -> None:
        from akunu_py.cli.reply_view.markdown_stream import MarkdownStream  # rich

        self._stream = stream
        self._tint = tint
        self._markdown = MarkdownStream(renderer, stream, size, clock)

    def feed(self, piece: TextPiece) -> None:
        mark = " " if self._tint is None else self._tint.mark(piece.source, piece.place)
        self._markdown.feed(printable(piece.text, self._stream), mark)

    def finish(self) -> None:
        self._markdown.finish()


def _write(stream: TextIO, text: str) -> None:
    stream.write(text)
    stream.flush()
