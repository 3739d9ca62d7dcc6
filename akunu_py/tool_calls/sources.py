"""Who drafted the text that a parser has not passed on yet."""

from collections import deque

from akunu_py.values.reply_deltas import ContentDelta


class Sources:
    """The sources of a text, which is added at its end and taken from its beginning."""

    def __init__(self) -> None:
        self._parts: deque[tuple[int, str]] = deque()  # sizes in characters

    def add(self, size: int, source: str) -> None:
        """Add text of a source; `source` as in `akunu_py.values.types.TextPiece`."""
        if size:
            self._parts.append((size, source))

    def take(self, size: int) -> list[tuple[int, str]]:
        """Take the first characters; return their sources with the number of each."""
        taken = []
        while size:
            here, source = self._parts.popleft()
            if here > size:
                self._parts.appendleft((here - size, source))
                here = size
            taken.append((here, source))
            size -= here
        return taken


def sourced_content(text: str, sources: list[tuple[int, str]]) -> list[ContentDelta]:
    """Return a text as content, cut where its source changes; `sources` may be of a longer text."""
    found: list[ContentDelta] = []
    place = 0
    for size, source in sources:
        part = text[place : place + size]
        place += size
        if part and found and found[-1].source == source:
            found[-1] = ContentDelta(found[-1].text + part, source)
        elif part:
            found.append(ContentDelta(part, source))
    return found
