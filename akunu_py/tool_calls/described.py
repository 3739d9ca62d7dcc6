"""Tools for models whose chat templates have no place for them.

Tools are described in a system message, in the words that Hermes and Qwen were trained on; calls
are text of the assistant, and results are the user's.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from akunu_py.messages import Message, Tool, ToolCall

_INTRODUCTION = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


def with_described_tools(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """Return a conversation in which tools are described."""
    if not tools:
        return list(messages)
    text = _INTRODUCTION.format(tools="\n".join(map(_tool, tools)))
    if messages[0].role == "system":
        first = replace(messages[0], content=f"{messages[0].text}\n\n{text}")
        return [first, *messages[1:]]
    return [Message("system", text), *messages]


def with_calls_as_text(messages: Sequence[Message]) -> list[Message]:
    """Return a conversation in which calls and results are text."""
    return list(_texts(messages))


def _texts(messages: Sequence[Message]) -> Iterator[Message]:
    results: list[str] = []
    for place, message in enumerate(messages):
        if message.role == "tool":
            results.append(f"<tool_response>\n{message.text}\n</tool_response>")
            last = place + 1 == len(messages) or messages[place + 1].role != "tool"
            if last:
                yield Message("user", "\n".join(results))
                results = []
        elif message.tool_calls:
            parts = [message.text, *map(_call, message.tool_calls)]
            text = "\n".join(part for part in parts if part)
            yield replace(message, content=text, tool_calls=())
        else:
            yield message


def _call(call: ToolCall) -> str:
    value = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
    return f"<tool_call>\n{value}\n</tool_call>"


def _tool(tool: Tool) -> str:
    function = {
        "name": tool.name, "description": tool.description, "parameters": tool.parameters,
    }  # fmt: skip
    return json.dumps({"type": "function", "function": function}, ensure_ascii=False)
