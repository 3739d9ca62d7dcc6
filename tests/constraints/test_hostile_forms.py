"""Forms from strangers: too large, too deep, too many ways; refused with a message, never a hang or a crash."""

import pytest
from matched import tiny

from akunu_py.constraints import inline_schema, make_matcher
from akunu_py.system.errors import ConfigError
from akunu_py.values.constraint import Constraint


def nested(levels):
    schema = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def unions(levels):
    schema = {"type": "integer"}
    for _ in range(levels):
        schema = {
            "anyOf": [{"type": "object", "properties": {name: schema}} for name in ("a", "b")]
        }
    return schema


MANY_PARTS = {
    "allOf": [
        {"anyOf": [{"properties": {f"a{i}": {"const": j}}} for j in range(2)]} for i in range(30)
    ]
}
REFERENCES = {"$defs": {"a": {}}, "anyOf": [{"$ref": "#/$defs/a"}] * 1501}
MANY_PROPERTIES = {"properties": {str(number): {} for number in range(501)}}


def rules(count):
    return "start: a0\n" + "".join(f"a{i}: a{i + 1}\n" for i in range(count)) + f'a{count}: "a"'


def inline_properties(count):
    return 'start: %json {"properties": {' + ", ".join(f'"{i}": {{}}' for i in range(count)) + "}}"


REFUSED = {
    "1 MB": (lambda: Constraint.json_schema({"enum": ["x" * 2**20]}), "json_schema has .* characters"),
    "1 MB of JSON": (lambda: Constraint.json_schema('{"const": "' + "x" * 2**20), "json_schema has .* characters"),
    "65 levels": (lambda: Constraint.json_schema(nested(65)), "64 levels"),
    "10,000 levels": (lambda: Constraint.json_schema(nested(10_000)), "64 levels"),
    "10,000 levels of JSON": (lambda: Constraint.json_schema("[" * 10_000), "json_schema"),
    "10,000 levels in a grammar": (
        lambda: Constraint.grammar("start: %json " + '{"items":' * 10_000 + "{}" + "}" * 10_000), "grammar",
    ),
    "a product of unions": (lambda: Constraint.json_schema(MANY_PARTS), "json_schema: it is too complex .schema too large."),
    "doubling unions": (lambda: Constraint.json_schema(unions(14)), "json_schema has .* characters"),
    "many references": (lambda: Constraint.json_schema(REFERENCES), "json_schema has 1501 \\$ref"),
    "many properties": (lambda: Constraint.json_schema(MANY_PROPERTIES), "json_schema has an object of 501 keys"),
    "many properties in a grammar": (lambda: Constraint.grammar(inline_properties(5000)), "grammar has 5001 keys of JSON"),
    "an enum of 100,000": (lambda: Constraint.json_schema({"enum": list(range(100_000))}), "json_schema has .* characters"),
    "100,000 choices": (lambda: Constraint.choices(map(str, range(100_000))), "choices has 100000 texts"),
    "a chain of rules": (lambda: Constraint.grammar(rules(3000)), "grammar has 300. rules"),
    "an expression that explodes": (lambda: Constraint.regex(r"(\p{L}|\d|[^a-z])*" * 500), "regex: it is too complex"),
    "nested groups": (lambda: Constraint.regex("(" * 5000 + "a" + ")" * 5000), "regex: "),
    "nested brackets": (lambda: Constraint.grammar("start: " + "(" * 5000 + '"a"' + ")" * 5000), "grammar: "),
    "no JSON value": (lambda: Constraint.json_schema({"const": object()}), "json_schema is not JSON"),
    "not a number": (lambda: Constraint.json_schema({"const": float("nan")}), "json_schema is not JSON"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_form_is_refused(name):
    make, message = REFUSED[name]
    with pytest.raises(ConfigError, match=message):
        make_matcher(make(), tiny()[1])


@pytest.mark.parametrize(
    "grammar",
    [
        'start: start "a" | "a"',
        'start: a\na: b "x" | "y"\nb: a | b b | "z"',
        'start: s\ns: s s | s s s | "a" |',
    ],
)
def test_left_recursion_and_ambiguity_are_followed(grammar):
    assert make_matcher(Constraint.grammar(grammar), tiny()[1]).mask(()).any()


def test_what_is_just_allowed_is_compiled():
    for form in (
        Constraint.json_schema(nested(30)),
        Constraint.regex("(a|b)*a(a|b){20}"),
        Constraint.grammar("start: " + inline_schema(unions(5))),
        Constraint.json_schema({"type": "string", "maxLength": 10**6}),
        Constraint.json_schema({"enum": list(map(str, range(10_000)))}),
        Constraint.regex("(ab|cd){0,1000000}"),
    ):
        make_matcher(form, tiny()[1])
