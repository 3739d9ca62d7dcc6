"""Where the text comes from that a parser has not passed on yet."""

from collections import deque
from typing import NamedTuple

from akunu_py.values.reply_deltas import ContentDelta


class Part(NamedTuple):
    """So many characters of a source, from a place of the reply's text on.

    `source` and `begin` are as in `akunu_py.values.types.TextPiece`.
    """

    size: int
    source: str
    begin: int


class Sources:
    """The sources of a text, which is added at its end and taken from its beginning."""

    def __init__(self) -> None:
        self._parts: deque[Part] = deque()

    def add(self, size: int, source: str, begin: int = -1) -> None:
        """Add text of a source."""
        if size:
            self._parts.append(Part(size, source, begin))

    def take(self, size: int) -> list[Part]:
        """Take the first characters; return their sources."""
        taken = []
        while size:
            here, source, begin = self._parts.popleft()
            if here > size:
                rest = begin + size if begin >= 0 else -1
                self._parts.appendleft(Part(here - size, source, rest))
                here = size
            taken.append(Part(here, source, begin))
            size -= here
        return taken


def sourced_content(text: str, sources: list[Part]) -> list[ContentDelta]:
    """Return a text as content, cut where its source changes; `sources` may be of a longer text.

    It is cut as well where the reply has other text between, which no reader sees.
    """
    found: list[ContentDelta] = []
    place = 0
    for size, source, begin in sources:
        part = text[place : place + size]
        place += size
        if part and found and found[-1].source == source and _ends(found[-1]) == begin:
            found[-1] = ContentDelta(found[-1].text + part, source, begin=found[-1].begin)
        elif part:
            found.append(ContentDelta(part, source, begin=begin))
    return found


def _ends(content: ContentDelta) -> int:
    return content.begin + len(content.text) if content.begin >= 0 else -1
