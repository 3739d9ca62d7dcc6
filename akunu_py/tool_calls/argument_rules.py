"""Rules of the arguments of calls in notations other than JSON: Python, foreign quotes, tags."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from akunu_py.constraints import look_up
from akunu_py.tool_calls.format import Kind, PythonArguments, TaggedArguments, ToolFormat
from akunu_py.tool_calls.rules import Rules, json_value, limits_of, literal
from akunu_py.tool_calls.schemas import constants, kinds_of, resolve
from akunu_py.tool_calls.values import kind_of
from akunu_py.values.messages import Tool

_UNSAFE_KEYWORD = re.compile(r"[^\w$.-]|^$")
_COMBINED = ("$ref", "allOf", "anyOf", "oneOf", "not", "if", "patternProperties")
_TEXT_LIMITS = {"pattern", "format", "minLength", "maxLength", *_COMBINED}


def keywords(
    rules: Rules, rule: str, tool: Tool, schema: Mapping[str, Any], notation: PythonArguments
) -> str:
    """Return the terms for the arguments of a tool by a schema; values are written as in JSON."""
    required, root = schema.get("required", ()), tool.parameters
    members = []
    for number, key, part in rules.writable(
        tool.name, schema.get("properties", {}), root, _UNSAFE_KEYWORD
    ):
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


_UNSAFE_KEY = re.compile(r"[^\w$.-]")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


def quoted_terms(rules: Rules, rule: str, tool: Tool, schema: Mapping[str, Any], quote: str) -> str:
    """Return the terms for the arguments of a tool by a schema."""
    if tool.input_form is None:
        return _Values(rules, quote, tool).an_object(rule, schema)
    text = rules.given_terms(rule, tool.input_form, quote)
    return f'"{{input:" {rules.terms(quote)} {text} "}}"'


class _Values:
    """Makes the rules of one tool's values."""

    def __init__(self, rules: Rules, quote: str, tool: Tool) -> None:
        self._rules = rules
        self._quote = quote
        self._tool = tool.name
        self._root = tool.parameters

    def an_object(self, rule: str, schema: Mapping[str, Any]) -> str:
        """Return the terms for an object; keys are in the order in which templates sort them."""
        rules, properties = self._rules, schema.get("properties", {})
        within = rule.count("_") > 1
        free = schema.get("additionalProperties", within and not properties)
        if not properties and free in (True, {}):
            return self._anything("object")
        required = schema.get("required", ())
        ordered = dict(sorted(properties.items(), key=lambda item: (item[0].lower(), item[0])))
        members = []
        for number, key, part in rules.writable(self._tool, ordered, self._root, _UNSAFE_KEY):
            name = f"{rule}_{number}"
            rules[name] = f"{literal(key + ':')} {self._value(name, part)}"
            members.append((name, key in required))
        if free not in (None, False):
            rules[f"{rule}_one"] = f'KEY ":" {self._value(f"{rule}_v", free)}'
            rules[f"{rule}_free"] = f'{rule}_one ("," {rule}_one)*'
            members.append((f"{rule}_free", False))
        return f'"{{" {rules.members(rule, members, ",")} "}}"' if members else '"{" "}"'

    def _value(self, rule: str, schema: Any) -> str:
        """Return the terms for a value of a schema."""
        if isinstance(schema, Mapping) and isinstance(place := schema.get("$ref"), str):
            # Other tools may have other definitions of this name.
            named = "_".join((*rule.split("_")[:2], "ref", place.encode().hex()))
            if named not in self._rules:
                self._rules[named] = ""  # a schema may refer to itself
                self._rules[named] = self._value(named, look_up(place, self._root))
            return named
        given = schema if isinstance(schema, Mapping) else {}
        values = given.get("enum", [given["const"]] if "const" in given else None)
        if values is not None and not any(isinstance(value, list | dict) for value in values):
            kinds = kinds_of(given, self._root)
            fitting = [value for value in values if kind_of(value) in kinds]
            return f"({' | '.join(map(self._constant, fitting))})"
        if parts := given.get("anyOf", given.get("oneOf")):
            written = (self._value(f"{rule}_a{number}", part) for number, part in enumerate(parts))
            return f"({' | '.join(written)})"
        alternatives: list[str] = []
        for kind in kinds_of(given, self._root):
            if kind == "object":
                alternatives.append(self.an_object(f"{rule}_o", given))
            elif kind == "array" and "items" in given:
                self._rules[f"{rule}_e"] = self._value(f"{rule}_i", given["items"])
                alternatives.append(f'"[" ({rule}_e ("," {rule}_e)*)? "]"')
            elif kind == "number":
                bounds = {word: given[word] for word in _BOUNDS if word in given}
                alternatives.append(json_value({**bounds, "type": _number_type(given)}))
            elif kind == "string" and (limits := limits_of(given)):
                text = self._rules.text(f"{rule}_s", self._quote, limits)
                alternatives.append(f"{self._rules.terms(self._quote)} {text}")
            else:
                alternatives.append(self._anything(kind))
        return f"({' | '.join(alternatives)})"

    def _anything(self, kind: Kind) -> str:
        """Return the terms for any value of a type."""
        if kind in ("number", "boolean", "null"):
            return {"number": "NUMBER", "boolean": '("true" | "false")', "null": '"null"'}[kind]
        rules = self._rules
        if "any_string" not in rules:
            text = rules.text("any", self._quote)
            rules["any_string"] = f"{rules.terms(self._quote)} {text}"
            rules["any_value"] = (
                'any_string | NUMBER | "true" | "false" | "null" | any_array | any_object'
            )
            rules["any_array"] = '"[" (any_value ("," any_value)*)? "]"'
            rules["any_member"] = 'KEY ":" any_value'
            rules["any_object"] = '"{" (any_member ("," any_member)*)? "}"'
        return f"any_{kind}"

    def _constant(self, value: object) -> str:
        if not isinstance(value, str):
            return literal(json.dumps(value))
        quote = self._rules.terms(self._quote)
        return f"{quote} {literal(value)} {quote}"


