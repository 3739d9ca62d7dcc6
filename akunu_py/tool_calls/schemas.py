"""What a JSON schema says of values: their types, their constants, and the names of an object."""

from collections.abc import Mapping
from typing import Any

from akunu_py.constraints import look_up
from akunu_py.tool_calls.format import Kind
from akunu_py.tool_calls.values import KINDS, kind_of

_DEEPEST = 32
"""References that are followed one behind another."""

_MOST_CONSTANTS = 4096

_MOST_ALTERNATIVES = 16
"""Alternatives that a grammar keeps apart."""

_Object = dict[str, Any]
"""A schema of an object, by words that say something of its names."""

_OF_NAMES = ("properties", "required", "additionalProperties")
DEFINITIONS = ("$defs", "definitions")
"""Words that have the schemas to which references lead."""


def kinds_of(schema: object, root: Mapping[str, Any]) -> tuple[Kind, ...]:
    """Return the types that values of a schema may have; all of them if it does not say.

    `root` is the schema in which references are found.
    """
    found = _kinds(schema, root, _DEEPEST, {})
    return tuple(kind for kind in KINDS if kind in found)


def _kinds(
    schema: object, root: Mapping[str, Any], depth: int, seen: dict[str, frozenset[Kind]]
) -> frozenset[Kind]:
    """Return the types of a schema; `seen` has those behind references, each followed once."""
    everything = frozenset(KINDS)
    if schema is False:
        return frozenset()
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
        if place not in seen:
            seen[place] = everything  # a schema may refer to itself
            seen[place] = _kinds(look_up(place, root), root, depth - 1, seen)
        found &= seen[place]
    for word in ("anyOf", "oneOf"):
        if isinstance(parts := schema.get(word), list):
            found &= frozenset().union(*(_kinds(part, root, depth, seen) for part in parts))
    if isinstance(parts := schema.get("allOf"), list):
        for part in parts:
            found &= _kinds(part, root, depth, seen)
    return found


def resolve(schema: object, root: Mapping[str, Any]) -> object:
    """Return a schema, or that to which it refers by nothing but a reference."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, Mapping) or not isinstance(place := schema.get("$ref"), str):
            break
        schema = look_up(place, root)
    return schema


def with_definitions(part: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of a schema as a schema of its own, with the definitions that it may need."""
    return {**{word: root[word] for word in DEFINITIONS if word in root}, **part}


def constants(schema: object, root: Mapping[str, Any], depth: int = _DEEPEST) -> list[Any] | None:
    """Return all values of a schema that has a few, none of them a list or an object; else None."""
    schema = resolve(schema, root)
    if not isinstance(schema, Mapping) or not depth:
        return None
    found: object = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(parts := schema.get("anyOf", schema.get("oneOf")), list) and found is None:
        found = []
        for part in parts:
            values = constants(part, root, depth // 2)
            if values is None or len(found) > _MOST_CONSTANTS:
                return None
            found += values
    elif schema.get("type") == "null":
        found = [None]
    if not isinstance(found, list) or any(isinstance(value, list | dict) for value in found):
        return None
    kinds = kinds_of(schema, root)
    return [value for value in found if kind_of(value) in kinds] or None


def alternatives(schema: Mapping[str, Any]) -> list[_Object]:
    """Return the objects that a schema of arguments allows, as schemas with all of their names.

    References, `allOf`, and a part of `anyOf` or `oneOf` are joined in each, so that a format can
    follow it that writes arguments one by one. Many alternatives become one, as in `by_name`.
    """
    found = []
    for one in _alternatives(schema, schema, _DEEPEST, {}):
        free, properties = one.get("additionalProperties"), dict(one.get("properties", {}))
        for name in one.get("required", ()) if free is not False else ():
            properties.setdefault(name, free if isinstance(free, Mapping) else {})
        found.append({**one, "type": "object", "properties": properties})
    return found


def by_name(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema of arguments with the names of all its alternatives.

    Names of each are allowed, and those of all are required.
    """
    definitions = {word: schema[word] for word in DEFINITIONS if word in schema}
    return {"type": "object", **_any_of(alternatives(schema)), **definitions}


def _alternatives(
    schema: object, root: Mapping[str, Any], depth: int, seen: dict[str, list[_Object]]
) -> list[_Object]:
    """Return the alternatives of a schema; `seen` has those behind references, as in `_kinds`."""
    schema = schema if isinstance(schema, Mapping) and depth else {}
    joined = [_alternatives(part, root, depth, seen) for part in schema.get("allOf", ())]
    if isinstance(place := schema.get("$ref"), str):
        if place not in seen:
            seen[place] = [{}]
            seen[place] = _alternatives(look_up(place, root), root, depth - 1, seen)
        joined.append(seen[place])
    # What it says itself is more than what it refers to, and a part of `anyOf` is more than that.
    joined.append([{word: schema[word] for word in _OF_NAMES if word in schema}])
    for word in ("anyOf", "oneOf"):
        # Arguments are an object, whatever else a part allows.
        if parts := [part for part in schema.get(word, ()) if "object" in kinds_of(part, root)]:
            each = [one for part in parts for one in _alternatives(part, root, depth, seen)]
            joined.append(_few(each))
    found: list[_Object] = [{}]
    for each in joined:
        found = _few([_intersect(one, other) for one in found for other in each])
    return found


def _few(each: list[_Object]) -> list[_Object]:
    """Return some alternatives, each once, or one in place of many."""
    found: list[_Object] = []
    for one in each:
        if one not in found:
            found.append(one)
        if len(found) > _MOST_ALTERNATIVES:
            return [_any_of(each)]
    return found


def _intersect(first: _Object, second: _Object) -> _Object:
    """Return the schema of objects that both allow; the second says what a name's values are."""
    required = dict.fromkeys([*first.get("required", ()), *second.get("required", ())])
    return {
        **first,
        **second,
        "properties": {**first.get("properties", {}), **second.get("properties", {})},
        "required": list(required),
    }


def _any_of(each: list[_Object]) -> _Object:
    """Return the schema of objects with names of any of some schemas."""
    if len(each) == 1:
        return each[0]
    values: dict[str, list[Any]] = {}
    for one in each:
        for name, part in one.get("properties", {}).items():
            given = values.setdefault(name, [])
            if part not in given:
                given.append(part)
    found: _Object = {
        "properties": {
            name: given[0] if len(given) == 1 else {"anyOf": given}
            for name, given in values.items()
        },
        "required": [
            name
            for name in each[0].get("required", ())
            if all(name in one.get("required", ()) for one in each)
        ],
    }
    frees = [one["additionalProperties"] for one in each if "additionalProperties" in one]
    if frees:
        found["additionalProperties"] = next((free for free in frees if free is not False), False)
    return found
