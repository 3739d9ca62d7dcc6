"""Tools and calls in a conversation, as a model's format and template have them.

Where a template has no place for tools, these are described in the system message, in the words
that Hermes and Qwen were trained on, with the model's own format of calls where it has one. Calls
are text of the assistant, and results are the user's.

Ids of calls are those of the format: clients send back ids of other models, or none. A template may
refuse those, or write them in place of the name of the tool; and a result must have the number that
its call has.
"""

import hashlib
import json
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from akunu_py.tool_calls.format import (
    ID,
    INDEX,
    PythonArguments,
    QuotedArguments,
    TaggedArguments,
    ToolFormat,
)
from akunu_py.tool_calls.known import HERMES
from akunu_py.tool_calls.values import kind_of
from akunu_py.values.messages import Message, Tool, ToolCall

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


_INTRODUCTION = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

"""
_HERMES_CALLS = """\
For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""
_OTHER_CALLS = "For each function call, return its name and arguments in exactly this form:\n"
_EXAMPLE = ToolCall("function_name", {"argument_name": "value"})


def with_described_tools(
    messages: Sequence[Message], tools: Sequence[Tool], format_: ToolFormat
) -> list[Message]:
    """Return a conversation whose system message describes tools and the format of calls."""
    text = _INTRODUCTION.format(tools="\n".join(map(_tool, tools)))
    if format_ is HERMES:
        text += _HERMES_CALLS
    else:
        text += _OTHER_CALLS + write_calls(format_, [_EXAMPLE])
    if messages[0].role == "system":
        return [replace(messages[0], content=f"{messages[0].text}\n\n{text}"), *messages[1:]]
    return [Message("system", text), *messages]


def with_calls_as_text(
    messages: Sequence[Message], format_: ToolFormat, *, results: bool
) -> list[Message]:
    """Return a conversation in which calls are text, and so are results if `results` says so."""
    return list(_texts(messages, format_, results=results))


def _texts(messages: Sequence[Message], format_: ToolFormat, *, results: bool) -> Iterator[Message]:
    said: list[str] = []
    for place, message in enumerate(messages):
        if message.role == "tool" and not results and format_.result_form:
            text = format_.result_form.format(id=message.tool_call_id, text=message.text)
            yield Message("system", text, name="tool")
        elif message.role == "tool" and not results:
            yield message
        elif message.role == "tool":
            said.append(f"<tool_response>\n{message.text}\n</tool_response>")
            last = place + 1 == len(messages) or messages[place + 1].role != "tool"
            if last:
                yield Message("user", "\n".join(said))
                said = []
        elif message.tool_calls:
            parts = [message.text, write_calls(format_, message.tool_calls)]
            text = "\n".join(part for part in parts if part)
            yield replace(message, content=text, tool_calls=())
        else:
            yield message


def _tool(tool: Tool) -> str:
    function = {
        "name": tool.name, "description": tool.description, "parameters": tool.parameters,
    }  # fmt: skip
    return json.dumps({"type": "function", "function": function}, ensure_ascii=False)


def with_ids_of(format_: ToolFormat, messages: Sequence[Message]) -> list[Message]:
    """Return a conversation, with results in the order of their calls, in the ids of a format."""
    if not (format_.id_form or format_.id_length):
        return list(messages)
    said: list[Message] = []
    ids = defaultdict[str, deque[str]](deque)  # of the latest calls, by the ids that they had
    count = 0
    for message in messages:
        if message.tool_calls:
            if not (said and said[-1].tool_calls):
                ids.clear()
            count = 0 if format_.counts_each_message else count
            calls = []
            for number, call in enumerate(message.tool_calls, count):
                calls.append(replace(call, id=_id(format_, call.id, call.name, number)))
                ids[call.id].append(calls[-1].id)
            count += len(calls)
            message = replace(message, tool_calls=tuple(calls))  # noqa: PLW2901
        elif message.role == "tool":
            known = ids.get(message.tool_call_id)
            if known or format_.id_length:
                id_ = known[0] if known else _id(format_, message.tool_call_id, message.name, count)
                message = replace(message, tool_call_id=id_)  # noqa: PLW2901
            if known and len(known) > 1:
                known.popleft()
        said.append(message)
    return said


def _id(format_: ToolFormat, given: str, name: str, number: int) -> str:
    if format_.id_form:
        return format_.id_form.format(name=name, index=number)
    if len(given) == format_.id_length and given.isascii() and given.isalnum():
        return given
    digest = hashlib.sha256((given or f"{number} {name}").encode()).hexdigest()
    return digest[: format_.id_length]
