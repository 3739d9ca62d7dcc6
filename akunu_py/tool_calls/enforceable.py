"""What of a tool's schema a grammar can enforce: the rest is loosened, part by part, and named.

Tools come from MCP servers, with everything that JSON Schema, OpenAPI and their authors' libraries
write. The prompt has the schema as it was given; the grammar has the loosened one.
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from akunu_py.constraints import look_up, try_schema
from akunu_py.system.errors import ConfigError
from akunu_py.tool_calls.schemas import DEFINITIONS, with_definitions
from akunu_py.values.constraint import MOST_CHARACTERS, Constraint
from akunu_py.values.messages import Tool
from akunu_py.values.recent_texts import RecentTexts

_TYPES = frozenset({"string", "number", "integer", "boolean", "null", "array", "object"})
_FORMATS = frozenset(
    {"date-time", "time", "date", "email", "uri", "uuid", "ipv4", "ipv6", "hostname", "duration"}
)
"""Formats of texts that llguidance follows."""

_COUNTS = frozenset(
    {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
)
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_RANGES = (
    ("minimum", "maximum"), ("exclusiveMinimum", "exclusiveMaximum"), ("minLength", "maxLength"),
    ("minItems", "maxItems"), ("minProperties", "maxProperties"),
)  # fmt: skip
_BY_NAME = frozenset({"properties", "patternProperties", *DEFINITIONS})
_ONE = frozenset({"items", "additionalProperties", "additionalItems"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})

_COMBINED = ("$ref", "allOf", "anyOf", "oneOf", "patternProperties")

_OF_NAMES = frozenset({"properties", "additionalProperties", *_COMBINED})
_NAMES = re.compile(
    r"(\.(allOf|anyOf|oneOf)\[\d+])*(\.(properties|patternProperties|\$ref|allOf|anyOf|oneOf))?"
)
"""Places in a schema that may name members of its object."""

_DEFINITION = re.compile(r"#/(?:\$defs|definitions)/[A-Za-z0-9_.-]+")
_DEFINED = "akunu_"
_VALUES = frozenset({"enum", "const", "default", "examples"})

_NOT_ENFORCED = frozenset(
    {
        "not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems",
        "propertyNames", "dependentRequired", "dependentSchemas", "dependencies",
        "unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef",
        "contentSchema",
    }
)  # fmt: skip
"""Words that limit values, and that llguidance lacks. Words of neither set limit nothing."""

_NO_LIMITS = (("uniqueItems", False), ("propertyNames", {"type": "string"}))
"""Such words that limit nothing. Zod writes the second one for each record."""

_FIRST_TO_GO = (
    "pattern", "format", "oneOf", "patternProperties", "multipleOf", *sorted(_COUNTS | _BOUNDS),
    "required", "additionalProperties", "additionalItems", "prefixItems", "allOf", "anyOf", "$ref",
    "enum", "const", "items", "properties", "type",
)  # fmt: skip
"""What is left out of a schema that does not compile, until it does."""

_MOST_SECONDS = 0.5
"""Of processor time for the trials that loosen one tool; their number is bounded, too."""

_MOST_TRIES = 200

_MOST_SECONDS_OF_ALL = 1.5
"""For all tools of a request, since their grammar must compile in time."""

_USUAL_SECONDS = 0.005
"""Those of any tool, which are not counted there: 512 ordinary tools are enforced."""

_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class Enforceable:
    """A tool with the schema that a grammar can enforce."""

    tool: Tool
    loosened: tuple[str, ...]
    """The parts of the given schema that are not enforced, such as
    "tools.search.parameters.properties.tags.uniqueItems"."""


def enforceable(tools: Sequence[Tool]) -> list[Enforceable]:
    """Return the tools of a request as a grammar can enforce them, in bounded time.

    Tools that were seen lately take no time. Where those before took too much, any arguments are
    allowed. Raises ConfigError for a tool with `strict` of which not everything can be enforced,
    and what `try_schema` does.
    """
    found, seconds = [], 0.0
    for tool in tools:
        made = _loosen_once(tool.parameters) if seconds < _MOST_SECONDS_OF_ALL else _NOTHING
        seconds += max(0.0, made.seconds - _USUAL_SECONDS)
        loosened = tuple(f"tools.{tool.name}.parameters{part}" for part in made.parts)
        if loosened and tool.strict:
            raise ConfigError(
                f"the tool {tool.name!r} is strict, and {', '.join(loosened)[:300]} cannot be "
                "enforced; change the schema there, or leave strict out"
            )
        found.append(Enforceable(replace(tool, parameters=json.loads(made.schema)), loosened))
    return found


def unenforceable(form: Constraint) -> tuple[str, ...]:
    """Return the parts of a JSON schema that a grammar cannot enforce, such as "properties.a.not".

    There are none of another constraint. Raises what `try_schema` does.
    """
    schema = json.loads(form.source) if form.kind == "json_schema" else None
    if not isinstance(schema, dict):
        return ()
    root = _with_plain_references(schema)
    made = _Loosening(root)
    known = made.simplify(root, "")
    if not made.compiles(known):
        made.repair(known, "", known)
    return tuple(part.removeprefix(".") for part in made.given_parts)


@dataclass(frozen=True, slots=True)
class _Loosened:
    """A schema in JSON without what cannot be enforced, the places of that, and its time."""

    schema: str
    parts: tuple[str, ...]
    seconds: float


_NOTHING = _Loosened('{"type": "object", "additionalProperties": {}}', ("",), 0.0)

_SEEN: RecentTexts[str] = RecentTexts()
_LOCK = threading.Lock()


def _loosen_once(parameters: Mapping[str, Any]) -> _Loosened:
    """Return a schema as `_loosen` does; one that was seen lately takes no time."""
    given = json.dumps(parameters)
    if len(given) > MOST_CHARACTERS:
        return _NOTHING
    key = hashlib.sha256(given.encode()).hexdigest()
    with _LOCK:
        kept = _SEEN.get(key)
    if kept is None:
        found = _loosen(given)
        kept = json.dumps([found.schema, found.parts, found.seconds]).encode()
        with _LOCK:
            _SEEN.keep(key, kept)
    schema, parts, seconds = json.loads(kept)
    return _Loosened(schema, tuple(parts), seconds)


def _loosen(parameters: str) -> _Loosened:
    root = _with_plain_references(json.loads(parameters))
    made = _Loosening(root)
    schema = made.satisfiable(close_schema(made.open_schema(made.simplify(root, ""))), "")
    # An optional argument that no value fits would be left out, or fail where it is written alone.
    every = [name for name, part in schema.get("properties", {}).items() if part is not False]
    if not made.compiles(schema) or not made.compiles({**schema, "required": every}):
        schema = made.open_schema({**made.repair(schema, "", schema), "type": "object"})
    return _Loosened(json.dumps(schema), made.given_parts, made.seconds)


def _with_plain_references(root: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose references lead to definitions, under names that need no escapes.

    Parts of it then keep their meaning elsewhere, as long as the definitions are with them.
    """
    names: dict[str, str] = {}

    def define(value: Any) -> Any:
        if isinstance(value, list):
            return [define(part) for part in value]
        if not isinstance(value, dict):
            return value
        found = {word: part if word in _VALUES else define(part) for word, part in value.items()}
        place = value.get("$ref")
        if isinstance(place, str) and not _DEFINITION.fullmatch(place):
            target = unquote(place)
            if target == "#" or (target.startswith("#/") and look_up(target, root) is not None):
                name = names.setdefault(target, f"{_DEFINED}{len(names)}")
                found["$ref"] = f"#/$defs/{name}"
        return found

    made: dict[str, Any] = define(root)
    if not names:
        return made
    body = {word: part for word, part in made.items() if word not in DEFINITIONS}
    own = {name: body if place == "#" else look_up(place, made) for place, name in names.items()}
    given = made.get("$defs")
    return {**made, "$defs": {**(given if isinstance(given, dict) else {}), **own}}


