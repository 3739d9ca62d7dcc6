"""Calls as a model would write them, for conversations whose template does not."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from akunu_py.tool_calls.format import (
    ID,
    INDEX,
    PythonArguments,
    QuotedArguments,
    TaggedArguments,
    ToolFormat,
)
from akunu_py.tool_calls.values import kind_of
from akunu_py.values.messages import ToolCall

_NO_ID = "call00000"


def write_calls(format_: ToolFormat, calls: Sequence[ToolCall]) -> str:
    """Return calls in a format, from its marker to its end."""
    texts = (_call(format_, call, index) for index, call in enumerate(calls))
    return (format_.start + format_.separator.join(texts) + format_.end).lstrip()


def _call(format_: ToolFormat, call: ToolCall, index: int) -> str:
    def fill_places(text: str) -> str:
        # A format's own id has the number of the call.
        own = call.id.rpartition(":")[2] if format_.id_form else ""
        number = own if own.isdecimal() else str(index)
        return text.replace(ID, call.id or _NO_ID).replace(INDEX, number)

    head = fill_places(format_.opens[0]) + call.name
    if format_.empty is not None and not call.arguments:
        return head + fill_places(format_.empty)
    arguments = _arguments(format_, call.arguments)
    return head + fill_places(format_.after_names[0]) + arguments + fill_places(format_.close)


def _arguments(format_: ToolFormat, arguments: Mapping[str, Any]) -> str:
    notation = format_.arguments
    if isinstance(notation, TaggedArguments):
        return "".join(_tag(notation, key, value) for key, value in arguments.items())
    if isinstance(notation, PythonArguments):
        return ", ".join(f"{key}={_python(value)}" for key, value in arguments.items())
    if isinstance(notation, QuotedArguments):
        return _quote(notation.quote, arguments)
    return _json(arguments)


def _tag(tags: TaggedArguments, key: str, value: object) -> str:
    text = value if isinstance(value, str) else _json(value)
    if tags.wrapper and isinstance(value, str) and set("<&\n") & set(value):
        text = tags.wrapper[0] + text + tags.wrapper[1]
    return tags.key_start + key + tags.value_starts[kind_of(value)] + text + tags.value_end


def _python(value: object) -> str:
    return repr(value) if value is None or isinstance(value, bool) else _json(value)


def _quote(quote: str, value: object) -> str:
    if isinstance(value, str):
        return quote + value + quote
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{_quote(quote, value[key])}' for key in sorted(value))}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(_quote(quote, part) for part in value)}]"
    return _json(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
