"""Messages and tools in the form that a chat template expects.

Templates differ in what they take, and none says so: content as a list of parts or as one text,
arguments of a call as an object or as JSON text. So each template is tried once with a small
conversation, whose words are searched in its output; only if a conversation has such content.
Content that a template leaves out is an error, because a model without its tools still answers.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from akunu_py.system.errors import ConfigError, ModelFormatError
from akunu_py.tokenizers.accepted_turns import AcceptedTurns, words_of
from akunu_py.tokenizers.sandbox import TemplateLimitError
from akunu_py.values.messages import Message, TextPart, Tool, ToolCall

Value = dict[str, Any]
"""A message or a tool as templates see it."""


@dataclass(frozen=True, slots=True)
class TemplateForm:
    """How to give messages to a template."""

    # Whether a user's content of several texts is a list; otherwise it is one text.
    parts: bool = False
    json_text: bool = False  # Whether the arguments of a call are JSON text; otherwise an object.
    # The content of a message with calls and no text: "", None or a space.
    no_text: str | None = ""


_CALL_FORMS = (
    TemplateForm(),
    TemplateForm(no_text=None),  # DeepSeek R1 writes calls only in messages without content
    TemplateForm(json_text=True),  # functionary concatenates it with texts
    TemplateForm(json_text=True, no_text=None),
)
_OTHERWISE = TemplateForm(no_text=" ")  # Command A Reasoning fails without a first character
_ASK = Message("user", "probe_question")
_TOOL = Tool(
    "probe_tool",
    "probe_description",
    {"type": "object", "properties": {"probe_word": {"type": "string", "description": "a word"}}},
)
_PARTED = Message("user", (TextPart("probe_first"), TextPart("probe_second")))
# Mistral's templates require ids of nine letters and digits.
_CALL = ToolCall(_TOOL.name, {"probe_key": "probe_value"}, "probe0001")
_CALLED = (
    _ASK,
    Message("assistant", tool_calls=(_CALL,)),
    Message("tool", "probe_result", tool_call_id=_CALL.id, name=_TOOL.name),
)


class TemplateInput:
    """The input of a template.

    Args:
        render: the template: from messages and tools (None for none) to the prompt. Raises
            ModelFormatError if it fails.

    """

    def __init__(self, render: Callable[[Sequence[Value], Sequence[Value] | None], str]) -> None:
        self._render = render
        self._tools_written: dict[bool, bool] = {}
        self._turns = AcceptedTurns(self._writes)

    def of(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[list[Value], list[Value] | None]:
        """Return messages and tools as the template expects them; None for no tools.

        Raises ConfigError for tools, calls or results that the template leaves out,
        ModelFormatError for a template that exceeds its limits.
        """
        messages = self._turns.of(messages, tools=bool(tools))
        # Some templates write tools only into a system message.
        if tools and not self._writes_tools(system=messages[0].role == "system"):
            raise ConfigError(
                "the model's chat template leaves tools out; describe them in a message, or use a "
                "model that was made for calling tools"
            )
        form: TemplateForm | None = TemplateForm()
        if any(message.tool_calls for message in messages):
            form = self._call_form
        if form is None:
            raise ConfigError(
                "the model's chat template leaves tool_calls out; put a call into the content of "
                "its message as the model wrote it, or use another model"
            )
        if any(message.role == "tool" for message in messages) and not self._writes_results:
            raise ConfigError(
                "the model's chat template leaves out messages of the role tool; give results as "
                "the user's, or use a model that was made for calling tools"
            )
        if any(not isinstance(message.content, str) for message in messages):
            form = replace(form, parts=self._takes_parts)
        said = [_message(message, form) for message in messages]
        return said, [_tool(tool) for tool in tools] or None

    def _writes(self, messages: Sequence[Message], in_order: bool) -> bool:
        """Whether the template writes all words of a sample; in their order, and once each."""
        called = any(message.tool_calls or message.role == "tool" for message in messages)
        form = (self._call_form if called else None) or TemplateForm()
        # Templates for tool use alone fail without tools.
        text = self._probe(messages, form, tools=called) or self._probe(messages, form) or ""
        words = list(words_of(messages))
        if in_order:
            found = [text.find(word) for word in words]
            return found == sorted(found) and all(text.count(word) == 1 for word in words)
        return all(word in text for word in words)

    def _writes_tools(self, *, system: bool) -> bool:
        if system not in self._tools_written:
            asked = (Message("system", "probe_system"), _ASK) if system else (_ASK,)
            # A failure says nothing: the conversation itself may succeed.
            text = self._probe(asked, TemplateForm())
            self._tools_written[system] = text is None or _TOOL.name in text
        return self._tools_written[system]

    @cached_property
    def _called(self) -> dict[TemplateForm, str]:
        """The output for a call and its result in each form that the template accepts."""
        for forms in (_CALL_FORMS, (_OTHERWISE,)):
            made = ((form, self._probe(_CALLED, form)) for form in forms)
            if found := {form: text for form, text in made if text is not None}:
                return found
        return {}

    @cached_property
    def _call_form(self) -> TemplateForm | None:
        """The form of calls; None if the template leaves them out in every form."""
        for form, text in self._called.items():
            # An object that a template prints directly appears in Python's notation.
            if "probe_key" in text and "probe_value" in text and "'probe_key':" not in text:
                return form
        return None if self._called else TemplateForm()

    @cached_property
    def _writes_results(self) -> bool:
        return not self._called or any("probe_result" in text for text in self._called.values())

    @cached_property
    def _takes_parts(self) -> bool:
        text = self._probe((_PARTED,), TemplateForm(parts=True)) or ""
        # A list that a template prints directly also has both texts, in quotes.
        printed = "'probe_first'" in text or '"probe_first"' in text
        return "probe_first" in text and "probe_second" in text and not printed

    def _probe(
        self, messages: Sequence[Message], form: TemplateForm, *, tools: bool = True
    ) -> str | None:
        """Return the output for messages and a tool, None if the template fails."""
        try:
            said = [_message(message, form) for message in messages]
            return self._render(said, [_tool(_TOOL)] if tools else None)
        except ModelFormatError as error:
            if isinstance(error.__cause__, TemplateLimitError):
                raise
            return None


def _message(message: Message, form: TemplateForm) -> Value:
    value: Value = {"role": message.role, "content": message.text}
    # A template that takes parts takes them from users.
    if form.parts and message.role == "user" and not isinstance(message.content, str):
        value["content"] = [{"type": "text", "text": part.text} for part in message.content]
    elif message.tool_calls and not message.text:
        value["content"] = form.no_text
    if message.reasoning:
        # Names of Qwen, GLM, DeepSeek and others; Solar; gpt-oss and LFM. None uses two of them.
        for field in ("reasoning_content", "reasoning", "thinking"):
            value[field] = message.reasoning
    if message.tool_calls:
        value["tool_calls"] = [_call(call, form) for call in message.tool_calls]
    if message.tool_call_id:
        value["tool_call_id"] = message.tool_call_id
    if message.name:
        value["name"] = message.name
    return value


def _call(call: ToolCall, form: TemplateForm) -> Value:
    arguments: object = call.arguments
    if form.json_text:
        arguments = json.dumps(arguments, ensure_ascii=False)
    value: Value = {"id": call.id} if call.id else {}
    return value | {"type": "function", "function": {"name": call.name, "arguments": arguments}}


def _tool(tool: Tool) -> Value:
    parameters = tool.parameters
    if not isinstance(parameters.get("properties", {}), Mapping):
        parameters = {**parameters, "properties": {}}  # templates go through them
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


# A mark is put at the end of a message that is continued, and the prompt is cut where the template
# writes it. So whatever a template adds behind a message is left out, and white space before the
# mark stays.
_MARKS = tuple(map(chr, range(0xFDD0, 0xFDF0)))
"""Characters that Unicode keeps for uses within a program."""


def with_mark(messages: Sequence[Message]) -> tuple[list[Message], str]:
    """Return a conversation with a mark at the end of its last message, and the mark.

    The mark is in the text of the message, or in its reasoning if it has no text. Raises
    ConfigError for a message that cannot be continued.
    """
    last = messages[-1]
    if last.role != "assistant":
        raise ConfigError("only a last message of the assistant can be continued")
    if last.tool_calls:
        raise ConfigError(
            "the last message has tool_calls, so it cannot be continued; give their results"
        )
    said = last.text or last.reasoning
    mark = next((mark for mark in _MARKS if mark not in said), "")
    if last.text or not last.reasoning:
        marked = replace(last, content=last.text + mark)
    else:
        marked = replace(last, reasoning=last.reasoning + mark)
    return [*messages[:-1], marked], mark


def cut_at(mark: str, text: str) -> str:
    """Return a text up to the mark; raises ConfigError if it is not there once."""
    if not mark or text.count(mark) != 1:
        raise ConfigError(
            "the model's chat template has no place where the assistant's last message, or its "
            "thoughts, could go on; end with a message of the user"
        )
    return text.partition(mark)[0]
