"""Calls that a function of another library reads, where a template's format is not understood.

There is no grammar for them, so they are not forced to be valid.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from akunu_py.system.errors import ConfigError
from akunu_py.tool_calls.parser import new_id
from akunu_py.tool_calls.sources import overlap, sourced_content, take_pieces
from akunu_py.tool_calls.values import read_json
from akunu_py.values.messages import Tool, ToolCall
from akunu_py.values.reply_deltas import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    ReplyDelta,
    UnfinishedCall,
)
from akunu_py.values.types import TextPiece


@dataclass(frozen=True, slots=True)
class GivenReader:
    """A function that reads the calls between two texts."""

    name: str
    """Whose it is, for messages."""

    start: str
    end: str
    """Text after calls; "" if they reach to the end of the reply."""

    read: Callable[[str, list[dict[str, Any]]], object]
    """From the text between them and the tools in OpenAI's format to a call, or a list of calls:
    mappings with `name` and `arguments`. May raise anything."""


@runtime_checkable
class GivesReader(Protocol):
    """A tokenizer whose model comes with a reader of its calls."""

    def call_reader(self) -> GivenReader | None:
        """Return the reader, or None."""


@dataclass(slots=True)
class GivenParser:
    """Separates calls from content, as `CallParser` does; each call comes as a whole."""

    reader: GivenReader
    tools: Sequence[Tool]
    _buffer: str = field(default="", init=False)
    _searched: int = field(default=0, init=False)
    _inside: bool = field(default=False, init=False)
    _count: int = field(default=0, init=False)
    _pieces: list[TextPiece] = field(default_factory=list, init=False)  # of the buffer
    _taken: list[TextPiece] = field(default_factory=list, init=False)  # of what was taken

    def feed(self, text: str, source: str = "", begin: int = -1) -> list[ReplyDelta]:
        """Return the certain pieces after more text; `source` and `begin` as in `TextPiece`."""
        self._buffer += text
        self._pieces.append(TextPiece(text, source, begin=begin))
        return list(self._read())

    def finish(self, *, cut: bool = False) -> list[ReplyDelta]:
        """Return the text held back until the reply ended, by itself or `cut`."""
        return list(self._read(ended=True, cut=cut))

    def _read(self, *, ended: bool = False, cut: bool = False) -> Iterator[ReplyDelta]:
        while self._buffer or self._inside:
            marker = self.reader.end if self._inside else self.reader.start
            place = self._buffer.find(marker, self._searched) if marker else -1
            if place < 0 and not ended:
                size = len(self._buffer) - (overlap(self._buffer, marker) if marker else 0)
                if self._inside:
                    self._searched = size
                else:
                    # White space before a call belongs to neither.
                    said = self._take(len(self._buffer[:size].rstrip()))
                    yield from sourced_content(said, self._taken)
                return
            text = self._take(len(self._buffer) if place < 0 else place)
            pieces = self._taken
            self._take(len(marker))
            if not self._inside:
                yield from sourced_content(text.rstrip() if place >= 0 else text, pieces)
                self._inside = place >= 0
            else:
                self._inside = False
                yield from self._calls(text, cut=cut and place < 0)

    def _calls(self, text: str, *, cut: bool) -> Iterator[ReplyDelta]:
        index = self._count
        try:
            calls = [] if cut else self._read_calls(text)
        except (ValueError, ConfigError):
            calls = []
        if not calls:
            yield UnfinishedCall(index, "", "", text, "cut" if cut else "malformed")
        for call in calls:
            self._count += 1
            yield CallStart(index, call.id, call.name)
            yield ArgumentsDelta(index, json.dumps(call.arguments, ensure_ascii=False))
            yield CallEnd(index, call)
            index += 1

    def _read_calls(self, text: str) -> list[ToolCall]:
        given = [
            {"type": "function", "function": {"name": tool.name, "parameters": tool.parameters}}
            for tool in self.tools
        ]
        try:
            found = self.reader.read(text, given)
        except Exception as error:  # the library's own, for a text that is not a call
            raise ValueError(str(error)) from error
        names = {tool.name for tool in self.tools}
        calls = [_call(call) for call in (found if isinstance(found, list) else [found])]
        return calls if all(call.name in names for call in calls) else []

    def _take(self, size: int) -> str:
        taken, self._buffer, self._searched = self._buffer[:size], self._buffer[size:], 0
        self._taken = take_pieces(self._pieces, len(taken))
        return taken


def _call(found: object) -> ToolCall:
    if not isinstance(found, Mapping) or not isinstance(found.get("name"), str):
        raise ValueError("a call has a name")  # noqa: TRY004 - as for any text that is not a call
    arguments = found.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, allow_nan=False)
    return ToolCall(found["name"], read_json(text), str(found.get("id") or new_id()))
