"""Tool calls in the answer of a model, read as it comes.

Text is content until a whole beginning of a call was read: the marker, the name of a tool and what
stands before the arguments. So text that only looks like a call stays text, and nothing is dropped.
"""

import json
import re
import secrets
import string
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from akunu_py.system.errors import ConfigError
from akunu_py.tool_calls.format import (
    ID,
    INDEX,
    SPACE,
    Kind,
    PythonArguments,
    QuotedArguments,
    TaggedArguments,
    ToolFormat,
    flexible,
)
from akunu_py.tool_calls.schemas import kinds_of
from akunu_py.tool_calls.sources import overlap, sourced_content, take_pieces
from akunu_py.tool_calls.values import KINDS, read_json, read_python_text, read_text
from akunu_py.values.messages import Tool, ToolCall
from akunu_py.values.reply_deltas import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    ContentDelta,
    ReplyDelta,
    UnfinishedCall,
)
from akunu_py.values.types import TextPiece

_NAME = re.compile(r"[A-Za-z0-9_.-]*")
_PLACES = {
    ID: re.compile(r"[A-Za-z0-9_-]+"),
    INDEX: re.compile(r"[0-9]+"),
    SPACE: re.compile(r"[ \t\r\n]{0,8}"),
}
_BLANK = re.compile(r"\s*+\Z")
_JSON_MARKS = re.compile(r'[{}\[\]"]')
_STRING_END = re.compile(r'(?:[^"\\]|\\.)*+"', re.DOTALL)
_STRING_PART = re.compile(r'(?:[^"\\]|\\.)*+', re.DOTALL)
_KEYWORD = re.compile(r"\s*(?:\)|[\w.$-]+\s*=)")
_KEYWORD_BEGUN = re.compile(r"\s*[\w.$-]*\s*")
_PYTHON_PART = {quote: re.compile(rf"(?:[^{quote}\\]|\\.)*+", re.DOTALL) for quote in "'\""}
_PYTHON_WORD_END = re.compile(r"[=:,)}\]\s]")
_QUOTED_WORD_END = re.compile(r"[:,}\]]")

_Steps = Generator[None, None, Any]
"""A part of the parser: it yields where it needs more text, and resumes when there is some."""


class _MalformedError(Exception):
    """The arguments of a call are malformed."""


@dataclass(frozen=True, slots=True)
class _Head:
    """The beginning of a call that was found."""

    name: str
    places: Mapping[str, str]
    """Texts in the places for id and number."""

    size: int
    """Number of characters up to the arguments."""

    close: str
    """Text behind the arguments."""


_MORE = object()
"""Whether a text matches depends on what comes next."""


