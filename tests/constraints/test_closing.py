"""Objects that say nothing of other members: which a reply may have."""

import json

import jsonschema
import pytest
from matched import ids_of, tiny

from akunu_py.constraints import make_matcher
from akunu_py.constraints.grammar import close_objects
from akunu_py.values.constraint import Constraint

ONE = {"type": "integer"}
A, B = ({"properties": {name: ONE}, "required": [name]} for name in "ab")


def allows(schema, values):
    """Return whether each value may be a whole reply in the form of a schema."""
    here = make_matcher(Constraint.json_schema(schema), tiny()[1])
    found = []
    for value in values:
        ids = ids_of(json.dumps(value))
        allowed = here.validate(ids) == len(ids)
        if allowed:
            here.advance(ids)
            allowed = here.may_end
            here.rollback(len(ids))
        found.append(allowed)
    return found


# A schema, values that it allows, and values that it does not. What llama.cpp's converter and
# outlines-core make of those marked with * is the same.
CASES = {
    "*properties": (A, [{"a": 1}], [{"a": 1, "z": 1}, {}]),
    "*inside": ({"properties": {"x": {"type": "array", "items": A}}}, [{"x": [{"a": 1}]}], [{"x": [{"a": 1, "z": 1}]}]),
    "*no properties": ({"type": "object"}, [{}, {"z": {"y": 1}}], [1]),
    "*none of them": ({"type": "object", "properties": {}}, [{}], [{"z": 1}]),
    "*a reference": ({"$ref": "#/$defs/A", "$defs": {"A": A}}, [{"a": 1}], [{"a": 1, "z": 1}]),
    "*any of": ({"anyOf": [A, B]}, [{"a": 1}, {"b": 1}], [{"a": 1, "b": 1}, {"a": 1, "z": 1}]),
    "*a map": ({"type": "object", "additionalProperties": ONE}, [{}, {"z": 1}], [{"z": "a"}]),
    "opened": ({**A, "additionalProperties": True}, [{"a": 1}, {"a": 1, "z": "a"}], [{"z": 1}]),
    "opened inside": ({"properties": {"x": {**A, "additionalProperties": {}}}}, [{"x": {"a": 1, "z": 1}}], [{"z": 1}]),
    "patterns": ({"patternProperties": {"^x": ONE}}, [{}, {"x1": 1}], [{"z": 1}, {"x": "a"}]),
    "patterns and names": ({**A, "patternProperties": {"^x": ONE}}, [{"a": 1, "x1": 1}], [{"a": 1, "z": 1}]),
    "all of": ({"allOf": [A, B]}, [{"a": 1, "b": 1}], [{"a": 1}, {"a": 1, "b": 1, "z": 1}]),
    "all of one": ({"allOf": [{"$ref": "#/$defs/A"}, {"description": "a"}], "$defs": {"A": A}}, [{"a": 1}], [{"a": 1, "z": 1}]),
    "all of one, itself": (
        {"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"a": {"allOf": [{"$ref": "#/$defs/A"}]}}}}},
        [{}, {"a": {"a": {}}}], [{"a": {"z": 1}}],
    ),
    "in their order": ({"allOf": [B, A]}, [{"b": 1, "a": 1}], [{"a": 1, "b": 1}]),
    "both ways": (
        {"properties": {"x": {"$ref": "#/$defs/A"}, "y": {"allOf": [{"$ref": "#/$defs/A"}, B]}}, "$defs": {"A": A}},
        [{"x": {"a": 1}, "y": {"a": 1, "b": 1}}], [{"x": {"a": 1, "b": 1}}, {"y": {"a": 1, "b": 1, "z": 1}}],
    ),
    "itself": (
        {"properties": {"a": ONE, "x": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["a"]},
        [{"a": 1, "x": {"a": 1, "x": None}}], [{"a": 1, "x": {"a": 1, "z": 1}}],
    ),
    "required alone": ({**A, "required": ["a", "b"]}, [{"a": 1, "b": "c"}], [{"a": 1}, {"a": 1, "b": 1, "z": 1}]),
    "one of them required": (
        {"properties": {"a": ONE, "b": ONE}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        [{"a": 1}, {"b": 1}, {"a": 1, "b": 1}], [{}, {"a": 1, "z": 1}],
    ),
    "more than it names": ({**A, "minProperties": 2}, [{"a": 1, "z": 1}], [{"a": 1}]),
    "a place with signs": ({"$ref": "#/$defs/A~1%20b", "$defs": {"A/ b": A}}, [{"a": 1}], [{"a": 1, "z": 1}]),
    "a place elsewhere": ({"$ref": "#/components/A", "components": {"A": A}}, [{"a": 1}], [{"a": 1, "z": 1}]),
    "a document within": ({"properties": {"x": {"$id": "https://a.example/x", **A}}}, [{"x": {"a": 1, "z": 1}}], [{"z": 1}]),
    "references of a document within": (
        {
            "properties": {"x": {"$id": "https://a.example/x", "$ref": "#/$defs/A", "$defs": {"A": ONE}}},
            "$defs": {"A": {"type": "string"}},
        },
        [{"x": 1}], [{"x": "a"}],
    ),
    "a property called properties": (
        {"properties": {"properties": {"type": "object"}, "required": ONE}},
        [{"properties": {"z": 1}, "required": 1}], [{"z": 1}],
    ),
    "values": ({"properties": {"a": {"const": {"properties": {"b": 1}}}}}, [{"a": {"properties": {"b": 1}}}], [{"a": {"properties": {"b": 1, "z": 1}}}]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_objects_have_the_members_that_their_schema_mentions(name):
    schema, allowed, refused = CASES[name]
    for value in allowed:
        jsonschema.Draft202012Validator(schema).validate(value)
    assert allows(schema, allowed) == [True] * len(allowed)
    assert allows(schema, refused) == [False] * len(refused)


def test_a_long_chain_of_references_is_closed():
    """The longest that a schema may have: each names a member more."""
    chain = {f"D{i}": {"properties": {f"p{i}": {"$ref": f"#/$defs/D{i + 1}"}}} for i in range(499)}
    schema = {"$ref": "#/$defs/D0", "$defs": {**chain, "D499": A}}
    closed = close_objects(schema)["$defs"]
    assert sum(one.get("additionalProperties") is False for one in closed.values()) == 500
    assert allows(schema, [{"p0": {"p1": {}}}, {"p0": {"p0": {}}}]) == [True, False]
