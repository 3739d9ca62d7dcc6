"""The growing text of a reply, with the source of each piece, and the message in it."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from akunu_py.decoding.loop import Step
from akunu_py.decoding.stats import cut_step
from akunu_py.decoding.stopping import StopTexts
from akunu_py.engine.reasoning import ReasoningSplitter
from akunu_py.protocols import Detokenizer
from akunu_py.values.decode_stats import UNNAMED
from akunu_py.values.messages import Message
from akunu_py.values.reply_deltas import (
    CallEnd,
    ContentDelta,
    ReasoningDelta,
    ReplyDelta,
    UnfinishedCall,
)
from akunu_py.values.types import TextPiece

if TYPE_CHECKING:
    from akunu_py.tool_calls.given_reader import GivenParser
    from akunu_py.tool_calls.parser import CallParser


@dataclass(slots=True)
class _Waiting:
    """Text that is not shown yet: how many characters, and where they come from."""

    size: int
    source: str
    place: int


class ReplyText:
    """The text of a reply, detokenized and cut before a stop text.

    Text that may begin a stop text is held back and keeps its source. `marks` has the control
    tokens that are part of the text, with their texts. Stop texts count in the answer, which
    `splitter` tells from reasoning; without it all is answer.
    """

    def __init__(
        self,
        detokenizer: Detokenizer,
        stops: tuple[str, ...],
        end_ids: frozenset[int],
        marks: Mapping[int, str] | None = None,
        splitter: ReasoningSplitter | None = None,
    ) -> None:
        self._detokenizer = detokenizer
        self._marks = {} if marks is None else marks
        self._stops = StopTexts(stops)
        self._splitter = splitter if stops else None
        self._held = ""
        # Ends of the text that was read, and of the answer in it.
        self._end = self._answer_end = 0
        self._end_ids = end_ids
        self._pieces: list[str] = []
        self._stopped = False
        self._waiting: deque[_Waiting] = deque()
        # Of the token fed last.
        self._source, self._place = "", -1

    @property
    def stop_text(self) -> str | None:
        """The stop text that was reached; None before."""
        return self._stops.reached

    @property
    def shown(self) -> str:
        """All text shown so far."""
        return "".join(self._pieces)

    def take(self, step: Step) -> tuple[Step, tuple[TextPiece, ...]]:
        """Add a step's tokens; return the step, cut at a stop text, and the text to show."""
        shown = ""
        for place, token in enumerate(step.token_ids):
            if token in self._end_ids:
                break
            self._source, self._place = _origin(step, place)
            mark = self._marks.get(token)
            if mark is None:
                text = self._detokenizer.feed((token,))
            else:
                # An incomplete character before the mark stays incomplete.
                text = self._detokenizer.finish() + mark
            self._waiting.append(_Waiting(len(text), self._source, self._place))
            shown += self._released(text)
            if self._stopped:
                count = place + 1
                step = replace(
                    step,
                    token_ids=step.token_ids[:count],
                    stats=cut_step(step.stats, count),
                    finish_reason="stop",
                )
                break
        return step, self._with_sources(shown)

    def finish(self) -> tuple[TextPiece, ...]:
        """Return the text that was held back until the reply ended."""
        if self._stopped:
            return ()
        text = self._detokenizer.finish()
        self._waiting.append(_Waiting(len(text), self._source, self._place))
        return self._with_sources(self._released(text, ended=True))

    def _released(self, text: str, *, ended: bool = False) -> str:
        """Return the text to show after more text; all of it where the reply has `ended`."""
        parts = [(False, TextPiece(text, begin=self._end))]
        self._held += text
        self._end += len(text)
        if self._splitter is not None:
            parts = self._splitter.feed([piece for _, piece in parts])
            parts += self._splitter.finish() if ended else []
        for is_reasoning, piece in parts:
            if is_reasoning or piece.begin < 0:
                continue
            if piece.begin != self._answer_end:
                self._stops.finish()  # a stop text is within one block
            before = piece.begin - self._stops.held
            self._answer_end = piece.begin + len(piece.text)
            shown, self._stopped = self._stops.feed(piece.text)
            if self._stopped:
                return self._release(before + len(shown))
        if ended:
            return self._release(self._end)
        if self._stops.held:
            return self._release(self._answer_end - self._stops.held)
        return self._release(self._end - (self._splitter.held if self._splitter else 0))

    def _release(self, end: int) -> str:
        size = end - (self._end - len(self._held))
        released, self._held = self._held[:size], self._held[size:]
        return released

    def _with_sources(self, text: str) -> tuple[TextPiece, ...]:
        """Return text to show, cut where its source changes."""
        self._pieces.append(text)
        start = self._end - len(self._held) - len(text)
        if text and len(self._waiting) == 1 and self._waiting[0].size == len(text):
            # The usual case: a plain step, with nothing held back.
            first = self._waiting.popleft()
            return (TextPiece(text, first.source, first.place, start),)
        pieces: list[TextPiece] = []
        begin, following = 0, -1
        while begin < len(text):
            here = self._waiting[0]
            end = min(begin + here.size, len(text))
            if begin < end:
                # Copies of tokens that follow each other in the prompt are one piece.
                if pieces and pieces[-1].source == here.source and here.place == following:
                    pieces[-1] = replace(pieces[-1], text=pieces[-1].text + text[begin:end])
                else:
                    pieces.append(
                        TextPiece(text[begin:end], here.source, here.place, start + begin)
                    )
            following = here.place + 1 if here.place >= 0 else -1
            here.size -= end - begin
            if not here.size:
                self._waiting.popleft()
            begin = end
        return tuple(pieces)


def _origin(step: Step, place: int) -> tuple[str, int]:
    """Return the source of a step's token, and the prompt's token that it copies.

    They are "" for the target's own choice, and -1 for a token that copies none.
    """
    draft, accepted = step.draft, step.verification.accepted
    if place >= len(accepted):
        return "", -1
    node = accepted[place]
    source = (draft.origins[node] if draft.origins else draft.source) or UNNAMED
    return source, draft.places[node] if draft.places else -1


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
        parser: "CallParser | GivenParser | None",
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
