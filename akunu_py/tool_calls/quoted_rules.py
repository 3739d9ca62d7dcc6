"""Rules of arguments in a notation like JSON: keys have no quotes, and texts have others."""

import json
import re
from collections.abc import Mapping
from typing import Any

from akunu_py.constraints import look_up
from akunu_py.tool_calls.format import Kind
from akunu_py.tool_calls.rules import Rules, json_value, literal
from akunu_py.tool_calls.schemas import kinds_of
from akunu_py.tool_calls.text_limits import limits_of
from akunu_py.tool_calls.values import kind_of
from akunu_py.values.messages import Tool

_UNSAFE = re.compile(r"[^\w$.-]")
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
        for number, key, part in rules.writable(self._tool, ordered, self._root, _UNSAFE):
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
