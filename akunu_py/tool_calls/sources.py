"""Pieces of text that a reader has not passed on yet, and where they come from."""

from collections.abc import Sequence
from dataclasses import replace

from akunu_py.values.reply_deltas import ContentDelta
from akunu_py.values.types import TextPiece


def take_pieces(pieces: list[TextPiece], size: int) -> list[TextPiece]:
    """Remove the first `size` characters of the pieces, and return them."""
    taken = []
    while size > 0:
        piece = pieces.pop(0)
        taken.append(replace(piece, text=piece.text[:size]))
        if len(piece.text) > size:
            begin = piece.begin + size if piece.begin >= 0 else -1
            pieces.insert(0, replace(piece, text=piece.text[size:], begin=begin))
        size -= len(piece.text)
    return taken


def sourced_content(text: str, pieces: Sequence[TextPiece]) -> list[ContentDelta]:
    """Return a text that begins these pieces as content, cut where source or place change."""
    found: list[ContentDelta] = []
    for piece in take_pieces(list(pieces), len(text)):
        last = found[-1] if found else None
        if last is not None and (last.source, _end(last)) == (piece.source, piece.begin):
            found[-1] = replace(last, text=last.text + piece.text)
        else:
            found.append(ContentDelta(piece.text, piece.source, begin=piece.begin))
    return found


def _end(content: ContentDelta) -> int:
    return content.begin + len(content.text) if content.begin >= 0 else -1


def overlap(text: str, end: str) -> int:
    """Return the length of the longest end of a text that begins `end`."""
    sizes = range(min(len(text), len(end) - 1), 0, -1)
    return next((size for size in sizes if text.endswith(end[:size])), 0)
