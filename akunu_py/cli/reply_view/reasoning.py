"""What a model thinks before it answers: told from the answer, and shown in its own way."""

from collections.abc import Sequence

from akunu_py.types import TextPiece

MARKERS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "<|channel>thought": "<channel|>",
}
"""What opens and closes the thoughts in the templates of DeepSeek and Qwen, others, Seed-OSS,
Magistral and Gemma 4, where these are part of the text."""


class ReasoningSplitter:
    """Tells thoughts from the answer, piece by piece.

    Thoughts are at the beginning of a reply or nowhere: a marker behind the first word is text.
    Text that may be part of a marker is held back. White space at the borders is left out.

    Attributes:
        inside: whether the text so far ends within thoughts.

    """

    def __init__(self, prompt_end: str = "") -> None:
        """Begin inside where the prompt ends with an opening marker."""
        prompt_end = prompt_end.rstrip()
        opened = [close for begin, close in MARKERS.items() if prompt_end.endswith(begin)]
        self.inside = bool(opened)
        self._close = opened[0] if opened else ""
        self._undecided = not opened  # whether the reply may still begin with a marker
        self._at_border = True  # whether white space that comes now is left out
        self._held: list[TextPiece] = []

    @property
    def answering(self) -> bool:
        """Whether all that comes is answer."""
        return not (self.inside or self._undecided)

    def feed(self, pieces: Sequence[TextPiece]) -> list[tuple[bool, TextPiece]]:
        """Return what can be shown now: whether it is thought, and the text."""
        self._held += pieces
        if self._undecided:
            text = _text(self._held)
            start = text.lstrip()
            if any(marker.startswith(start) and marker != start for marker in MARKERS):
                return []
            self._undecided = False
            for marker, close in MARKERS.items():
                if start.startswith(marker):
                    self.inside, self._close = True, close
                    _take(self._held, len(text) - len(start) + len(marker))
                    break
            else:
                # No thoughts: the answer's own white space stays.
                self._at_border = False
        return self._thoughts() if self.inside else self._answer()

    def finish(self) -> list[tuple[bool, TextPiece]]:
        """Return what was held back when the reply ended."""
        rest, self._held = self._held, []
        if self.inside:
            _take_space_at_end(rest)
        return [(self.inside, piece) for piece in rest]

    def _thoughts(self) -> list[tuple[bool, TextPiece]]:
        text = _text(self._held)
        end = text.find(self._close)
        if end < 0:
            shown = len(text) - _overlap(text, self._close)
            # White space is left out if nothing follows.
            shown = len(text[:shown].rstrip())
            return [(True, piece) for piece in self._from_border(_take(self._held, shown))]
        thoughts = _take(self._held, len(text[:end].rstrip()))
        _take(self._held, end + len(self._close) - len(_text(thoughts)))
        found = [(True, piece) for piece in self._from_border(thoughts)]
        self.inside, self._at_border = False, True
        return found + self._answer()

    def _answer(self) -> list[tuple[bool, TextPiece]]:
        held, self._held = self._held, []
        return [(False, piece) for piece in self._from_border(held)]

    def _from_border(self, pieces: list[TextPiece]) -> list[TextPiece]:
        """Return pieces without the white space that follows a border."""
        if self._at_border:
            text = _text(pieces)
            _take(pieces, len(text) - len(text.lstrip()))
            self._at_border = not pieces
        return pieces


def _text(pieces: Sequence[TextPiece]) -> str:
    return "".join(piece.text for piece in pieces)


def _take(pieces: list[TextPiece], size: int) -> list[TextPiece]:
    """Remove the first `size` characters of the pieces, and return them."""
    taken = []
    while size > 0:
        piece = pieces.pop(0)
        taken.append(TextPiece(piece.text[:size], piece.source))
        if len(piece.text) > size:
            pieces.insert(0, TextPiece(piece.text[size:], piece.source))
        size -= len(piece.text)
    return taken


def _take_space_at_end(pieces: list[TextPiece]) -> None:
    while pieces:
        last = pieces.pop()
        text = last.text.rstrip()
        if text:
            pieces.append(TextPiece(text, last.source))
            return


def _overlap(text: str, marker: str) -> int:
    """Return the length of the longest end of a text that begins a marker."""
    sizes = range(min(len(text), len(marker) - 1), 0, -1)
    return next((size for size in sizes if text.endswith(marker[:size])), 0)
