"""Additions to the message of a reply: text, reasoning and tool calls as they come."""

from dataclasses import dataclass, field
from typing import Literal

from akunu_py.values.messages import ToolCall


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """More text of the answer, of one origin as in `akunu_py.values.types.TextPiece`."""

    text: str
    source: str = ""
    place: int = -1
    begin: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More text of the reasoning, without its markers; `source` as in `TextPiece`."""

    text: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class CallStart:
    """The beginning of a tool call.

    Calls of a reply are numbered from 0 in `index`. Results refer to the call by `id`.
    """

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """More of the arguments of call `index`; the texts of a call together are a JSON object."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The end of call `index`, with the whole call."""

    index: int
    call: ToolCall


@dataclass(frozen=True, slots=True)
class UnfinishedCall:
    """A call that is not complete, so that it must not be carried out.

    `name` and `id` are "" where the reply ended before the arguments began. `arguments` is the
    beginning of a JSON text. The reason is "cut" where the reply ended within
    the call, and "malformed" where the arguments are not an object of JSON values. The latter
    happens only to text that was written without a grammar.
    """

    index: int
    id: str
    name: str
    arguments: str
    reason: Literal["cut", "malformed"]


ReplyDelta = ContentDelta | ReasoningDelta | CallStart | ArgumentsDelta | CallEnd | UnfinishedCall
