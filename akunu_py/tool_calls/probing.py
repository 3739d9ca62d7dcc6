"""The tool call format of a chat template, read off what it writes.

Templates do not say how calls look. So a small conversation is rendered with calls whose names,
keys and values are words that occur nowhere else, and what stands around these words is the format.
The result is checked: calls that the template writes must be read back equal.
"""

import itertools
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from akunu_py.system.errors import ConfigError, ModelFormatError
from akunu_py.tool_calls.format import (
    ID,
    INDEX,
    TAG,
    Kind,
    PythonArguments,
    QuotedArguments,
    TaggedArguments,
    ToolFormat,
)
from akunu_py.tool_calls.known import HARMONY, LONG_MARKERS
from akunu_py.tool_calls.parser import parse_calls
from akunu_py.values.messages import Message, Tool, ToolCall

Render = Callable[[Sequence[Message], Sequence[Tool]], str]
"""A template: from messages and tools to text, without the beginning of a further reply."""

_NAMES = ("zqfirst", "zqsecond")
_KEYS = ("zqkeyone", "zqkeytwo")
_VALUES = ("zqvalueone", "zqvaluetwo")
_IDS = ("zqcall001", "zqcall002")  # Mistral's templates require nine letters and digits
_ID_FORM = "functions.{name}:{index}"  # Kimi's, which holds the name
_CONTENT = "wxcontent"  # no letter in common with the names
_ITEM = "zqitem"
_MARKUP = "<zq&>"
_SAMPLES: Mapping[Kind, tuple[Any, tuple[str, ...]]] = {
    "number": (73501, ("73501",)),
    "boolean": (True, ("true", "True")),
    "null": (None, ("null", "None")),
    "array": ([_ITEM], ("[",)),
    "object": ({_ITEM: 1}, ("{",)),
}
"""A value of each type, and what it may look like."""

_EMPTY_REASONING = re.compile(r"^\s*(?:<[^<>]*think[^<>]*>\s*){2}", re.IGNORECASE)
"""Reasoning without a word, which some templates write before calls alone."""

_ASK = Message("user", "zqquestion")
_TEXT_KEYS = {key: {"type": "string", "description": "zqword"} for key in _KEYS}


def _tools(properties: Mapping[str, Any]) -> tuple[Tool, ...]:
    schema = {"type": "object", "properties": properties}
    return tuple(Tool(name, "zqdescription", schema) for name in _NAMES)


# Templates that translate schemas know few types, so they get the simplest ones.
_SHOWN_TOOLS = _tools(_TEXT_KEYS)
_READ_TOOLS = _tools(_TEXT_KEYS | {f"zqa{kind}": {"type": kind} for kind in _SAMPLES})
_TEXTS = {"zqkeyone": 'a "b" {c} \\ é\n', "zqkeytwo": "<b>&</b>, [1]"}
_UNQUOTED_TEXTS = {"zqkeyone": "a b {c} é", "zqkeytwo": "<b>&</b>, [1]=(2)"}
_TYPES = {
    "zqanumber": -2.5,
    "zqaboolean": False,
    "zqaarray": [1, ["é", {}], True],
    "zqaobject": {"x": {"y": "z"}},
}


class UnknownFormatError(ConfigError):
    """The calls of a template cannot be told from text, for the reason given."""


def probe_format(render: Render, end_texts: Collection[str]) -> ToolFormat:
    """Return the format of calls in the conversations that `render` writes.

    `end_texts` are the texts of the tokens that end a reply. Raises UnknownFormatError with the
    reason where no format is found, or where calls are not read back as they were rendered.
    """
    format_ = _Probe(render, end_texts).format()
    if format_.openings[0].strip() == HARMONY.trigger:
        format_ = HARMONY
    answer = render([_ASK, Message("assistant", _CONTENT)], _SHOWN_TOOLS)
    if format_.marker in answer.partition(_ASK.text)[2]:
        raise UnknownFormatError(
            f"the template writes {format_.marker} around text, too, so calls cannot be told apart"
        )
    _check(format_, render, end_texts)
    return format_


