"""Values of a conversation: messages, tool calls and tools.

Each can be given as a mapping in OpenAI's chat format. An error names the field as the caller wrote
it: `messages[2].role is 'usr'; give system, user, assistant or tool`.
"""

import contextlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

from akunu_py.system.errors import ConfigError
from akunu_py.values.constraint import Constraint

Role = Literal["system", "user", "assistant", "tool"]

_ROLES: tuple[str, ...] = get_args(Role)
_MAX_DEPTH = 64
"""Nesting of JSON values. Each object within an object of a schema has two levels."""

_MAX_LABEL = 1024
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""Names that OpenAI, Anthropic and the Model Context Protocol allow."""

_NO_OBJECTS = frozenset({"string", "number", "integer", "boolean", "null", "array"})
_VALUES = frozenset({"const", "default", "enum", "examples"})
"""Words of a schema with values that may be null."""

_MESSAGES_FORM = 'give a list such as [{"role": "user", "content": "Hello"}]'
_TOOL_FORM = 'give {"type": "function", "function": {"name": ..., "parameters": {...}}}'
_CALL_FORM = 'give {"type": "function", "function": {"name": ..., "arguments": ...}}'


@dataclass(frozen=True, slots=True)
class TextPart:
    """One of several texts of a message."""

    text: str

    def __post_init__(self) -> None:
        _check_text(self.text, "text")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's call of a tool, whose name may be one that no `Tool` can have.

    `arguments` are JSON values by name, copied. The result refers to the call by `id`, "" for none.

    Raises ConfigError for a field that is malformed.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""

    def __post_init__(self) -> None:
        _check_text(self.name, "name")
        _check_label(self.id, "id")
        object.__setattr__(self, "arguments", _json_object(self.arguments, "arguments"))

    @classmethod
    def of(cls, value: "ToolCall | Mapping[str, Any]", place: str = "tool_call") -> "ToolCall":
        """Return a call given as a mapping; its arguments may be JSON text, as in OpenAI's format.

        Raises ConfigError, naming a malformed field of `place`.
        """
        if isinstance(value, ToolCall):
            return value
        fields = _fields(value, place, ("id", "type", "function"), _CALL_FORM)
        function = _function(fields, place, ("name", "arguments"), _CALL_FORM)
        with _within(place):
            _check_label(fields.get("id", ""), "id")
        arguments = function.get("arguments", {})
        if isinstance(arguments, str):
            arguments = _parse(arguments, f"{place}.function.arguments")
        with _within(f"{place}.function"):
            return cls(function.get("name", ""), arguments, fields.get("id", ""))


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call.

    `parameters` is the JSON schema of an object, copied. `input_form` is the expression
    ("regex") or the Lark grammar of the argument `input`, a text, which templates do not show; None
    for any text. Only formats that write texts as they are can hold a call to a grammar
    (`ToolUse.holds_grammars`). With `strict`, a schema that cannot be enforced as a whole is an
    error; without it, what cannot be enforced is left out of the grammar. A tool that is `deferred`
    may be called, but the prompt's list leaves it out, so that the prompt keeps its beginning: a
    message describes it.

    Raises ConfigError for a field that is malformed.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )
    input_form: Constraint | None = None
    strict: bool = False
    deferred: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _TOOL_NAME.fullmatch(self.name):
            raise ConfigError(
                f"name is {self.name!r:.60}; a tool's name has 1 to 128 of the characters A-Z, "
                "a-z, 0-9, '_', '-' and '.'"
            )
        _check_text(self.description, "description")
        given: object = self.parameters
        if given == []:
            given = {}  # PHP writes an empty object as a list
        schema = _without_nulls(_json_object(given, "parameters"))
        object.__setattr__(self, "parameters", schema)
        kind = schema.get("type", "object")
        if kind != "object":
            if isinstance(kind, str) and kind.lower() in _NO_OBJECTS:
                raise ConfigError(
                    f"parameters.type is {kind!r:.60}; parameters are a JSON schema of the type "
                    "'object'"
                )
            # Such as OpenAPI's OBJECT. A call always has an object of arguments.
            schema["type"] = "object"
        if schema.get("properties") == []:
            schema["properties"] = {}

    @classmethod
    def of(cls, value: "Tool | Mapping[str, Any]", place: str = "tool") -> "Tool":
        """Return a tool given as a mapping of OpenAI's format.

        Raises ConfigError, naming a malformed field of `place`.
        """
        if isinstance(value, Tool):
            return value
        fields = _fields(value, place, ("type", "function"), _TOOL_FORM)
        known = ("name", "description", "parameters", "strict")
        function = _function(fields, place, known, _TOOL_FORM)
        function["strict"] = function.get("strict") is True
        function.setdefault("name", "")
        with _within(f"{place}.function"):
            return cls(**function)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    Raises ConfigError for a field that is malformed or that the role cannot have.
    """

    role: Role
    content: str | tuple[TextPart, ...] = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    """The call that a tool's message answers; "" for none."""

    name: str = ""
    """Of the speaker, or of the tool; "" for none."""

    reasoning: str = ""
    """What the assistant wrote before its answer, without markers."""

    def __post_init__(self) -> None:
        if self.role not in _ROLES:
            raise ConfigError(
                f"role is {self.role!r:.60}; give {', '.join(_ROLES[:-1])} or {_ROLES[-1]}"
            )
        if not isinstance(self.content, str):
            _check_all(self.content, TextPart, "content", "a text or a tuple of TextPart")
            if not self.content:
                raise ConfigError("content has no parts; give at least one, or a text")
        _check_all(self.tool_calls, ToolCall, "tool_calls", "a tuple of ToolCall")
        _check_label(self.tool_call_id, "tool_call_id")
        # A tool's is that of a call, which may be any.
        (_check_text if self.role == "tool" else _check_label)(self.name, "name")
        _check_text(self.reasoning, "reasoning")
        for name, role in (
            ("tool_calls", "assistant"),
            ("reasoning", "assistant"),
            ("tool_call_id", "tool"),
        ):
            if getattr(self, name) and self.role != role:
                raise ConfigError(
                    f"{name} belongs to messages of the role {role}, but this one's is {self.role}"
                )

    @property
    def text(self) -> str:
        """The text, with parts joined."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)

    @classmethod
    def of(cls, value: "Message | Mapping[str, Any]", place: str = "message") -> Self:
        """Return a message given as a mapping of OpenAI's format.

        None stands for a missing field. Reasoning may also be called `reasoning_content`. Raises
        ConfigError, naming a malformed field of `place`.
        """
        if isinstance(value, cls):
            return value
        fields = _fields(value, place, _MESSAGE_FIELDS, 'give {"role": ..., "content": ...}')
        if "role" not in fields:
            raise ConfigError(f"{place}.role is missing; give {', '.join(_ROLES)}")
        reasoning = fields.pop("reasoning_content", "")
        if fields.setdefault("reasoning", reasoning) != reasoning and reasoning:
            raise ConfigError(f"{place} has reasoning and a different reasoning_content; give one")
        if "tool_calls" in fields:
            calls = _items(fields["tool_calls"], f"{place}.tool_calls")
            fields["tool_calls"] = tuple(ToolCall.of(call, where) for where, call in calls)
        if "content" in fields:
            if not isinstance(fields["content"], str):
                fields["content"] = _parts(fields["content"], f"{place}.content")
        elif not fields.get("tool_calls"):
            raise ConfigError(f"{place}.content is missing; give a text")
        with _within(place):
            return cls(**fields)


GivenMessage = Message | Mapping[str, Any]
"""A message as callers may give it."""

GivenTool = Tool | Mapping[str, Any]
"""A tool as callers may give it."""

_MESSAGE_FIELDS = (
    "role", "content", "tool_calls", "tool_call_id", "name", "reasoning", "reasoning_content"
)  # fmt: skip

ToolChoice = Literal["auto", "none", "required"] | Mapping[str, str | Sequence[str]]
"""Whether a model may call tools: as it likes, not at all, at least one, or {"name": NAME} once.