def close_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of arguments without names that it does not mention."""
    found: dict[str, Any] = {"type": "object", **schema}
    if not any(word in schema for word in (*_COMBINED, "additionalProperties")):
        found["additionalProperties"] = False
    return found


class _Loosening:
    """Loosens one schema."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._tries = 0
        self._spent = False
        self.seconds = 0.0
        # The places that lost something.
        self.parts: list[str] = []

    @property
    def given_parts(self) -> tuple[str, ...]:
        """The places that lost something, without those of definitions that were made here."""
        own = f".$defs.{_DEFINED}"
        return tuple(dict.fromkeys(part for part in self.parts if not part.startswith(own)))

    def simplify(self, schema: object, place: str, depth: int = 0) -> Any:
        """Return a schema with those words and values alone that llguidance knows."""
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping) or depth > _DEEPEST:
            self.parts.append(place)
            return {}
        found, before = {}, len(self.parts)
        for word, value in schema.items():
            kept = self._word(word, value, f"{place}.{word}", depth)
            if kept is not None:
                found[word] = kept
        if schema.get("const", 0) is None:
            found["enum"] = [None]
        if schema.get("nullable") is True and isinstance(found.get("type"), str):
            found["type"] = [found["type"], "null"]
            if "enum" in found and None not in found["enum"]:
                found["enum"] = [*found["enum"], None]
        if "format" in found and "string" not in found.get("type", "string"):
            del found["format"]  # it would limit texts alone
        elif found.get("format", "date") not in _FORMATS:
            self.parts.append(f"{place}.format")
            del found["format"]
        found = self.satisfiable(found, place)
        lost = any(_NAMES.fullmatch(part, len(place)) for part in self.parts[before:])
        return _with_any_names(found) if lost else found

    def open_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema of arguments with any names, if it lost a part that has some."""
        lost = any(map(_NAMES.fullmatch, self.parts))
        # One of several has become any of them, which lost no name.
        return {"additionalProperties": {}, **schema} if lost and "anyOf" not in schema else schema

    def satisfiable(self, schema: dict[str, Any], place: str) -> dict[str, Any]:
        """Return a schema without limits that contradict each other plainly."""
        for least, most in _RANGES:
            low, high = schema.get(least), schema.get(most)
            if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
                self.parts.append(f"{place}.{most}")
                schema = {word: part for word, part in schema.items() if word != most}
        if schema.get("additionalProperties") is not False or "patternProperties" in schema:
            return schema
        allowed = schema.get("properties", {})
        required = [name for name in schema.get("required", ()) if name in allowed]
        if len(required) == len(schema.get("required", ())):
            return schema
        self.parts.append(f"{place}.required")
        return {**schema, "required": required}

    def _word(self, word: str, value: Any, place: str, depth: int) -> Any:
        """Return the value of a word; None if it says nothing, or cannot be enforced."""
        if value is None:
            return None
        kept: Any = None
        if word in _BY_NAME:
            if isinstance(value, Mapping):
                return {
                    name: self.simplify(part, f"{place}.{name}", depth + 1)
                    for name, part in value.items()
                }
        elif word == "items" and isinstance(value, list):
            return [self.simplify(part, f"{place}[{i}]", depth + 1) for i, part in enumerate(value)]
        elif word in _ONE:
            return self.simplify(value, place, depth + 1)
        elif word in _LISTS:
            if isinstance(value, list) and value:
                return [
                    self.simplify(part, f"{place}[{i}]", depth + 1) for i, part in enumerate(value)
                ]
        elif word == "type":
            kept = _types(value)
        elif word == "const":
            return value
        elif word == "enum":
            kept = value if isinstance(value, list) and value else None
        elif word == "required":
            texts = isinstance(value, list) and all(isinstance(name, str) for name in value)
            kept = value if texts else None
        elif word in _COUNTS:
            kept = _count(value)
        elif word in _BOUNDS or word == "multipleOf":
            kept = value if isinstance(value, int | float) else None
        elif word in {"pattern", "format"}:
            kept = value if isinstance(value, str) else None
        elif word == "$ref":
            kept = value if self._refers(value) else None
        elif word not in _NOT_ENFORCED or (word, value) in _NO_LIMITS:
            return None
        if kept is None:
            self.parts.append(place)
        return kept

    def _refers(self, place: object) -> bool:
        """Whether a reference leads to a part of this schema, and not back to itself alone."""
        seen: set[str] = set()
        found: object = {"$ref": place}
        while isinstance(found, Mapping) and (place := found.get("$ref")) is not None:
            inside = isinstance(place, str) and place.startswith("#/")
            found = look_up(str(place), self._root) if inside else None
            if str(place) in seen or (not seen and not isinstance(found, Mapping | bool)):
                return False
            seen.add(str(place))
        return True

    def compiles(self, schema: Mapping[str, Any] | bool) -> bool:
        """Whether llguidance compiles a schema, at an affordable cost."""
        if self._spent:
            return False
        found = try_schema(schema)
        self._tries += 1
        self.seconds += found.seconds
        # Looking for the part at fault would cost as much again, each time.
        self._spent = (
            bool(found.refused) or self._tries >= _MOST_TRIES or self.seconds > _MOST_SECONDS
        )
        return not (found.error or found.refused)

    def repair(self, schema: Any, place: str, root: Mapping[str, Any]) -> Any:
        """Return a schema that does not compile without what is at fault."""
        if not isinstance(schema, Mapping) or self._spent:
            self.parts.append(place)
            return {}
        found = dict(schema)
        for word, name, part in _parts(schema):
            if not isinstance(part, bool) and not self.compiles(with_definitions(part, root)):
                where = f"{place}.{word}" if name is None else f"{place}.{word}{_step(name)}"
                repaired = self.repair(part, where, root)
                if name is None:
                    found[word] = repaired
                else:
                    found[word] = found[word].copy()
                    found[word][name] = repaired
                if not place and word in DEFINITIONS:
                    root = found
        if self.compiles(with_definitions(found, root)):
            return found
        # Arguments are an object in any case.
        words = [word for word in _FIRST_TO_GO if word in found and (place or word != "type")]
        for word in words:
            if self.compiles(with_definitions(without := _drop_word(found, word), root)):
                self.parts.append(f"{place}.{word}")
                return without
        for word in words:
            self.parts.append(f"{place}.{word}")
            found = _drop_word(found, word)
            if self.compiles(with_definitions(found, root)):
                return found
        return {}


def _types(value: object) -> Any:
    """Return a type, or types, in JSON Schema's words; OpenAPI and Gemini write OBJECT."""
    if isinstance(value, str):
        return value.lower() if value.lower() in _TYPES else None
    if isinstance(value, list) and value:
        found = [_types(one) for one in value]
        return found if all(isinstance(one, str) for one in found) else None
    return None


def _count(value: object) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and value >= 0 and value is not True else None


def _parts(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the schemas within a schema, with the word and the name or number that has them.

    Definitions come first, since the others may refer to them.
    """
    for word, value in sorted(schema.items(), key=lambda item: item[0] not in DEFINITIONS):
        if word in _BY_NAME:
            yield from ((word, name, part) for name, part in value.items())
        elif isinstance(value, list) and (word in _LISTS or word == "items"):
            yield from ((word, place, part) for place, part in enumerate(value))
        elif word in _ONE:
            yield word, None, value


def _step(name: str | int) -> str:
    return f"[{name}]" if isinstance(name, int) else f".{name}"


def _drop_word(schema: Mapping[str, Any], word: str) -> dict[str, Any]:
    """Return a schema without a word; one of several becomes any of them."""
    found = {key: value for key, value in schema.items() if key != word}
    if word == "oneOf" and "anyOf" not in found:
        return {**found, "anyOf": schema["oneOf"]}
    return _with_any_names(found) if word in _OF_NAMES else found


def _with_any_names(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that lost names, whose object would else have no others than those left."""
    return {"additionalProperties": {}, **schema} if _OF_NAMES & schema.keys() else schema
