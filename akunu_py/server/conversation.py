"""Parts of a conversation that all chat formats read alike."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from akunu_py.server.errors import RequestError
from akunu_py.system.errors import ConfigError
from akunu_py.values.messages import Message, Tool, ToolCall, ToolChoice

MOST_MESSAGES = 10_000
MOST_TOOLS = 1_000
Mode = Literal["auto", "none", "required"]
_API_WORDS = re.compile(r"^(?:input|output)_|_url$")


def check_counts(messages: Sequence[Any], tools: Sequence[Any], *, name: str = "messages") -> None:
    """Refuse more messages or tools than any client sends; raises RequestError."""
    for what, values, most in ((name, messages, MOST_MESSAGES), ("tools", tools, MOST_TOOLS)):
        if len(values) > most:
            raise RequestError(f"{what} has {len(values)} entries; give at most {most}", param=what)


def check_messages(messages: Sequence[Any], tools: Sequence[Any]) -> None:
    """Refuse a conversation without a message, besides what `check_counts` refuses."""
    check_counts(messages, tools)
    if not messages:
        raise RequestError("messages is empty; give at least one message", param="messages")


_ROLES = {
    "developer": "system", "function": "tool", "ipython": "tool", "observation": "tool",
    "model": "assistant", "ai": "assistant", "human": "user",
}  # fmt: skip
"""Roles of other APIs and templates that clients send, and the same in akunu's."""

_UNSPOKEN = frozenset({"control", "thinking"})
"""Roles of what nobody says: Granite's switches, and thoughts, of which akunu remembers its own."""


def read_roles(messages: Sequence[Any], ignored: list[str]) -> bool | None:
    """Give messages akunu's roles, and those that nobody says ""; return whether to think."""
    thinks = None
    for message in messages:
        role = message.role.lower()
        message.role = "" if role in _UNSPOKEN else _ROLES.get(role, role)
        if not message.role and message.content == "thinking":
            thinks = True
        elif not message.role:
            ignored.append(role)
    return thinks


class Part(msgspec.Struct):
    """A part of a message, of any type: each has some of the fields."""

    type: str = "text"
    text: str | None = None
    content: Any = None
    source: Any = None
    title: Any = None
    context: Any = None


def text_at(place: str, text: str | None) -> str:
    """Return the text of a part; raises RequestError where it is missing."""
    if text is None:
        raise RequestError(f"{place}.text is missing; give a text", param=f"{place}.text")
    return text


def message_at(place: str, **fields: Any) -> Message:
    """Return a message; raises RequestError that names the field at fault with its place."""
    try:
        return Message(**fields)
    except ConfigError as error:
        raise RequestError(f"{place}.{error.message}", param=place) from None


def call_at(place: str, name: str, arguments: object, id_: str) -> ToolCall:
    """Return a call of an earlier reply, whose arguments may be JSON text.

    A call that was cut off comes back with arguments that are not an object, and would end the
    conversation for good: it then has none. Raises RequestError that names the field at fault with
    its place.
    """
    try:
        return ToolCall.of({"id": id_, "function": {"name": name, "arguments": arguments}}, place)
    except ConfigError:
        function = {"name": name, "arguments": {}}
    try:
        return ToolCall.of({"id": id_, "function": function}, place)
    except ConfigError as error:
        raise RequestError(error.message, param=place) from None


def tool_at(
    place: str, name: object, description: object, schema: object, *, strict: object = None
) -> Tool:
    """Return a tool; a missing description or schema is None.

    Raises RequestError that names the field at fault with its place.
    """
    given = {"name": name, "description": description, "parameters": schema, "strict": strict}
    try:
        return Tool.of({"function": given}, place)
    except ConfigError as error:
        raise RequestError(error.message, param=place) from None


def function_tool(place: str, given: Mapping[str, Any]) -> Tool:
    """Return a tool as OpenAI's chats and Ollama have it; raises RequestError as `tool_at` does."""
    function = given.get("function")
    if given.get("type", "function") != "function" or not isinstance(function, dict):
        raise RequestError(
            f'{place} is not a function; give {{"type": "function", "function": {{"name": ..., '
            '"parameters": {...}}}',
            param=place,
        )
    name, description = function.get("name"), function.get("description")
    schema, strict = function.get("parameters"), function.get("strict")
    return tool_at(place, name, description, schema, strict=strict)


