"""A reply as it is shown: which parts, and each in its way."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self, TextIO

from akunu_py.cli.terminal import is_dumb, printable
from akunu_py.values.reply_deltas import ContentDelta, ReasoningDelta
from akunu_py.values.types import StreamEvent

if TYPE_CHECKING:
    from rich.text import Text

    from akunu_py.cli.reply_view.blocks import BlockRenderer
    from akunu_py.cli.reply_view.draft_sources import NameOf
    from akunu_py.cli.reply_view.draft_tint import DraftTint
    from akunu_py.cli.reply_view.live_lines import Size
    from akunu_py.cli.reply_view.markdown_stream import MarkdownStream
    from akunu_py.cli.reply_view.shown_reasoning import DimmedReasoning, FoldedReasoning

Reasoning = Literal["show", "fold", "hide"]


class ReplyView:
    """Shows one reply: `feed` its events, then `finish`, which leaves the terminal as it was.

    With `as_is` the text is one answer, with the markers in it. As a context manager it is finished
    at the end, also where the reply failed, unless nothing was shown then.
    """

    def __init__(
        self,
        answer: "_PlainText | MarkdownStream",
        reasoning: "DimmedReasoning | FoldedReasoning | None",
        tint: "DraftTint | None" = None,
        *,
        as_is: bool = False,
    ) -> None:
        self._answer = answer
        self._tint = tint
        self._reasoning = reasoning
        self._as_is = as_is
        self._thinking: DimmedReasoning | FoldedReasoning | None = None
        self._in_answer = False
        # Of the reasoning so far, markers and whole steps included.
        self._tokens = 0
        self._begun = self._finished = False

    def feed(self, event: StreamEvent) -> None:
        self._begun = True
        deltas = (ContentDelta(event.text),) if self._as_is else event.deltas
        if not self._in_answer and not isinstance(next(iter(deltas), None), ContentDelta):
            self._tokens += len(event.token_ids)
        if self._thinking is not None:  # a step may bring nothing but tokens
            self._thinking.feed("", self._tokens)
        for delta in deltas:
            if isinstance(delta, ContentDelta):
                self._end_reasoning()
                self._in_answer = True
                self._answer.feed(delta)
            elif isinstance(delta, ReasoningDelta) and not self._in_answer:
                # Between two messages of an answer it would break into what is drawn.
                self._thinking = self._reasoning
                if self._thinking is not None:
                    self._thinking.feed(delta.text, self._tokens)
        if event.step is not None and self._tint is not None:
            self._tint.count(event.step)

    @property
    def drafts(self) -> "Text | None":
        """Return the sources of the reply, where drafts are tinted."""
        return None if self._tint is None else self._tint.summary()

    def finish(self) -> None:
        if self._finished:
            return
        self._finished = True
        self._end_reasoning()
        self._answer.finish()

    def _end_reasoning(self) -> None:
        if self._thinking is not None:
            self._thinking.finish()
        self._thinking = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or self._begun:
            self.finish()


def make_view(
    *,
    plain: bool,
    show_drafts: bool = False,
    name_source: "NameOf | None" = None,
    stream: TextIO,
    reasoning: Reasoning = "show",
    size: "Size | None" = None,
    clock: Callable[[], float] = time.perf_counter,
) -> ReplyView:
    """Return the view that shows the next reply.

    On a terminal that is Markdown, or with `plain` text as it is; with `show_drafts` accepted
    drafts are tinted by their sources, as `name_source` names them. Anywhere else it is text as it
    is. `size` is the terminal's, if the stream cannot say so; `clock` gives seconds.
    """
    draws = stream.isatty() and not is_dumb()
    as_is = not draws or (plain and not show_drafts)
    if as_is and (not draws or reasoning != "fold"):
        return ReplyView(_PlainText(stream), None, as_is=reasoning == "show")
    # These import rich, which takes 0.1 s.
    from akunu_py.cli.reply_view.blocks import BlockRenderer
    from akunu_py.cli.reply_view.draft_sources import name_of
    from akunu_py.cli.reply_view.draft_tint import DraftTint
    from akunu_py.cli.reply_view.markdown_stream import MarkdownStream
    from akunu_py.cli.reply_view.shown_reasoning import DimmedReasoning, FoldedReasoning

    renderer = BlockRenderer(stream)
    size = size or terminal_size(stream)
    tint = None
    if show_drafts:
        tint = DraftTint(name_source or name_of, has_colors=renderer.has_colors)
        renderer = BlockRenderer(stream, tint.styles)
    answer: _PlainText | MarkdownStream
    if plain:
        answer = _PlainText(stream, renderer, tint)
    else:
        answer = MarkdownStream(renderer, stream, size, clock, tint)
    shown: DimmedReasoning | FoldedReasoning | None = None
    if reasoning == "fold":
        shown = FoldedReasoning(renderer, stream, size, clock)
    elif reasoning == "show":
        shown = DimmedReasoning(renderer, stream)
    return ReplyView(answer, shown, tint)


def terminal_size(stream: TextIO) -> "Size":
    """Return a function that asks a terminal for its size; 80 x 24 where it does not answer."""

    def size() -> os.terminal_size:
        try:
            found = os.get_terminal_size(stream.fileno())
        except (OSError, ValueError):
            return os.terminal_size((80, 24))
        # A serial line says 0 x 0.
        return os.terminal_size((found.columns or 80, found.lines or 24))

    return size


@dataclass(frozen=True, slots=True)
class _PlainText:
    """Text as it is; on a terminal without what would change its state."""

    stream: TextIO
    renderer: "BlockRenderer | None" = None
    tint: "DraftTint | None" = None

    def feed(self, piece: ContentDelta) -> None:
        text = printable(piece.text, self.stream)
        if self.renderer is not None and self.tint is not None and piece.source:
            style = self.tint.styles[self.tint.mark(piece.source, piece.place)]
            text = self.renderer.paint(text, style)
        self.stream.write(text)
        self.stream.flush()

    def finish(self) -> None:
        self.stream.write("\n")
        self.stream.flush()
