"""Tools for models whose chat templates have no place for them.

Tools are described in the system message, in the words that Hermes and Qwen were trained on, with
the model's own format of calls where it has one. Calls are text of the assistant, and results are
the user's.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from akunu_py.tool_calls.format import ToolFormat
from akunu_py.tool_calls.known import HERMES
from akunu_py.tool_calls.writing import write_calls
from akunu_py.values.messages import Message, Tool, ToolCall

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