@dataclass(slots=True)
class _Probe:
    """Renders calls and finds what stands around their words."""

    render: Render
    end_texts: Collection[str]
    ids: Sequence[str] = _IDS

    def format(self) -> ToolFormat:
        one = self.section([{_KEYS[0]: _VALUES[0], _KEYS[1]: _VALUES[1]}])
        if one is None:
            raise UnknownFormatError(f"a message with a call cannot be written{self._why()}")
        if _NAMES[0] not in one and _IDS[0] in one:
            self.ids = [_ID_FORM.format(name=name, index=i) for i, name in enumerate(_NAMES)]
            one = self.section([{_KEYS[0]: _VALUES[0], _KEYS[1]: _VALUES[1]}]) or ""
        self._check_words(one)
        json_text = self._json_arguments(one)
        before, rest = one.split(_NAMES[0], 1)
        if json_text is not None:
            after, post = rest.split(json_text, 1)
        else:
            after, post = "", rest[rest.rindex(_VALUES[1]) + len(_VALUES[1]) :]
        start, open_, separator, close, end, several = "", before, "", post, "", False
        two = self._pair(json_text is not None)
        if two is not None:
            before, after, between, post = two
            several = True
            open_, close = _repeated(before, between, post)
            start = before[: len(before) - len(open_)]
            end = post[len(close) :]
            separator = between[len(close) : len(between) - len(open_)]
        made = ToolFormat(
            name="json",
            start=start,
            opens=(open_,),
            after_names=(after,),
            close=close,
            separator=separator,
            end=end,
            several=several,
        )
        if json_text is None:
            made = self._with_tags(made, one)
        if after.startswith(":" + INDEX) and open_.endswith("functions."):
            again = self._in_turns() if self.ids is _IDS else ""
            restarts = _ID_FORM.format(name=_NAMES[1], index=0) in again
            made = replace(made, id_form=_ID_FORM, counts_each_message=restarts)
        opening = made.openings[0].lstrip()
        if not opening:
            raise UnknownFormatError(
                "a call begins with the name of a tool alone, so it cannot be told from text"
            )
        marked = opening.startswith("<") or TAG.match(opening) is not None
        trigger = next((text for text in LONG_MARKERS if opening.startswith(text)), "")
        return replace(
            made, only_first=not marked, trigger=trigger, id_length=self._id_length(made)
        )

    def section(self, calls: Sequence[Mapping[str, Any]], ids: Sequence[str] = ()) -> str | None:
        """Return the text that a message with these arguments adds; None if it fails."""
        made = zip(_NAMES, ids or self.ids, calls, strict=False)
        called = tuple(ToolCall(name, arguments, id_) for name, id_, arguments in made)
        return section_of(self.render, called, _SHOWN_TOOLS, self.end_texts)

    def _why(self) -> str:
        """Return the template's own reason to refuse a call, if it has one."""
        called = Message("assistant", tool_calls=(ToolCall(_NAMES[0], {}, _IDS[0]),))
        try:
            self.render([_ASK, called], _SHOWN_TOOLS)
        except (ConfigError, ModelFormatError) as error:
            if missing := re.search(r"'(\w+)' is undefined", error.message):
                return f": the template needs a value named {missing[1]}, which akunu does not have"
            return f": {error.message.split(';')[0]:.120}"
        return ""

    def _check_words(self, one: str) -> None:
        for word in (_NAMES[0], *_KEYS, *_VALUES):
            if (count := one.count(word)) != 1:
                part = "a tool" if word == _NAMES[0] else "an argument"
                part = "the value of an argument" if word in _VALUES else f"the name of {part}"
                raise UnknownFormatError(
                    f"the template writes {part} {count} times in a call; akunu reads calls that "
                    "have it once"
                )
        if not one.index(_NAMES[0]) < one.index(_KEYS[0]) < one.index(_VALUES[0]):
            raise UnknownFormatError("the template writes the name of a call after its arguments")

    def _json_arguments(self, one: str) -> str | None:
        """Return the arguments of the first call as JSON, None if they are written otherwise."""
        begin = one.rfind("{", 0, one.index(_KEYS[0]))
        try:
            value, end = json.JSONDecoder().raw_decode(one, max(begin, 0))
        except ValueError:
            return None
        wanted = dict(zip(_KEYS, _VALUES, strict=True))
        return one[begin:end] if value == wanted else None

    def _pair(self, is_json: bool) -> tuple[str, str, str, str] | None:
        """Return the texts around two calls, with places for ids and numbers; None if it fails.

        They stand before the first name, after a name up to JSON arguments, between the first
        arguments and the second name, and after the second arguments.
        """
        two = self.section([{_KEYS[0]: _VALUES[0]}, {_KEYS[1]: _VALUES[1]}])
        if two is None or two.count(_NAMES[1]) != 1 or two.count(_VALUES[1]) != 1:
            return None
        for id_ in _IDS:
            two = two.replace(id_, ID)
        before, rest = two.split(_NAMES[0])
        first, second = rest.split(_NAMES[1])
        (after, between), (other, post) = (
            _around(text, key, value, is_json=is_json)
            for text, key, value in zip((first, second), _KEYS, _VALUES, strict=True)
        )
        before, between = _mark_number(before, between)
        after, other = _mark_number(after, other)
        if after != other:
            raise UnknownFormatError("the template writes two calls in different ways")
        return before, after, between, post

    def _with_tags(self, made: ToolFormat, one: str) -> ToolFormat:
        """Return the format with arguments that are written one by one."""
        rest = one.split(_NAMES[0], 1)[1]
        before, rest = rest.split(_KEYS[0])
        value_start, rest = rest.split(_VALUES[0])
        between, rest = rest.split(_KEYS[1])
        after = rest.split(_VALUES[1])[1]
        quote = TAG.search(value_start)
        if quote and value_start == ":" + quote.group() and after.startswith(quote.group()):
            close = made.close.removeprefix(quote.group() + "}")
            arguments = QuotedArguments(quote.group())
            return replace(
                made, name="quoted", arguments=arguments,
                after_names=(before.removesuffix("{"),), close=close,
            )  # fmt: skip
        if value_start.rstrip("'\"") == "=" and before == "(":
            return self._with_keywords(made, value_start.removeprefix("="), after)
        key_start, value_end = _repeated(before, between, after)
        if not value_end or not key_start or value_end + key_start != between:
            raise UnknownFormatError("nothing sets an argument of a call apart from the next")
        if value_start.count('"') % 2 and value_end.startswith('"'):
            raise UnknownFormatError("the template writes arguments in quotes, one by one")
        close = made.close.removeprefix(value_end)
        if close == made.close:
            raise UnknownFormatError("the last argument of a call ends unlike the others")
        starts, python = self._value_starts(value_start, value_end)
        wrapper = self._wrapper(value_start, value_end)
        made = replace(
            made,
            name="tagged",
            arguments=TaggedArguments(key_start, starts, value_end, python, wrapper),
            after_names=(before[: len(before) - len(key_start)],),
            close=close,
        )
        bare = self.section([{}])
        if bare is None or _NAMES[0] not in bare:
            return made
        empty = bare.split(_NAMES[0])[1].removesuffix(made.end)
        return replace(made, empty=None if empty == made.after_names[0] + close else empty)

    def _with_keywords(self, made: ToolFormat, quote: str, after: str) -> ToolFormat:
        """Return the format with arguments as keywords in Python's notation."""
        if not quote:
            raise UnknownFormatError("the template writes texts in calls without quotes")
        if not after.startswith(quote + ")"):
            raise UnknownFormatError("the last argument of a call ends unlike the others")
        return replace(
            made,
            name="pythonic",
            arguments=PythonArguments(quote),
            after_names=("(",),
            close=made.close.removeprefix(quote),
        )

    def _wrapper(self, value_start: str, value_end: str) -> tuple[str, str] | None:
        """Return the template's markup around a text with markup; None for none."""
        section = self.section([{_KEYS[0]: _MARKUP}]) or ""
        before, _, after = section.partition(_KEYS[0])[2].partition(_MARKUP)
        before, after = before.removeprefix(value_start), after.partition(value_end)[0]
        return (before, after) if before and after else None

    def _value_starts(self, text: str, value_end: str) -> tuple[dict[Kind, str], bool]:
        """Return the text before a value of each type, and whether values are Python's."""
        starts: dict[Kind, str] = {"string": text}
        python = False
        for kind, (value, spellings) in _SAMPLES.items():
            section = self.section([{f"zqa{kind}": value}]) or ""
            rest = section.partition(f"zqa{kind}")[2]
            found = (s for s in spellings if s in rest)
            spelling = min(found, key=rest.index, default=None)
            if spelling is None:
                starts[kind] = text
                continue
            starts[kind] = rest[: rest.index(spelling)]
            python |= spelling in ("True", "None")
            if kind == "object" and value_end in rest.split(_ITEM)[0]:
                raise UnknownFormatError("the template writes objects within arguments as tags")
        return starts, python

    def _in_turns(self) -> str:
        """Return two calls as the template writes them one after the other."""
        said = [_ASK]
        for name, id_ in zip(_NAMES, _IDS, strict=True):
            said.append(Message("assistant", tool_calls=(ToolCall(name, {}, id_),)))
            said.append(Message("tool", _CONTENT, tool_call_id=id_))
        try:
            return self.render(said, _SHOWN_TOOLS)
        except (ConfigError, ModelFormatError):
            return ""

    def _id_length(self, made: ToolFormat) -> int | None:
        if not any(ID in text for text in made.texts):
            return None
        long = self.section([{}], ("zqcall0000000001",))
        return len(_IDS[0]) if long is None else None