{"mode": "auto" or "required", "names": [NAME, ...]} allows some of the tools. The model is told of
all of them in any case, so that prompts with different choices begin alike.
"""


def read_messages(messages: Sequence[GivenMessage]) -> tuple[Message, ...]:
    """Return a conversation as messages; raise ConfigError for an empty or malformed one."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise ConfigError(f"messages is a {type(messages).__name__}; {_MESSAGES_FORM}")
    if not messages:
        raise ConfigError(f"messages is empty; {_MESSAGES_FORM}")
    return tuple(Message.of(message, place) for place, message in _items(messages, "messages"))


def read_tools(tools: Sequence[GivenTool] | None) -> tuple[Tool, ...]:
    """Return tools as values; raise ConfigError for malformed ones or equal names."""
    if tools is None:
        return ()
    found: dict[str, Tool] = {}
    for place, given in _items(tools, "tools"):
        tool = Tool.of(given, place)
        if tool.name in found:
            raise ConfigError(f"{place} has the name {tool.name!r} of another tool; rename one")
        found[tool.name] = tool
    return tuple(found.values())


@contextlib.contextmanager
def _within(place: str) -> Iterator[None]:
    """Prefix the field that an error names with its place."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{place}.{error.message}") from None


def _fields(value: object, place: str, known: Sequence[str], form: str) -> dict[str, Any]:
    """Return the fields of a mapping that are not None; raise ConfigError for unknown ones."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place} is a {type(value).__name__}; {form}")
    for name in value:
        if name not in known:
            raise ConfigError(
                f"{place} has the unknown field {name!r:.60}; known are {', '.join(known)}"
            )
    return {name: part for name, part in value.items() if part is not None}


