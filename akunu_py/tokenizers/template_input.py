"""Messages and tools in the form that a chat template expects them in.

Templates differ in what they take and none says so: content as a list of parts or as one text,
arguments of a call as an object or as JSON text. So each is asked once, by a small conversation
whose words are looked for in what it writes; only where a conversation has such content at all.
What a template leaves out is an error: a model that is not told of its tools answers all the same.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from akunu_py.errors import ConfigError, ModelFormatError
from akunu_py.messages import Message, TextPart, Tool, ToolCall
from akunu_py.tokenizers.template_limits import TemplateLimitError

Value = dict[str, Any]
"""A message or a tool as templates see it."""


@dataclass(frozen=True, slots=True)
class Form:
    """How messages are given to a template.

    Attributes:
        parts: whether content of several texts is a list; else it is one text.
        json_text: whether the arguments of a call are JSON text; else an object.
        no_text: the content of a message that has calls and no text: "" or None.

    """

    parts: bool = False
    json_text: bool = False
    no_text: str | None = ""


_CALL_FORMS = (
    Form(),
    Form(no_text=None),  # DeepSeek R1 writes the calls of messages without content alone
    Form(json_text=True),  # functionary puts the text between others
    Form(json_text=True, no_text=None),
)
_ASK = Message("user", "probe_question")
_TOOL = Tool(
    "probe_tool",
    "probe_description",
    {"type": "object", "properties": {"probe_key": {"type": "string", "description": "a word"}}},
)
_PARTED = Message("user", (TextPart("probe_first"), TextPart("probe_second")))
# Mistral's templates take ids of nine letters and digits alone.
_CALL = ToolCall("probe_tool", {"probe_key": "probe_value"}, "probe0001")
_CALLED = (
    _ASK,
    Message("assistant", tool_calls=(_CALL,)),
    Message("tool", "probe_result", tool_call_id=_CALL.id),
)


class TemplateInput:
    """What to give a template.

    Args:
        render: the template: from messages and tools, None for none, to the prompt. Raises
            ModelFormatError where it fails.

    """

    def __init__(self, render: Callable[[Sequence[Value], Sequence[Value] | None], str]) -> None:
        self._render = render
        self._tools_written: dict[bool, bool] = {}

    def of(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[list[Value], list[Value] | None]:
        """Return messages and tools as the template expects them; None for no tools.

        Raises ConfigError for tools, calls or results that it leaves out, ModelFormatError for a
        template that exceeds its limits.
        """
        # Some write tools into the system message alone.
        if tools and not self._writes_tools(system=messages[0].role == "system"):
            raise ConfigError(
                "the model's chat template leaves tools out; leave them out yourself, or use a "
                "model that was made for calling tools"
            )
        form: Form | None = Form()
        if any(message.tool_calls or message.role == "tool" for message in messages):
            form = self._call_form
        if form is None:
            raise ConfigError(
                "the model's chat template leaves out calls of tools or their results; leave "
                "these messages out, or use a model that was made for calling tools"
            )
        if any(not isinstance(message.content, str) for message in messages):
            form = replace(form, parts=self._takes_parts)
        return written(messages, form), [_tool(tool) for tool in tools] or None

    def _writes_tools(self, *, system: bool) -> bool:
        if system not in self._tools_written:
            asked = (Message("system", "probe_system"), _ASK) if system else (_ASK,)
            # Where this fails, nothing is known: the conversation itself may do better.
            shown = self._shows(asked, Form(), (_TOOL.name,))
            self._tools_written[system] = shown is not False
        return self._tools_written[system]

    @cached_property
    def _call_form(self) -> Form | None:
        """How calls are given; None where the template leaves them out in any form."""
        words = ("probe_key", "probe_value", "probe_result")
        # An object that a template prints as it is comes out as Python writes it.
        found = [self._shows(_CALLED, form, words, unwanted="'probe_key':") for form in _CALL_FORMS]
        if True in found:
            return _CALL_FORMS[found.index(True)]
        return None if False in found else Form()

    @cached_property
    def _takes_parts(self) -> bool:
        words = ("probe_first", "probe_second")
        shown = self._shows((_PARTED,), Form(parts=True), words, unwanted="text': 'probe_first")
        return shown is True

    def _shows(
        self, messages: Sequence[Message], form: Form, words: Sequence[str], unwanted: str = ""
    ) -> bool | None:
        """Return whether the template writes all the words, None where it fails."""
        try:
            text = self._render(written(messages, form), [_tool(_TOOL)])
        except ModelFormatError as error:
            if isinstance(error.__cause__, TemplateLimitError):
                raise
            return None
        return all(word in text for word in words) and not (unwanted and unwanted in text)


def written(messages: Sequence[Message], form: Form) -> list[Value]:
    """Return messages in a form; a tool's without a name get that of the call they answer."""
    names = {call.id: call.name for message in messages for call in message.tool_calls if call.id}
    return [_message(message, form, names) for message in messages]


def _message(message: Message, form: Form, names: Mapping[str, str]) -> Value:
    value: Value = {"role": message.role, "content": message.text}
    if form.parts and not isinstance(message.content, str):
        value["content"] = [{"type": "text", "text": part.text} for part in message.content]
    elif message.tool_calls and not message.text:
        value["content"] = form.no_text
    if message.reasoning:
        # Qwen, GLM, DeepSeek and others; Solar; gpt-oss and LFM. None writes two of them.
        for name in ("reasoning_content", "reasoning", "thinking"):
            value[name] = message.reasoning
    if message.tool_calls:
        value["tool_calls"] = [_call(call, form) for call in message.tool_calls]
    if message.tool_call_id:
        value["tool_call_id"] = message.tool_call_id
    if name := message.name or names.get(message.tool_call_id, ""):
        value["name"] = name
    return value


def _call(call: ToolCall, form: Form) -> Value:
    arguments: object = call.arguments
    if form.json_text:
        arguments = json.dumps(arguments, ensure_ascii=False)
    value: Value = {"id": call.id} if call.id else {}
    return value | {"type": "function", "function": {"name": call.name, "arguments": arguments}}


def _tool(tool: Tool) -> Value:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": function}