def section_of(
    render: Render, calls: Sequence[ToolCall], tools: Sequence[Tool], end_texts: Collection[str]
) -> str | None:
    """Return the text of calls as the template writes them in a message; None if it fails."""
    try:
        plain = render([_ASK, Message("assistant", _CONTENT)], tools)
        called = render([_ASK, Message("assistant", tool_calls=tuple(calls))], tools)
    except (ConfigError, ModelFormatError):
        return None
    if plain.count(_CONTENT) != 1:
        return None
    tail = plain.split(_CONTENT)[1]
    section = _EMPTY_REASONING.sub("", called[_shared_head(plain, called) :])
    section = section[: len(section) - _common_suffix(section, tail)]
    for text in end_texts:
        section = section.split(text)[0]
    return section


def _check(format_: ToolFormat, render: Render, end_texts: Collection[str]) -> None:
    """Raise UnknownFormatError unless calls are read as they were rendered."""
    for given in _trials(format_):
        section = section_of(render, given, _SHOWN_TOOLS, end_texts)
        if section is None:
            raise UnknownFormatError("the template fails on some arguments")
        read, rest = parse_calls(format_, section, _READ_TOOLS)
        wanted = [(call.name, call.arguments) for call in given]
        if [(call.name, call.arguments) for call in read] != wanted or rest.strip():
            raise UnknownFormatError(
                "what the template writes for a call does not say what its arguments were"
            )


