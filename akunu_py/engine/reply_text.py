"""The growing text of a reply, with the source of each piece."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from akunu_py.decoding.loop import Step
from akunu_py.decoding.stats import cut_step
from akunu_py.decoding.stopping import StopTexts
from akunu_py.protocols import Detokenizer
from akunu_py.values.decode_stats import UNNAMED
from akunu_py.values.types import TextPiece


@dataclass(slots=True)
class _Waiting:
    """Text that is not shown yet: how many characters, and where they come from."""

    size: int
    source: str
    place: int


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
        self._shown = 0  # characters of all of them
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
        self._waiting.append(_Waiting(len(text), self._source, self._place))
        piece, stopped = self._stops.feed(text)
        if not stopped:
            piece += self._stops.finish()
        return self._with_sources(piece)

    def _with_sources(self, text: str) -> tuple[TextPiece, ...]:
        """Return text to show, cut where its source changes."""
        self._pieces.append(text)
        start = self._shown
        self._shown += len(text)
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
