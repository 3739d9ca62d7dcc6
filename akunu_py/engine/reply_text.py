"""The growing text of a reply, with the source of each piece."""

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from akunu_py.decoding.loop import Step
from akunu_py.decoding.stats import cut_step
from akunu_py.decoding.stopping import StopTexts
from akunu_py.protocols import Detokenizer
from akunu_py.types import TextPiece

UNNAMED = "drafter"
"""Source of accepted tokens whose drafter does not name one."""


class ReplyText:
    """The text of a reply, detokenized and cut before a stop text.

    Text that may begin a stop text is held back and keeps its source. `marks` has the control
    tokens that are part of the text, with their texts.
    """

    def __init__(
        self,
        detokenizer: Detokenizer,
        stops: tuple[str, ...],
        end_ids: frozenset[int],
        marks: Mapping[int, str] | None = None,
    ) -> None:
        self._detokenizer = detokenizer
        self._marks = {} if marks is None else marks
        self._stops = StopTexts(stops)
        self._end_ids = end_ids
        self._pieces: list[str] = []
        self._stopped = False
        # Sources and lengths, in characters, of text that is not shown yet. The last entry belongs
        # to the last token.
        self._waiting: deque[tuple[str, int]] = deque()
        self._source = ""

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
            self._source = _source(step, place)
            mark = self._marks.get(token)
            if mark is None:
                text = self._detokenizer.feed((token,))
            else:
                # An incomplete character before the mark stays incomplete.
                text = self._detokenizer.finish() + mark
            self._waiting.append((self._source, len(text)))
            piece, self._stopped = self._stops.feed(text)
            shown += piece
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
        self._waiting.append((self._source, len(text)))
        piece, stopped = self._stops.feed(text)
        if not stopped:
            piece += self._stops.finish()
        return self._with_sources(piece)

    def _with_sources(self, text: str) -> tuple[TextPiece, ...]:
        """Return text to show, cut where its source changes."""
        self._pieces.append(text)
        if text and len(self._waiting) == 1 and self._waiting[0][1] == len(text):
            # The usual case: a plain step, with nothing held back.
            source, _ = self._waiting.popleft()
            return (TextPiece(text, source),)
        pieces: list[TextPiece] = []
        begin = 0
        while begin < len(text):
            source, size = self._waiting.popleft()
            end = min(begin + size, len(text))
            if begin + size > end:
                self._waiting.appendleft((source, begin + size - end))
            if begin < end:
                if pieces and pieces[-1].source == source:
                    pieces[-1] = TextPiece(pieces[-1].text + text[begin:end], source)
                else:
                    pieces.append(TextPiece(text[begin:end], source))
            begin = end
        return tuple(pieces)


def _source(step: Step, place: int) -> str:
    """Return the source of a step's token; "" for the target's own choice."""
    draft, accepted = step.draft, step.verification.accepted
    if place >= len(accepted):
        return ""
    return (draft.origins[accepted[place]] if draft.origins else draft.source) or UNNAMED
