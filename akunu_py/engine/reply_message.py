"""The message of a reply: its reasoning, its text and its calls, read from the text as it comes."""

from collections.abc import Mapping, Sequence
from functools import partial

from akunu_py.engine.reasoning import ReasoningSplitter
from akunu_py.tool_calls.given_reader import GivenParser
from akunu_py.tool_calls.parser import CallParser
from akunu_py.values.messages import Message
from akunu_py.values.reply_deltas import (
    CallEnd,
    ContentDelta,
    ReasoningDelta,
    ReplyDelta,
    UnfinishedCall,
)
from akunu_py.values.types import TextPiece


class MessageReader:
    """Turns the text of a reply into additions to a message, and these into the message.

    Args:
        prompt_end: end of the prompt, which may have opened the reasoning.
        parser: reads calls; None where there are none.
        said: text behind it that the reply continues, which is not part of the message.
        tags: those around answers.
    """

    def __init__(
        self,
        prompt_end: str,
        parser: CallParser | GivenParser | None,
        said: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> None:
        # Makes what tells reasoning from the answer, from the reply's beginning on.
        self.new_splitter = partial(ReasoningSplitter, prompt_end, said, tags)
        self._splitter = self.new_splitter()
        self._parser = parser
        self._all: list[ReplyDelta] = []
        # A call that was begun and is not complete, or None.
        self.unfinished: UnfinishedCall | None = None

    def feed(self, pieces: Sequence[TextPiece]) -> tuple[ReplyDelta, ...]:
        return self._keep(self._deltas(self._splitter.feed(pieces)))

    def finish(self, *, cut: bool) -> tuple[ReplyDelta, ...]:
        """Return the additions of text that was held back until the reply ended.

        `cut` says that the reply did not end by itself.
        """
        deltas = self._deltas(self._splitter.finish())
        if self._parser is not None:
            deltas += self._parser.finish(cut=cut)
        return self._keep(deltas)

    @property
    def message(self) -> Message:
        """The message so far, with complete calls."""
        return Message(
            "assistant",
            "".join(delta.text for delta in self._all if isinstance(delta, ContentDelta)),
            tool_calls=tuple(delta.call for delta in self._all if isinstance(delta, CallEnd)),
            reasoning="".join(d.text for d in self._all if isinstance(d, ReasoningDelta)),
        )

    def _deltas(self, parts: Sequence[tuple[bool, TextPiece]]) -> list[ReplyDelta]:
        deltas: list[ReplyDelta] = []
        for is_reasoning, piece in parts:
            if is_reasoning:
                deltas.append(ReasoningDelta(piece.text, piece.source))
            elif self._parser is None:
                deltas.append(ContentDelta(piece.text, piece.source, piece.place, piece.begin))
            else:
                deltas += self._parser.feed(piece.text, piece.source, piece.begin)
        return deltas

    def _keep(self, deltas: list[ReplyDelta]) -> tuple[ReplyDelta, ...]:
        self._all += deltas
        for delta in deltas:
            if isinstance(delta, UnfinishedCall):
                self.unfinished = delta
        return tuple(deltas)
