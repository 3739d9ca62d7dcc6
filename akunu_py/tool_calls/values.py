"""Arguments of calls, from the text that a model wrote to JSON values."""

import ast
import contextlib
import json
import math
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from akunu_py.tool_calls.format import Kind

KINDS: tuple[Kind, ...] = ("string", "number", "boolean", "null", "array", "object")

_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0",
    "\\": "\\", "'": "'", '"': '"', "/": "/", "\n": "",
}  # fmt: skip

_MOST_PYTHON = 1 << 16
"""Characters of a value in Python's notation; deeper or longer ones stay text."""

_DEEPEST = 32
"""References and alternatives that are followed to find the types of a schema."""


def read_json(text: str) -> Any:
    """Return a JSON value; raise ValueError for any other text.

    A number beyond the range of floats becomes the largest one, and half a surrogate pair becomes
    U+FFFD, since such values could not be passed on as JSON.
    """
    try:
        return _plain(json.loads(text, parse_float=_float, parse_int=_int, parse_constant=_refuse))
    except RecursionError:
        raise ValueError("nested too deep") from None


def read_text(text: str, kinds: Collection[Kind], *, python: bool) -> Any:
    """Return the value of an argument that is written without quotes where it is a text.

    `kinds` are the types that its schema allows. A text that could be of several types is a text
    only if nothing else fits. Raises ValueError if the value has none of the types.
    """
    if "string" in kinds and len(kinds) == 1:
        return text
    for value in _readings(text.strip(), python=python):
        if kind_of(value) in kinds and not isinstance(value, str):
            return value
    if "string" in kinds:
        return text
    raise ValueError(f"{text!r:.60} is none of {', '.join(kinds)}")


def read_python_text(inside: str) -> str:
    """Return the text that stands between quotes in Python's notation, or in JSON's."""
    return str(_plain(_ESCAPE.sub(_unescaped, inside)))


def _unescaped(escape: re.Match[str]) -> str:
    code = escape.group()[1:]
    if code in _ESCAPES:
        return _ESCAPES[code]
    if code[0] in "xuU" and len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number <= sys.maxunicode else "\ufffd"
    return escape.group()


def kind_of(value: object) -> Kind:
    """Return the type of a JSON value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, Mapping) else "array"


def kinds_of(schema: object, root: Mapping[str, Any]) -> tuple[Kind, ...]:
    """Return the types that values of a schema may have; all of them if it does not say.

    `root` is the schema in which references are found.
    """
    found = _kinds(schema, root, _DEEPEST)
    return tuple(kind for kind in KINDS if kind in found)


def _kinds(schema: object, root: Mapping[str, Any], depth: int) -> set[Kind]:
    everything = set(KINDS)
    if schema is False:
        return set()
    if not isinstance(schema, Mapping) or not depth:
        return everything
    found = everything
    named = schema.get("type")
    if isinstance(named, str | list):
        names = [named] if isinstance(named, str) else named
        found &= {"number" if name == "integer" else name for name in names}
    if isinstance(values := schema.get("enum"), list):
        found &= {kind_of(value) for value in values}
    if "const" in schema:
        found &= {kind_of(schema["const"])}
    if isinstance(place := schema.get("$ref"), str):
        found &= _kinds(referred(place, root), root, depth - 1)
    for word in ("anyOf", "oneOf"):
        if isinstance(parts := schema.get(word), list):
            found &= set().union(*(_kinds(part, root, depth // 2) for part in parts))
    if isinstance(parts := schema.get("allOf"), list):
        for part in parts:
            found &= _kinds(part, root, depth // 2)
    return found


def resolved(schema: object, root: Mapping[str, Any]) -> object:
    """Return a schema, or that to which it refers by nothing but a reference."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, Mapping) or not isinstance(place := schema.get("$ref"), str):
            break
        schema = referred(place, root)
    return schema


def constants(schema: object, root: Mapping[str, Any], depth: int = _DEEPEST) -> list[Any] | None:
    """Return all values of a schema that has a few, none of them a list or an object; else None."""
    schema = resolved(schema, root)
    if not isinstance(schema, Mapping) or not depth:
        return None
    found: object = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(parts := schema.get("anyOf", schema.get("oneOf")), list) and found is None:
        each = [constants(part, root, depth // 2) for part in parts]
        found = None if None in each else [value for values in each for value in values or ()]
    elif schema.get("type") == "null":
        found = [None]
    if not isinstance(found, list) or any(isinstance(value, list | dict) for value in found):
        return None
    kinds = kinds_of(schema, root)
    return [value for value in found if kind_of(value) in kinds] or None


def by_name(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the schema of an object with all of its names among its properties.

    Where there are alternatives, names of each are allowed, and those of all are required. This is
    what a format can follow that writes arguments one by one.
    """
    root = schema if root is None else root
    return _by_name(schema, root, _DEEPEST) | {
        word: root[word] for word in ("$defs", "definitions") if word in root
    }


def _by_name(schema: object, root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    schema = schema if isinstance(schema, Mapping) and depth else {}
    properties = dict(schema.get("properties", {}))
    required = list(schema.get("required", ()))
    free = schema.get("additionalProperties")
    also = list(schema.get("allOf", ()))
    if isinstance(place := schema.get("$ref"), str):
        also.append(referred(place, root))
    for part in also:
        one = _by_name(part, root, depth // 2)
        properties = {**one["properties"], **properties}
        required += one["required"]
        free = one.get("additionalProperties") if free is None else free
    for word in ("anyOf", "oneOf"):
        each = [_by_name(part, root, depth // 2) for part in schema.get(word, ())]
        for name in dict.fromkeys(name for one in each for name in one["properties"]):
            if name not in properties:
                given = [one["properties"][name] for one in each if name in one["properties"]]
                same = all(part == given[0] for part in given)
                properties[name] = given[0] if same else {"anyOf": given}
        if each:
            required += [
                name for name in each[0]["required"] if all(name in one["required"] for one in each)
            ]
    required = list(dict.fromkeys(required))
    for name in required:
        if free is not False:
            properties.setdefault(name, free if isinstance(free, Mapping) else {})
    found: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    return found if free is None else found | {"additionalProperties": free}


def referred(place: str, root: Mapping[str, Any]) -> object:
    """Return the schema at a place such as #/$defs/word; None if there is none."""
    value: object = root
    for word in place.removeprefix("#").split("/")[1:]:
        name = word.replace("~1", "/").replace("~0", "~")
        if not isinstance(value, Mapping) or name not in value:
            return None
        value = value[name]
    return value


def _readings(text: str, *, python: bool) -> Iterator[Any]:
    """Yield the value that a text has as JSON, then in Python's notation."""
    with contextlib.suppress(ValueError):
        yield read_json(text)
    if python and len(text) <= _MOST_PYTHON:
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            yield _plain(ast.literal_eval(text))


def _plain(value: Any) -> Any:
    """Return a value with only what JSON has."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {_key(key): _plain(part) for key, part in value.items()}
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ValueError(f"a {type(value).__name__} is not a JSON value")


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise ValueError("keys are texts")  # noqa: TRY004 - as for any text that is no value
    return str(_plain(key))


def _float(text: str) -> float:
    value = float(text)
    return math.copysign(sys.float_info.max, value) if math.isinf(value) else value


def _int(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:  # more digits than Python converts
        return _float(text)


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")