class CallParser:
    """Separates calls from content, piece by piece.

    Args:
        format_: the format of the model's template.
        tools: tools that may be called; anything else that looks like a call is content.

    """

    def __init__(self, format_: ToolFormat, tools: Sequence[Tool]) -> None:
        self._format = format_
        self._after_names = tuple(map(flexible, format_.after_names))
        openings = (*format_.openings, *filter(None, (format_.unwrapped,)))
        self._leads = tuple((flexible(text.lstrip()), format_.close) for text in openings)
        self._first_leads = self._leads + tuple(
            (flexible(text), flexible("\n}\n```" if text[0] == "`" else "\n}"))
            for text in format_.bare
        )
        self._tools = {tool.name: tool for tool in tools}
        self._buffer = ""
        self._pieces: list[TextPiece] = []  # of the buffer
        self._ended = False
        self._deltas: list[ReplyDelta] = []
        self._count = 0
        self._between = False  # whether a call ended and what follows is not known yet
        self._cut = False  # whether the reply ended within a call
        self._said = False  # whether there was content beside white space
        # Of the call that was begun and not ended yet.
        self._call: CallStart | None = None
        self._arguments: list[str] = []
        self._steps = self._read()

    def feed(self, text: str, source: str = "", begin: int = -1) -> list[ReplyDelta]:
        """Return the certain pieces after more text; `source` and `begin` as in `TextPiece`."""
        if text:
            self._buffer += text
            self._pieces.append(TextPiece(text, source, begin=begin))
            next(self._steps)
        return self._taken()

    def finish(self, *, cut: bool = False) -> list[ReplyDelta]:
        """Return the text held back until the reply ended.

        `cut` says that the reply did not end by itself. A marker at its end is then a call's.
        """
        begun = self._between or self._buffer.lstrip().startswith(self._format.marker)
        if cut and self._call is None and self._buffer and begun:
            if not self._format.end.startswith(self._buffer):
                self._deltas.append(UnfinishedCall(self._count, "", "", "", "cut"))
            self._drop(len(self._buffer))
        self._ended = True
        for _ in self._steps:
            pass
        return self._taken()

    def _taken(self) -> list[ReplyDelta]:
        taken, self._deltas = self._deltas, []
        return taken

    def _read(self) -> _Steps:
        """Read content and calls by turns; yields where more text is needed."""
        while True:
            head = yield from self._content()
            while head is not None and (yield from self._one_call(head)):
                head = yield from self._next_call()
            if self._ended and not self._buffer:
                return

    def _content(self) -> Generator[None, None, _Head | None]:
        """Pass on content up to a call; return its head, None at the end of the reply."""
        leads = () if self._format.only_first else self._leads
        marks, first_marks = (
            re.compile("|".join(re.escape(lead[0]) for lead, _ in some))
            for some in (self._leads, self._first_leads)
        )
        place = 0
        while True:
            found = (marks if self._said else first_marks).search(self._buffer, place)
            if found is not None:
                place = found.start()
                # Text after a tagged call is not a whole message.
                begins = not (self._said or (self._count and self._format.bare))
                begins = begins and _BLANK.match(self._buffer, 0, place) is not None
                head = self._head(place, self._first_leads if begins else leads)
                if isinstance(head, _Head):
                    self._say(place, ends=True)
                    self._drop(head.size)
                    return head
                if head is None:
                    place += 1
                    continue
            else:
                place = len(self._buffer)
            if self._ended:
                self._say(len(self._buffer))
                return None
            # White space before a call belongs to neither.
            kept = len(self._buffer[:place].rstrip())
            self._say(kept)
            place -= kept
            yield

    def _head(self, place: int, leads: Sequence[tuple[str, str]]) -> "_Head | object | None":
        """Return the head of a call at a place, `_MORE` if it may become one, else None.

        `leads` are texts before a name, each with the close of its call.
        """
        undecided = False
        for lead, close in leads:
            opened = self._match(lead, place)
            if opened is _MORE:
                undecided = True
            if not isinstance(opened, tuple):
                continue
            begin, places = opened
            named = _NAME.match(self._buffer, begin)
            end = begin if named is None else named.end()
            name = self._buffer[begin:end]
            if end == len(self._buffer) and not self._ended:
                undecided |= any(known.startswith(name) for known in self._tools)
                continue
            if name not in self._tools:
                continue
            for after in self._after_names:
                matched = self._match(after, end)
                if isinstance(matched, tuple):
                    starts = self._starts_arguments(matched[0])
                    if starts is True:
                        return _Head(name, places | matched[1], matched[0] - place, close)
                    undecided |= starts is _MORE
                undecided |= matched is _MORE
            if self._format.empty is not None and self._format.empty != "":
                matched = self._match(self._format.empty, end)
                if isinstance(matched, tuple):
                    return _Head(name, places | matched[1], end - place, close)
                undecided |= matched is _MORE
        return _MORE if undecided and not self._ended else None

    def _starts_arguments(self, place: int) -> object:
        """Return whether arguments begin at a place, `_MORE` if that cannot be told yet."""
        arguments = self._format.arguments
        if isinstance(arguments, TaggedArguments):
            texts = [arguments.key_start, self._format.close]
        elif isinstance(arguments, PythonArguments):
            if _KEYWORD.match(self._buffer, place):
                return True
            begun = _KEYWORD_BEGUN.fullmatch(self._buffer, place) and not self._ended
            return _MORE if begun else None
        else:
            rest = self._buffer[place:].lstrip()
            return True if rest.startswith("{") else None if rest or self._ended else _MORE
        answers = [self._match(text, place) for text in texts]
        if any(isinstance(answer, tuple) for answer in answers):
            return True
        return _MORE if _MORE in answers else None

    def _match(self, pattern: str, place: int, *, partly: bool = False) -> object:
        """Match a text with places for ids; return its end and these, `_MORE`, or None.

        At the end of the reply a part of it counts as `_MORE` only if `partly` is set.
        """
        places: dict[str, str] = {}
        waits = partly or not self._ended
        for part in re.split(f"([{ID}{INDEX}{SPACE}])", pattern):
            if part in _PLACES:
                found = _PLACES[part].match(self._buffer, place)
                if found is None:
                    return _MORE if place == len(self._buffer) and waits else None
                places[part] = found.group()
                place = found.end()
            elif self._buffer.startswith(part, place):
                place += len(part)
            else:
                rest = self._buffer[place:]
                return _MORE if part.startswith(rest) and waits else None
        return place, places

    def _one_call(self, head: _Head) -> Generator[None, None, bool]:
        """Read the arguments of a call and its close; return whether they were whole."""
        index = self._count
        self._count += 1
        begun = self._call = CallStart(index, self._id(head, index), head.name)
        self._arguments = []
        self._deltas.append(begun)
        closed = False
        try:
            arguments = self._format.arguments
            if isinstance(arguments, TaggedArguments):
                closed = yield from self._read_tagged(arguments)
            elif isinstance(arguments, PythonArguments):
                yield from self._python()
            elif isinstance(arguments, QuotedArguments):
                yield from self._read_quoted(arguments)
            else:
                yield from self._json_object()
            text = "".join(self._arguments)
            call = ToolCall(head.name, read_json(text), begun.id)
        except (_MalformedError, ValueError, ConfigError):
            text = "".join(self._arguments)
            reason: Literal["cut", "malformed"] = "cut" if self._cut else "malformed"
            self._deltas.append(UnfinishedCall(index, begun.id, head.name, text, reason))
            self._call = None
            if self._cut:
                self._drop(len(self._buffer))  # what was held back belongs to the call
            return False
        self._deltas.append(CallEnd(index, call))
        self._call = None
        if not closed:
            yield from self._skip(head.close)
        return True

    def _id(self, head: _Head, index: int) -> str:
        if self._format.id_form:
            number = head.places.get(INDEX, str(index))
            return self._format.id_form.format(name=head.name, index=number)
        return head.places.get(ID) or new_id()

    def _next_call(self) -> Generator[None, None, _Head | None]:
        """Return the head of the call that follows a call; None, behind the end, if none does."""
        if self._format.several:
            separated = tuple(
                (flexible(self._format.separator + text), self._format.close)
                for text in self._format.opens
            )
            while True:
                head = self._head(0, separated)
                if isinstance(head, _Head):
                    self._drop(head.size)
                    return head
                if head is None:
                    break
                self._between = True
                yield
                self._between = False
        yield from self._skip(self._format.end)
        return None

    def _skip(self, text: str) -> _Steps:
        """Drop a text if it comes next, or its beginning at the end of the reply."""
        while True:
            matched = self._match(text, 0, partly=True)
            if isinstance(matched, tuple):
                self._drop(matched[0])
                return
            if matched is None:
                return
            if self._ended:
                self._drop(len(self._buffer))
                return
            yield

    def _json_object(self) -> _Steps:
        """Read a JSON object, passing it on as it comes."""
        depth, place = 0, 0
        in_string = False
        while True:
            while place < len(self._buffer):
                if in_string:
                    ended = _STRING_END.match(self._buffer, place)
                    if ended is None:
                        # A backslash at the end waits for what it escapes.
                        part = _STRING_PART.match(self._buffer, place)
                        place = place if part is None else part.end()
                        break
                    place, in_string = ended.end(), False
                    continue
                mark = _JSON_MARKS.search(self._buffer, place)
                if mark is None:
                    place = len(self._buffer)
                    break
                place = mark.end()
                if mark.group() == '"':
                    in_string = True
                    continue
                depth += 1 if mark.group() in "{[" else -1
                if not depth:
                    self._argue(self._take(place))
                    return
            self._argue(self._take(place))
            place = 0
            yield from self._more()

    def _read_tagged(self, tags: TaggedArguments) -> Generator[None, None, bool]:
        """Read arguments between tags, passing them on as JSON; return True, behind the close."""
        format_ = self._format
        schema = self._tools[self._call.name].parameters if self._call else {}
        properties = schema.get("properties", {})
        if format_.empty and (yield from self._skip_text(format_.empty)):
            self._argue("{}")
            return True
        self._argue("{")
        first = True
        # A value ends only where another argument, or the end of the call, follows.
        ends = (tags.value_end + tags.key_start, tags.value_end + format_.close)
        closed = yield from self._skip_text(format_.close)
        if not closed and not (yield from self._skip_text(tags.key_start)):
            raise _MalformedError
        while not closed:
            starts = tuple(dict.fromkeys(tags.value_starts.values()))
            key, start = yield from self._until(starts)
            marked = [kind for kind in KINDS if tags.value_starts[kind] == start]
            allowed = kinds_of(properties.get(key), schema)
            kinds: Sequence[Kind] = [kind for kind in marked if kind in allowed] or marked
            self._argue(f"{'' if first else ', '}{json.dumps(key, ensure_ascii=False)}: ")
            first = False
            before, after = tags.wrapper or ("", "")
            wrapped = before and (yield from self._skip_text(before))
            here = tuple(after + end for end in ends) if wrapped else ends
            if wrapped or list(kinds) == ["string"]:
                self._argue('"')
                _, end = yield from self._until(here, streamed=True)
                self._argue('"')
            else:
                end = yield from self._value(here, kinds, python=tags.python)
            closed = end == here[1]
        self._argue("}")
        return True

    def _value(
        self, ends: Sequence[str], kinds: Sequence[Kind], *, python: bool
    ) -> Generator[None, None, str]:
        """Pass on a value that is not, or not only, a text; return the text after it."""
        text = ""
        while True:
            part, end = yield from self._until(ends)
            text += part
            try:
                value = read_text(text, kinds, python=python)
            except ValueError:
                if text.lstrip()[:1] not in tuple('{["') or "string" in kinds:
                    raise
                # A text within the value may contain what stands after values.
                text += end
                continue
            self._argue(json.dumps(value, ensure_ascii=False))
            return end

    def _python(self) -> _Steps:
        """Read keywords and their values up to the bracket that ends them, as JSON."""
        schema = self._tools[self._call.name].parameters if self._call else {}
        properties = schema.get("properties", {})
        depth, key, key_follows = 0, "", True
        self._argue("{")
        while True:
            while not self._buffer:
                yield from self._more()
            character = self._buffer[0]
            if character == ")" and not depth:
                self._argue("}")
                return
            if character in "'\"":
                text = yield from self._python_text(character)
                kinds = kinds_of(properties.get(key), schema) if not depth else KINDS
                # Some templates write all values in quotes, and so a model may.
                value = text if "string" in kinds else read_text(text, kinds, python=True)
                self._argue(json.dumps(value, ensure_ascii=False))
            elif character in "{}[],":
                self._argue(self._take(1))
                depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(character, 0)
                key_follows = not depth and character == ","
            elif character in ":=" or character.isspace():
                self._argue(self._take(1).replace("=", ": "))
            elif key_follows:
                key, key_follows = (yield from self._word(_PYTHON_WORD_END)), False
                self._argue(json.dumps(key, ensure_ascii=False))
            else:
                word = yield from self._word(_PYTHON_WORD_END)
                value = read_text(word, ("number", "boolean", "null"), python=True)
                self._argue(json.dumps(value))

    def _python_text(self, quote: str) -> Generator[None, None, str]:
        """Take a text with its quotes."""
        place = 1
        while True:
            part = _PYTHON_PART[quote].match(self._buffer, place)
            place = place if part is None else part.end()
            if self._buffer.startswith(quote, place):
                return read_python_text(self._take(place + 1)[1:-1])
            yield from self._more()

    def _word(self, ends: re.Pattern[str]) -> Generator[None, None, str]:
        """Take a key, a number, or a name of a value, up to a character that ends it."""
        place = 0
        while (found := ends.search(self._buffer, place)) is None:
            place = len(self._buffer)
            yield from self._more()
        return self._take(found.start())

    def _read_quoted(self, notation: QuotedArguments) -> _Steps:
        """Read an object whose keys have no quotes and whose texts have others, as JSON."""
        depth, key_follows = 0, False
        while True:
            while not self._buffer:
                yield from self._more()
            character = self._buffer[0]
            if character in "{}[],: \n":
                if character == ":" and key_follows:
                    self._argue('""')  # a key without a character
                if not character.isspace():
                    key_follows = character in "{,"
                self._argue(self._take(1))
                depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(character, 0)
                if not depth:
                    return
                continue
            key_follows = False
            if (yield from self._skip_text(notation.quote)):
                self._argue('"')
                yield from self._until((notation.quote,), streamed=True)
                self._argue('"')
                continue
            word = yield from self._word(_QUOTED_WORD_END)
            if self._buffer[0] == ":":
                self._argue(json.dumps(word.strip(), ensure_ascii=False))
            else:
                value = read_text(word, ("number", "boolean", "null"), python=True)
                self._argue(json.dumps(value))

    def _until(
        self, ends: Sequence[str], *, streamed: bool = False
    ) -> Generator[None, None, tuple[str, str]]:
        """Take the text before the first of `ends`, and that; return both.

        A streamed text is passed on as the inside of a JSON text, and "" is returned for it.
        """
        taken = ""
        place = 0
        while True:
            found = [
                (at, -len(end), end) for end in ends if (at := self._buffer.find(end, place)) >= 0
            ]
            if found:
                at, _, end = min(found)
                # A longer one may begin at the same place, or before.
                if self._ended or not self._longer(at, end, ends):
                    text = self._take(at)
                    self._drop(len(end))
                    if streamed:
                        self._argue(_inside(text))
                        text = ""
                    return taken + text, end
            elif not self._ended:
                size = len(self._buffer) - max(overlap(self._buffer, end) for end in ends)
                if streamed:
                    self._argue(_inside(self._take(size)))
                else:
                    place = size
            yield from self._more()

    def _longer(self, at: int, end: str, ends: Sequence[str]) -> bool:
        rest = self._buffer[at:]
        return any(other != end and other.startswith(rest) for other in ends)

    def _skip_text(self, text: str) -> Generator[None, None, bool]:
        """Drop a text if it comes next; return whether it did."""
        while True:
            matched = self._match(text, 0)
            if matched is not _MORE:
                break
            yield from self._more()
        if isinstance(matched, tuple):
            self._drop(matched[0])
        return isinstance(matched, tuple)

    def _more(self) -> _Steps:
        """Wait for more text within a call; raises at the end of the reply."""
        if self._ended:
            self._cut = True
            raise _MalformedError
        yield

    def _say(self, size: int, *, ends: bool = False) -> None:
        """Pass on the first characters as content; at a call, without white space at their end."""
        text, self._buffer = self._buffer[:size], self._buffer[size:]
        pieces = take_pieces(self._pieces, len(text))
        if ends:
            text = text.rstrip()
        if text:
            self._said |= not text.isspace()
            self._deltas += sourced_content(text, pieces)

    def _argue(self, text: str) -> None:
        if text and self._call is not None:
            self._arguments.append(text)
            self._deltas.append(ArgumentsDelta(self._call.index, text))

    def _take(self, size: int) -> str:
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        take_pieces(self._pieces, len(taken))
        return taken

    def _drop(self, size: int) -> None:
        self._take(size)


def parse_calls(
    format_: ToolFormat, text: str, tools: Sequence[Tool]
) -> tuple[list[ToolCall], str]:
    """Return the complete calls in a whole answer, and its content."""
    parser = CallParser(format_, tools)
    deltas = [*parser.feed(text), *parser.finish()]
    calls = [delta.call for delta in deltas if isinstance(delta, CallEnd)]
    content = "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta))
    return calls, content


def new_id() -> str:
    """Return an id for a call: nine letters and digits, which every template accepts."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))


def _inside(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