def _function(
    fields: Mapping[str, Any], place: str, known: Sequence[str], form: str
) -> dict[str, Any]:
    """Return the fields of the function in a tool or a call."""
    if (kind := fields.get("type") or "function") != "function":
        raise ConfigError(f"{place}.type is {kind!r:.60}; akunu knows only 'function'")
    if "function" not in fields:
        raise ConfigError(f"{place}.function is missing; {form}")
    return _fields(fields["function"], f"{place}.function", known, form)


def _items(values: object, place: str) -> Iterator[tuple[str, Any]]:
    """Yield the items of a list, each with its place."""
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise ConfigError(f"{place} is a {type(values).__name__}; give a list")
    for index, value in enumerate(values):
        yield f"{place}[{index}]", value


def _parts(values: object, place: str) -> tuple[TextPart, ...]:
    parts = []
    for where, value in _items(values, place):
        if isinstance(value, TextPart):
            parts.append(value)
            continue
        form = 'give a text or {"type": "text", "text": ...}'
        kind = value.get("type", "text") if isinstance(value, Mapping) else "text"
        # Checked before its fields: the fields of an image are not mistakes in a text.
        if kind != "text":
            raise ConfigError(f"{where}.type is {kind!r:.60}; akunu's models read only text")
        fields = _fields(value, where, ("type", "text"), form)
        if "text" not in fields:
            raise ConfigError(f"{where}.text is missing; {form}")
        with _within(where):
            parts.append(TextPart(fields.get("text", "")))
    return tuple(parts)


def _parse(text: str, place: str) -> object:
    """Return arguments given as JSON text; an empty text, as some streams produce, is {}."""
    try:
        return json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        raise ConfigError(f"{place} is not JSON: {text!r:.60}; give an object") from None


def _without_nulls(schema: Any) -> Any:
    """Return a JSON schema without words that say null: they say nothing, and trouble templates."""
    if isinstance(schema, list):
        return [_without_nulls(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        word: value if word in _VALUES else _without_nulls(value)
        for word, value in schema.items()
        if value is not None or word in _VALUES
    }


def _json_object(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} is a {type(value).__name__}; give an object")
    copied: dict[str, Any] = _json(value, name)
    return copied


def _json(value: object, name: str, depth: int = 0) -> Any:
    """Return a copy of a JSON value; raise ConfigError for any other value."""
    if depth > _MAX_DEPTH:
        raise ConfigError(f"{name} is nested more than {_MAX_DEPTH} levels deep")
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list | tuple):
        return [_json(part, name, depth + 1) for part in value]
    if not isinstance(value, Mapping):
        kind = f"the number {value}" if isinstance(value, float) else f"a {type(value).__name__}"
        raise ConfigError(f"{name} has {kind}, which is not a JSON value")
    for key in value:
        if not isinstance(key, str):
            raise ConfigError(f"{name} has the key {key!r:.60}; keys in JSON are texts")
    return {key: _json(part, name, depth + 1) for key, part in value.items()}


def _check_text(value: object, name: str) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"{name} is a {type(value).__name__}; give a text")


def _check_label(value: object, name: str) -> None:
    """Refuse an id or a name that is not one line of text."""
    _check_text(value, name)
    if len(str(value)) > _MAX_LABEL or not str(value).isprintable():
        raise ConfigError(
            f"{name} is {value!r:.60}; give one line of {_MAX_LABEL} characters at most"
        )


def _check_all(values: object, kind: type, name: str, form: str) -> None:
    if not isinstance(values, tuple) or not all(isinstance(value, kind) for value in values):
        raise ConfigError(f"{name} is {values!r:.60}; give {form}")