def announced(tools: Sequence[Tool]) -> str:
    """Return the text that tells of tools in the middle of a conversation; "" for none.

    It has the form that Claude Code's tool for searching announces.
    """
    lines = []
    for tool in tools:
        shown = {
            "description": tool.description, "name": tool.name, "parameters": dict(tool.parameters)
        }  # fmt: skip
        lines.append(f"<function>{json.dumps(shown, ensure_ascii=False)}</function>")
    return "\n".join(["<functions>", *lines, "</functions>"]) if lines else ""


def without_equal_names(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """Return the tools; raises RequestError if two have the same name."""
    names = [tool.name for tool in tools]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise RequestError(
                f"tools[{place}] has the name {name!r} of another tool; rename one", param="tools"
            )
    return tuple(tools)


def choice_of(mode: Mode, names: Sequence[str], tools: Sequence[Tool]) -> ToolChoice:
    """Return a choice among some or all tools; raises RequestError where they are not offered."""
    offered = [tool.name for tool in tools]
    if mode == "required" and not offered:
        raise RequestError(
            "tool_choice demands a call, but there are no tools", param="tool_choice"
        )
    for name in names:
        if name not in offered:
            raise RequestError(
                f"tool_choice names {name!r:.100}, which is not one of the tools",
                param="tool_choice",
            )
    match mode, names:
        case _, []:
            return mode
        case "required", [name]:
            return {"name": name}
    return {"mode": mode, "names": names}


def openai_choice(
    given: object,
    allowed: object,
    tools: Sequence[Tool],
    *,
    name_of: Callable[[object], str | None],
    malformed: str,
) -> ToolChoice:
    """Return a choice as OpenAI's APIs have it.

    Args:
        given: the field.
        allowed: what has `mode` and `tools`, if its type is "allowed_tools".
        tools: the tools that are offered.
        name_of: returns the name of a tool in a choice; None for a malformed one.
        malformed: what is said of a malformed choice.

    Raises RequestError.

    """
    mode: Mode = "required"
    chosen: Sequence[object] = ()
    match given, allowed:
        case ((None | "auto"), _):
            mode = "auto"
        case (("none" | "required" as mode), _):
            pass
        case {"type": "function" | "custom"}, _:
            chosen = [given]
        case {"type": "allowed_tools"}, {"mode": "auto" | "required" as mode, "tools": [*chosen]}:
            pass
        case _:
            raise RequestError(malformed, param="tool_choice")
    names = []
    for tool in chosen:
        if (name := name_of(tool)) is None:
            raise RequestError(malformed, param="tool_choice")
        names.append(name)
    return choice_of(mode, names, tools)


def newest_of_user(roles: Iterable[str | None]) -> int:
    """Return the place of the user's last message, of the roles of all; -1 for none."""
    return max((place for place, role in enumerate(roles) if role == "user"), default=-1)


def part_text(part: Part, place: str, ignored: list[str], *, newest: bool = False) -> str:
    """Return the text of a part and of those within it, or what stands for one that has none.

    Raises RequestError for a text that is missing, and as `unread_part` does.
    """
    match part:
        case (
            Part(type="search_result", content=[*inner])
            | Part(type="document", source={"type": "content", "content": [*inner]})
        ):
            texts = (_inner_text(one, place, ignored, newest=newest) for one in inner)
            text = "\n".join(texts)
        case (
            Part(type="search_result" | "compaction", content=str(text))
            | Part(type="document", source={"type": "text", "data": str(text)})
            | Part(type="document", source={"type": "content", "content": str(text)})
        ):
            pass
        case Part(type=kind, text=None) if kind != "text":
            return unread_part(kind, place, ignored, newest=newest)
        case _:
            return text_at(place, part.text)
    about = (part.title, part.source, part.context)
    return "\n".join([*(line for line in about if line and isinstance(line, str)), text])


def _inner_text(part: object, place: str, ignored: list[str], *, newest: bool) -> str:
    match part:
        case {"text": str(text)}:
            return text
        case {"type": str(kind)}:
            return unread_part(kind, place, ignored, newest=newest)
    raise RequestError(f"{place} has a part without a type; give a type and a text", param=place)


def unread_part(kind: str, place: str, ignored: list[str], *, newest: bool) -> str:
    """Return what the model reads in the place of an image, or another part that is not text.

    Parts of tool results and of older messages stay in the client's history, where an error would
    end the conversation for good; they are added to `ignored`. In the `newest` message of the user
    one raises RequestError.
    """
    if newest:
        raise RequestError(
            f"{place}.type is {kind!r:.60}; akunu's models read only text", param=f"{place}.type"
        )
    ignored.append(kind)
    return f"[{_API_WORDS.sub('', kind):.60} left out: this model reads text]"