def _trials(format_: ToolFormat) -> Iterator[tuple[ToolCall, ...]]:
    form = format_.id_form or "zqcall{index:03}"

    def call(index: int, name: str, arguments: Mapping[str, Any]) -> ToolCall:
        return ToolCall(name, arguments, form.format(name=name, index=index))

    # Templates that write Python do not escape quotes; what models write is read either way.
    texts = _UNQUOTED_TEXTS if isinstance(format_.arguments, PythonArguments) else _TEXTS
    for arguments in ({}, texts, texts | _TYPES):
        yield (call(0, _NAMES[0], arguments),)
    if format_.several:
        made = itertools.product(_NAMES, ({}, texts))
        yield tuple(call(index, *parts) for index, parts in enumerate(made))


def _around(text: str, key: str, value: str, *, is_json: bool) -> tuple[str, str]:
    """Return the texts before and after arguments; none before those that are not JSON."""
    if is_json:
        begin = text.rindex("{", 0, text.index(key))
        return text[:begin], text[text.index("}", text.index(value)) + 1 :]
    return "", text[text.index(value) + len(value) :]


def _repeated(before: str, between: str, after: str) -> tuple[str, str]:
    """Return how each of several parts begins and ends.

    `before` stands before the first, `between` between two, `after` after the last.
    """
    begin = _common_suffix(before, between)
    rest = between[: len(between) - begin]
    return before[len(before) - begin :], after[: _common_prefix(rest, after)]


def _mark_number(first: str, second: str) -> tuple[str, str]:
    """Return both texts with a place for the number, if they differ in consecutive numbers."""
    size = _common_suffix(first, second)
    one, two = first[: len(first) - size], second[: len(second) - size]
    digits = one[len(one.rstrip("0123456789")) :], two[len(two.rstrip("0123456789")) :]
    if not all(digits) or int(digits[1]) != int(digits[0]) + 1:
        return first, second
    tail = first[len(first) - size :]
    return one.removesuffix(digits[0]) + INDEX + tail, two.removesuffix(digits[1]) + INDEX + tail


def _borders(text: str) -> Callable[[int], bool]:
    """Return whether a place in a text is outside of its tags."""
    inside = {place for tag in TAG.finditer(text) for place in range(tag.start() + 1, tag.end())}
    return lambda place: place not in inside


def _shared_head(plain: str, called: str) -> int:
    """Return how much of `called` precedes what sets it apart.

    White space does not count: some templates have more of it around calls than around text.
    """
    solid = [
        [place for place, character in enumerate(text) if not character.isspace()]
        for text in (plain, called)
    ]
    size = len(_common("".join(plain.split()), "".join(called.split())))
    is_border = _borders(plain), _borders(called)
    for count in range(size, 0, -1):
        one, two = (places[count - 1] + 1 for places in solid)
        if is_border[0](one) and is_border[1](two):
            gap = _common(plain[one:], called[two:])
            return two + len(gap) - len(gap.lstrip())
    return 0


def _common_prefix(first: str, second: str) -> int:
    """Return the length of the longest common beginning that cuts no tag."""
    size = len(_common(first, second))
    borders = _borders(first), _borders(second)
    return next(
        size for size in range(size, -1, -1) if all(is_border(size) for is_border in borders)
    )


def _common_suffix(first: str, second: str) -> int:
    """Return the length of the longest common end that cuts no tag."""
    size = len(_common(first[::-1], second[::-1]))
    one, two = _borders(first), _borders(second)
    return next(
        size for size in range(size, -1, -1) if one(len(first) - size) and two(len(second) - size)
    )


def _common(first: str, second: str) -> str:
    pairs = zip(first, second, strict=False)
    return "".join(one for one, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
