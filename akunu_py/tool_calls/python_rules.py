"""Rules of arguments that are keywords of a call in Python."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from akunu_py.tool_calls.format import Kind, PythonArguments
from akunu_py.tool_calls.rules import Rules, json_value, literal
from akunu_py.tool_calls.schemas import kinds_of
from akunu_py.values.messages import Tool

_UNSAFE = re.compile(r"[^\w$.-]|^$")
_COMBINED = ("$ref", "allOf", "anyOf", "oneOf", "not", "if", "patternProperties")
_TEXT_LIMITS = {"pattern", "format", "minLength", "maxLength", *_COMBINED}


def keywords(
    rules: Rules, rule: str, tool: Tool, schema: Mapping[str, Any], notation: PythonArguments
) -> str:
    """Return the terms for the arguments of a tool by a schema; values are written as in JSON."""
    required, root = schema.get("required", ()), tool.parameters
    members = []
    for number, key, part in rules.writable(tool.name, schema.get("properties", {}), root, _UNSAFE):
        name = f"{rule}_{number}"
        rules[name] = f"{literal(key + '=')} {_value(part, root, notation)}"
        members.append((name, key in required))
    if (free := schema.get("additionalProperties")) not in (None, False):
        rules[f"{rule}_one"] = f'KEY "=" {_value(free, root, notation)}'
        rules[f"{rule}_free"] = f'{rule}_one (", " {rule}_one)*'
        members.append((f"{rule}_free", False))
    return rules.members(rule, members, ", ")


def words_of(kinds: Sequence[Kind], schema: object) -> str:
    """Return the terms for truth values and null, in JSON's words and Python's; "" for others."""
    if not set(kinds) <= {"boolean", "null"} or _choices(schema) is not None:
        return ""
    words = {"boolean": ("true", "false", "True", "False"), "null": ("null", "None")}
    return f"({' | '.join(literal(word) for kind in kinds for word in words[kind])})"


def _value(schema: object, root: Mapping[str, Any], notation: PythonArguments) -> str:
    """Return the terms for a value in Python's notation: JSON, of which all is read."""
    kinds = kinds_of(schema, root)
    if words := words_of(kinds, schema):
        return words
    given = schema if isinstance(schema, Mapping) else {}
    written = json_value(given, root)
    if notation.quote == "'" and tuple(kinds) == ("string",):
        if texts := [text for text in _choices(schema) or () if isinstance(text, str)]:
            plain = [f"'{text}'" for text in texts if not re.search(r"['\\\n]", text)]
            return f"({' | '.join([written, *map(literal, plain)])})"
        if not _TEXT_LIMITS & set(given):
            return f"({written} | SINGLE_QUOTED)"
    return written


def _choices(schema: object) -> Sequence[Any] | None:
    """Return the values of an enum."""
    if not isinstance(schema, Mapping):
        return None
    values: object = schema.get("enum", [schema["const"]] if "const" in schema else None)
    return values if isinstance(values, list) else None