def _number_type(schema: Mapping[str, Any]) -> str:
    named = schema.get("type")
    types = [named] if isinstance(named, str) else named or []
    return "integer" if "integer" in types and "number" not in types else "number"


_UNSAFE_TAGGED = r"[<>\"'\n\r]"


def tagged_terms(
    rules: Rules,
    rule: str,
    tool: Tool,
    schema: Mapping[str, Any],
    tags: TaggedArguments,
    *,
    format_: ToolFormat,
) -> str:
    """Return the terms for a tool's arguments by a schema, in order, and what closes the call."""
    required, root = schema.get("required", ()), tool.parameters
    close, made = rules.terms(format_.close), _Arguments(rules, tags, root)
    unsafe = re.compile("|".join([_UNSAFE_TAGGED, *map(re.escape, tags.value_starts.values())]))
    members = []
    for number, key, part in rules.writable(tool.name, schema.get("properties", {}), root, unsafe):
        name = f"{rule}_{number}"
        if tool.input_form is not None and key == "input":
            before, behind = tags.wrapper or ("", "")
            begin = rules.terms(tags.key_start + key + tags.value_starts["string"] + before)
            text = rules.given_terms(name, tool.input_form, behind + tags.value_end)
            rules[name] = f"{begin} {text}"
        else:
            rules[name] = made.argument(name, literal(key), part)
        members.append((name, key in required))
    if (free := schema.get("additionalProperties")) not in (None, False):
        name = f"{rule}_free"
        rules[f"{name}_one"] = made.argument(name, "KEY", free)
        rules[name] = f"{name}_one+"
        members.append((name, False))
    all_of = " ".join(name if needed else f"{name}?" for name, needed in members)
    if format_.empty is None:
        return f"{all_of} {close}"
    # Without arguments other text follows the name, which begins like that with some.
    some = []
    for number, (name, needed) in enumerate(members):
        rest = " ".join(n if must else f"{n}?" for n, must in members[number + 1 :])
        some.append(f"{name} {rest} {close}")
        if needed:
            break
    else:
        some.append(rules.terms(format_.empty.removeprefix(format_.after_names[0])))
    return " | ".join(some)


@dataclass(frozen=True, slots=True)
class _Arguments:
    """Makes the rules of arguments; `root` is the schema in which references are found."""

    rules: Rules
    tags: TaggedArguments
    root: Mapping[str, Any]

    def argument(self, rule: str, key: str, schema: object) -> str:
        """Return the terms for one argument; `key` has those of its name."""
        starts, terms = self.tags.value_starts, self.rules.terms
        kinds = kinds_of(schema, self.root)
        alternatives: list[str] = []
        for start in dict.fromkeys(starts.values()):
            here = [kind for kind in kinds if starts[kind] == start]
            if here:
                name = f"{rule}_v{len(alternatives)}"
                value = self._value(name, here, schema, part=len(here) < len(kinds))
                alternatives.append(f"{terms(start)} {value}")
        return f"{terms(self.tags.key_start)} {key} ({' | '.join(alternatives)})"

    def _value(self, rule: str, kinds: Sequence[Kind], schema: object, *, part: bool) -> str:
        """Return the terms for a value of some types, and its end.

        `part` says whether the schema allows other types, too.
        """
        end = self.rules.terms(self.tags.value_end)
        if "string" in kinds:
            if (values := constants(schema, self.root)) is not None:
                texts = [
                    value if isinstance(value, str) else json.dumps(value)
                    for value in values
                    if kind_of(value) in kinds
                ]
                return f"({' | '.join(map(literal, texts))}) {end}"
            alone = tuple(kinds) == ("string",) and not part
            return self._text(rule, limits_of(resolve(schema, self.root)) if alone else "")
        if self.tags.python and (words := words_of(kinds, schema)):
            return f"{words} {end}"
        given = schema if isinstance(schema, Mapping) else {}
        if part:
            given = {"allOf": [given, {"type": list(kinds)}]}
        return f"{json_value(given, self.root)} {end}"

    def _text(self, rule: str, limits: str) -> str:
        """Return the terms for a text within limits, and its end."""
        rules, value_end = self.rules, self.tags.value_end
        if self.tags.wrapper is None:
            return rules.text(rule, value_end, limits)
        begin, wrapped_end = self.tags.wrapper
        text = rules.text(rule, wrapped_end + value_end, limits)
        plain = f"PLAIN_{rule.upper()}"
        rules[plain] = " & ".join(filter(None, (r"/[^<&\n]+/", limits)))
        # An empty text without the wrapper, where nothing limits it.
        without = plain if limits else f"{plain}?"
        return f"({rules.terms(begin)} {text} | {without} {rules.terms(value_end)})"
