"""What a schema says of arguments where it says it elsewhere: in references and combined schemas."""

import itertools
import json
from dataclasses import replace

import jsonschema
import pytest
from grammar_walks import allows, walk
from template_excerpts import format_of

from akunu_py.tool_calls.enforceable import enforceable
from akunu_py.tool_calls.grammar import required_calls
from akunu_py.tool_calls.parser import parse_calls
from akunu_py.tool_calls.schemas import alternatives, by_name, constants, kinds_of
from akunu_py.tool_calls.writing import write_calls
from akunu_py.values.messages import Tool, ToolCall

TEXT = {"enum": ["a", "b"]}
X, Y = ({"properties": {name: TEXT}, "required": [name]} for name in "xy")
MOVE, STOP = (
    {
        "properties": {"do": {"const": "move"}, "far": {"type": "integer"}},
        "required": ["do", "far"],
    },
    {"properties": {"do": {"const": "stop"}}, "required": ["do"]},
)

# A schema of arguments, arguments that it allows, and others.
SCHEMAS = {
    "required": (
        {"properties": dict.fromkeys("axby", TEXT), "required": ["x", "y"]},
        [{"x": "a", "y": "b"}, dict.fromkeys("axby", "a")], [{}, {"x": "a"}, {"y": "a"}, dict.fromkeys("axb", "a")],
    ),
    "a reference": ({"$ref": "#/$defs/X", "$defs": {"X": X}}, [{"x": "a"}], [{}, {"y": "a"}]),
    "references in a row": (
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/definitions/B"}}, "definitions": {"B": X}},
        [{"x": "a"}], [{}, {"x": "a", "y": "a"}],
    ),
    "a reference elsewhere": (
        {"properties": {"x": TEXT, "far": {"$ref": "#/properties/x"}}, "required": ["far"]},
        [{"far": "a"}, {"x": "a", "far": "b"}], [{"x": "a"}],
    ),
    "allOf": ({"allOf": [X, {"properties": {"y": TEXT}}]}, [{"x": "a"}, {"x": "a", "y": "b"}], [{}, {"y": "b"}]),
    "required elsewhere": (
        {"allOf": [{"required": ["far"]}, {"properties": {"far": {"type": "integer"}}}]},
        [{"far": 5}], [{}, {"far": "x"}],
    ),
    "a name alone": (
        {"properties": {"x": TEXT}, "required": ["z"], "additionalProperties": {"type": "integer"}},
        [{"z": 1}, {"x": "a", "z": 1}], [{"x": "a"}, {"z": "a"}],
    ),
    "anyOf": ({"anyOf": [X, Y]}, [{"x": "a"}, {"y": "b"}], [{}, {"x": "a", "y": "b"}]),
    "oneOf with names of both": (
        {"properties": {"id": TEXT}, "oneOf": [MOVE, STOP]},
        [{"do": "move", "far": 2}, {"id": "a", "do": "stop"}],
        [{"do": "move"}, {"do": "go"}, {"id": "a"}, {"do": "stop", "far": 2}],
    ),
    "one of them required": (
        {"properties": {"x": TEXT, "y": TEXT}, "anyOf": [{"required": ["x"]}, {"required": ["y"]}]},
        [{"x": "a"}, {"y": "a"}, {"x": "a", "y": "b"}], [{}],
    ),
    "all of any": (
        {"allOf": [{"anyOf": [X, {"$ref": "#/$defs/Y"}]}, {"anyOf": [MOVE, STOP]}], "$defs": {"Y": Y}},
        [{"y": "a", "do": "stop"}, {"x": "a", "do": "move", "far": 2}], [{"x": "a"}, {"do": "stop"}],
    ),
    "null": ({"anyOf": [X, {"type": "null"}]}, [{"x": "a"}], [{}]),
    "any further names": (
        {**X, "additionalProperties": {"type": "integer"}}, [{"x": "a"}, {"x": "a", "z": 1}],
        [{"z": 1}, {"x": "a", "z": "a"}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", SCHEMAS)
@pytest.mark.parametrize("name", ["hermes", "qwen coder", "ling", "lfm", "gemma"])
def test_calls_follow_references_and_combined_schemas(name, kind):
    schema, allowed, refused = SCHEMAS[kind]
    (found,) = enforceable([Tool("t", "", schema)])
    assert found.loosened == ()
    format_ = format_of(name)
    lark = required_calls(format_, [found.tool], {})

    def allows_call(arguments):
        orders = map(dict, itertools.permutations(arguments.items()))
        return any(allows(lark, write_calls(format_, [ToolCall("t", one)])) for one in orders)

    for arguments in allowed:
        jsonschema.validate(arguments, schema)
        assert allows_call(arguments), arguments
    for arguments in refused:
        assert not allows_call(arguments), arguments
    read = replace(found.tool, parameters=by_name(found.tool.parameters))
    texts = [text for seed in range(2) if (text := walk(lark, seed)) is not None]
    for call in (call for text in texts for call in parse_calls(format_, text, [read])[0]):
        jsonschema.validate(json.loads(json.dumps(call.arguments)), schema)
    assert texts


def test_many_alternatives_become_one():
    parts = [
        {"properties": {"do": {"const": n}, f"p{n}": TEXT}, "required": ["do", f"p{n}"]}
        for n in range(17)
    ]
    assert len(alternatives({"anyOf": parts[:16]})) == 16
    [one] = alternatives({"anyOf": parts, "properties": {"id": TEXT}, "required": ["id"]})
    assert list(one["properties"]) == ["id", "do", *(f"p{n}" for n in range(17))]
    assert one["required"] == ["id", "do"]
    assert constants(one["properties"]["do"], one) == list(range(17))


@pytest.mark.parametrize("name", ["qwen coder", "lfm", "gemma"])
def test_alternatives_that_need_many_rules_become_one(name):
    """Still with the types of all names, and of a size that leaves room for other tools."""
    long = {"enum": [f"value {n}" for n in range(300)]}
    base = {f"n{n:02}": {"$ref": "#/$defs/long"} for n in range(9)}
    parts = [{"properties": {"do": {"const": f"do {n}"}}, "required": ["do"]} for n in range(12)]
    schema = {"properties": base, "anyOf": parts, "required": ["n00"], "$defs": {"long": long}}
    format_ = format_of(name)
    lark = required_calls(format_, [Tool("t", "", schema)], {})
    assert len(lark) < 150_000

    def allows_call(arguments):
        return allows(lark, write_calls(format_, [ToolCall("t", arguments)]))

    assert allows_call({"n00": "value 7", "do": "do 3"}) or allows_call(
        {"do": "do 3", "n00": "value 7"}
    )
    for wrong in (
        {"n00": "value 7"},
        {"do": "do 3"},
        {"n00": "value 7", "do": "do 99"},
        {"n00": "x", "do": "do 3"},
    ):
        assert not allows_call(wrong)


def test_constants_and_types_behind_references():
    root = {
        "$defs": {
            "a": {"enum": ["x", 1]},
            "b": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]},
        }
    }
    b = {"$ref": "#/$defs/b"}
    assert constants(b, root) == ["x", 1, None]
    assert kinds_of(b, root) == ("string", "number", "null")
    assert constants({"anyOf": [b, {"type": "string"}]}, root) is None
    assert kinds_of({"allOf": [b, {"type": ["string", "array"]}]}, root) == ("string",)


@pytest.mark.parametrize("word", ["anyOf", "oneOf", "allOf"])
def test_each_reference_is_followed_once(word):
    """Each of 30 schemas refers to all those behind it; there are 2^28 ways through them."""
    names = [f"d{n}" for n in range(30)]
    to = {name: {"$ref": f"#/$defs/{name}"} for name in names}
    defs = {name: {word: [to[later] for later in names[n + 1 :]]} for n, name in enumerate(names)}
    defs[names[-1]] = {"type": "object", "properties": {"x": TEXT}}
    root = {"$ref": "#/$defs/d0", "$defs": defs}
    assert "object" in kinds_of(root, root)
    assert constants(root, root) is None
    assert list(by_name(root)["properties"]) == ["x"]
