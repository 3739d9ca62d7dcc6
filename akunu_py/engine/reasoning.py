"""What a model thinks before it answers, told from the answer."""

from collections.abc import Sequence
from dataclasses import replace

from akunu_py.protocols import Tokenizer
from akunu_py.types import TextPiece

_PROMPT_END = 16
"""Tokens of a prompt that are looked at for a marker that opens the reasoning."""

THOUGHTS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|inner_prefix|>": "<|inner_suffix|>",
    "<longcat_think>": "</longcat_think>",
    "<|think:start|>": "<|think:end|>",
    "<|channel>thought": "<channel|>",
    "<|channel|>analysis<|message|>": "<|end|>",
    "<|think|>": "<|end|>",
}
"""What opens and closes the thoughts of DeepSeek and Qwen, others, Seed-OSS, Magistral, Cohere's
Command A, Apertus, LongCat and others (mlx-lm's `tokenizer_utils.py`), Gemma 4, gpt-oss (OpenAI's
"Harmony response format") and Solar Open (llama.cpp's `common/chat.cpp`)."""

_ANSWERS = {
    "<|channel|>final<|message|>": "<|end|>",
    "<|channel|>commentary<|message|>": "<|end|>",
    "<|content|>": "<|end|>",
}
"""The same for answers, in formats that write a reply as several messages."""

_SPEAKERS = ("<|start|>assistant", "<|begin|>assistant")
_MESSAGE_END = "<|end|>"
_BLOCKS = THOUGHTS | _ANSWERS
_MARKERS = (*_BLOCKS, *_SPEAKERS)
_LEFT_TO_TEMPLATES = "<think>"


def end_of_prompt(prompt: Sequence[int], tokenizer: Tokenizer) -> str:
    """Return the end of a reply's prompt, control tokens written out."""
    return tokenizer.decode(prompt[-_PROMPT_END:], with_control=True)


def opening_marker(prompt_end: str) -> str | None:
    """Return the marker with which a prompt opens the reply's first block; None without."""
    end = prompt_end.rstrip()
    return next((marker for marker in _BLOCKS if end.endswith(marker)), None)


def opening_text(prompt_end: str) -> str:
    """Return the end of a prompt from such a marker on; "" without."""
    marker = opening_marker(prompt_end)
    return "" if marker is None else prompt_end[prompt_end.rindex(marker) :]


def for_history(reply: str) -> str:
    """Return a reply as a conversation goes on from it: without its thoughts.

    Those between <think> and </think> stay: templates find them in the text and most leave them
    out (Qwen's, DeepSeek's). Other templates want thoughts apart from the text, or refuse texts
    with their markers as gpt-oss's does, and most would leave out earlier ones, too.
    """
    if reply.lstrip().startswith(_LEFT_TO_TEMPLATES):
        return reply
    splitter = ReasoningSplitter()
    parts = [*splitter.feed([TextPiece(reply)]), *splitter.finish()]
    return "".join(piece.text for is_thought, piece in parts if not is_thought)


class ReasoningSplitter:
    """Tells thoughts from the answer, piece by piece.

    Thoughts are at the beginning of a reply or nowhere: a marker behind the first word is text. In
    formats of several messages each of them may be thoughts; a blank line comes between two of one
    kind. Text that may be part of a marker is held back. White space at the borders is left out.

    Attributes:
        inside: whether the text so far ends within thoughts.

    """

    def __init__(self, prompt_end: str = "") -> None:
        """Begin inside where the prompt ends with an opening marker."""
        self.inside = False
        # What ends the open block: "" the reply's end; None where no block is open.
        self._close: str | None = None
        self._at_border = False  # whether white space that comes now is left out
        self._apart = False  # whether a blank line is due
        self._seen: set[bool] = set()  # what was returned: thoughts, answer
        self._held: list[TextPiece] = []
        if (marker := opening_marker(prompt_end)) is not None:
            self._open(marker)

    @property
    def answering(self) -> bool:
        """Whether what comes is answer."""
        return not self.inside and self._close is not None

    def feed(self, pieces: Sequence[TextPiece]) -> list[tuple[bool, TextPiece]]:
        """Return what can be shown now: whether it is thought, and the text."""
        self._held += pieces
        found: list[tuple[bool, TextPiece]] = []
        while self._close is not None or self._begin_block():
            close = self._close or ""
            text = _text(self._held)
            end = text.find(close) if close else -1
            size = end if end >= 0 else len(text) - _overlap(text, close)
            if close:
                # White space is left out if nothing follows.
                size = len(text[:size].rstrip())
            found += self._shown(_take(self._held, size))
            if end < 0:
                break
            _take(self._held, end - size + len(close))
            self.inside, self._at_border = False, True
            self._close = None if close == _MESSAGE_END else ""
        return found

    def finish(self) -> list[tuple[bool, TextPiece]]:
        """Return what was held back when the reply ended."""
        rest, self._held = self._held, []
        if self._close is None and self._seen:
            return []  # half a marker, between two messages
        if self.inside:
            _take_space_at_end(rest)
        return self._shown(rest)

    def _begin_block(self) -> bool:
        """Open the block that the held text begins; return whether that is known yet."""
        while True:
            text = _text(self._held)
            start = text.lstrip()
            if any(marker.startswith(start) and marker != start for marker in _MARKERS):
                return False
            marker = next((marker for marker in _MARKERS if start.startswith(marker)), None)
            if marker is None:
                self._close = ""
                return True
            _take(self._held, len(text) - len(start) + len(marker))
            if marker in _BLOCKS:
                self._open(marker)
                return True
            self._at_border = True

    def _open(self, marker: str) -> None:
        self.inside, self._close = marker in THOUGHTS, _BLOCKS[marker]
        self._at_border, self._apart = True, self.inside in self._seen

    def _shown(self, pieces: list[TextPiece]) -> list[tuple[bool, TextPiece]]:
        """Return pieces of the open block without the white space that follows its border."""
        if self._at_border:
            text = _text(pieces)
            _take(pieces, len(text) - len(text.lstrip()))
            self._at_border = not pieces
        if not pieces:
            return []
        before = [TextPiece("\n\n")] if self._apart else []
        self._apart = False
        self._seen.add(self.inside)
        return [(self.inside, piece) for piece in (*before, *pieces)]


def _text(pieces: Sequence[TextPiece]) -> str:
    return "".join(piece.text for piece in pieces)


def _take(pieces: list[TextPiece], size: int) -> list[TextPiece]:
    """Remove the first `size` characters of the pieces, and return them."""
    taken = []
    while size > 0:
        piece = pieces.pop(0)
        taken.append(replace(piece, text=piece.text[:size]))
        if len(piece.text) > size:
            pieces.insert(0, replace(piece, text=piece.text[size:]))
        size -= len(piece.text)
    return taken


def _take_space_at_end(pieces: list[TextPiece]) -> None:
    while pieces:
        last = pieces.pop()
        text = last.text.rstrip()
        if text:
            pieces.append(replace(last, text=text))
            return


def _overlap(text: str, marker: str) -> int:
    """Return the length of the longest end of a text that begins a marker."""
    sizes = range(min(len(text), len(marker) - 1), 0, -1)
    return next((size for size in sizes if text.endswith(marker[:size])), 0)
