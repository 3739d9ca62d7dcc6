"""Schemas as MCP servers send them: what a grammar cannot enforce is loosened, and nothing else."""

from dataclasses import replace

import jsonschema
import pytest
from grammar_walks import allows
from hypothesis import given
from hypothesis import strategies as st
from template_excerpts import format_of

from akunu_py.constraints.trial import TrialResult
from akunu_py.system.errors import ConfigError
from akunu_py.tool_calls import enforceable as of_tools
from akunu_py.tool_calls.enforceable import enforceable
from akunu_py.tool_calls.grammar import required_calls
from akunu_py.tool_calls.writing import write_calls
from akunu_py.values.messages import Tool, ToolCall

TEXT = {"type": "string"}
OBJECTS = [{"type": "object", "properties": {name: TEXT}} for name in "ab"]

# Schema of an argument, the words that are loosened, and what is left.
LOOSENED = {
    "zod's record": (
        {"type": "object", "propertyNames": {"pattern": "^a"}, "additionalProperties": TEXT},
        ["propertyNames"], {"type": "object", "additionalProperties": TEXT},
    ),
    "zod's e-mail": (
        {"type": "string", "format": "email", "pattern": r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)@x$"},
        ["pattern"], {"type": "string", "format": "email"},
    ),
    "uniqueItems": ({"type": "array", "uniqueItems": True}, ["uniqueItems"], {"type": "array"}),
    "not": ({"type": "string", "not": {"const": ""}}, ["not"], TEXT),
    "if": ({"type": "string", "if": TEXT, "then": {"minLength": 2}, "else": {}}, ["if", "then", "else"], TEXT),
    "contains": ({"type": "array", "contains": TEXT, "minContains": 1}, ["contains", "minContains"], {"type": "array"}),
    "dependentRequired": ({"type": "object", "dependentRequired": {"a": ["b"]}}, ["dependentRequired"], {"type": "object"}),
    "dependencies": ({"type": "object", "dependencies": {"a": ["b"]}}, ["dependencies"], {"type": "object"}),
    "unevaluatedProperties": ({"type": "object", "unevaluatedProperties": False}, ["unevaluatedProperties"], {"type": "object"}),
    "oneOf that overlaps": ({"oneOf": OBJECTS}, ["oneOf"], {"anyOf": OBJECTS}),
    "an empty enum": ({"type": "string", "enum": []}, ["enum"], TEXT),
    "an unknown type": ({"type": "any", "minLength": 1}, ["type"], {"minLength": 1}),
    "no types": ({"type": []}, ["type"], {}),
    "a place that is not there": ({"$ref": "#/$defs/none"}, ["$ref"], {}),
    "another document": ({"$ref": "https://example.com/s.json"}, ["$ref"], {}),
    "an anchor": ({"$ref": "#other"}, ["$ref"], {}),
    "a text for a number": ({"type": "string", "minLength": "3"}, ["minLength"], TEXT),
    "a number for a text": ({"type": "string", "pattern": 5}, ["pattern"], TEXT),
    "a broken expression": ({"type": "string", "pattern": "("}, ["pattern"], TEXT),
    "a reference back": ({"type": "string", "pattern": r"(a)\1"}, ["pattern"], TEXT),
    "a border of words": ({"type": "string", "pattern": r"\bfoo\b"}, ["pattern"], TEXT),
    "draft 3": ({"type": "string", "required": True}, ["required"], TEXT),
    "no object of properties": ({"type": "object", "properties": "x"}, ["properties"], {"type": "object"}),
    "no list": ({"anyOf": "x"}, ["anyOf"], {}),
    "a name that is forbidden": (
        {"type": "object", "properties": {"a": TEXT}, "required": ["a", "b"], "additionalProperties": False},
        ["required"],
        {"type": "object", "properties": {"a": TEXT}, "required": ["a"], "additionalProperties": False},
    ),
    "lengths that contradict": ({"type": "string", "minLength": 5, "maxLength": 2}, ["maxLength"], {"type": "string", "minLength": 5}),
    "types that contradict": ({"type": "string", "allOf": [{"type": "integer"}]}, ["allOf"], TEXT),
    "names of a part": (
        {"type": "object", "properties": {"a": TEXT}, "allOf": ["b"]}, ["allOf[0]"],
        {"type": "object", "properties": {"a": TEXT}, "allOf": [{}], "additionalProperties": {}},
    ),
    "one pattern of many": (
        {"type": "object", "patternProperties": {"^(?=x)": TEXT}, "properties": {"a": {"type": "integer"}}},
        ["patternProperties"],
        {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {}},
    ),
    **{
        f"format {name}": ({"type": "string", "format": name}, ["format"], TEXT)
        for name in ("password", "binary", "byte", "uri-reference", "uri-template", "regex", "url", "color", "x")
    },
}  # fmt: skip

# What says nothing, or the same in other words.
KEPT = {
    "nulls": ({"type": "object", "required": None, "properties": None, "enum": None, "items": None, "anyOf": None}, {"type": "object"}),
    "OpenAPI's types": ({"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}, {"type": "object", "properties": {"a": TEXT}}),
    "nullable": ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
    "nullable choices": ({"type": "string", "nullable": True, "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
    "null alone": ({"const": None}, {"enum": [None]}),
    "formats of numbers": ({"type": "integer", "format": "int32"}, {"type": "integer"}),
    "notes": ({"type": "string", "title": "t", "x-order": 1, "$comment": "c", "default": None, "examples": [None]}, TEXT),
    "an odd dialect": ({"$schema": "foo", "$id": "http://x", "type": "string"}, TEXT),
    "items that need not differ": ({"type": "array", "uniqueItems": False}, {"type": "array"}),
    "a whole float": ({"type": "string", "minLength": 1.0}, {"type": "string", "minLength": 1}),
}  # fmt: skip


def enforced(tool):
    (found,) = enforceable([tool])
    return found


def tool(schema, **options):
    properties = {"x": schema, "y": {"type": "integer"}}
    parameters = {"type": "object", "properties": properties, "required": ["x"]}
    return Tool("search", "", parameters, **options)


@pytest.mark.parametrize("name", LOOSENED)
def test_parts_that_cannot_be_enforced_are_named(name):
    schema, words, left = LOOSENED[name]
    found = enforced(tool(schema))
    assert found.loosened == tuple(f"tools.search.parameters.properties.x.{word}" for word in words)
    assert found.tool.parameters["properties"] == {"x": left, "y": {"type": "integer"}}
    assert found.tool.parameters["required"] == ["x"]
    with pytest.raises(ConfigError, match="the tool 'search' is strict") as refused:
        enforced(tool(schema, strict=True))
    assert f"x.{words[0]}" in str(refused.value)


@pytest.mark.parametrize("name", KEPT)
def test_what_limits_nothing_is_left_out_silently(name):
    schema, left = KEPT[name]
    found = enforced(tool(schema, strict=True))
    assert found.loosened == ()
    assert found.tool.parameters["properties"]["x"] == left


@pytest.mark.parametrize("parameters", [{"type": "OBJECT"}, {"type": "any"}, {"properties": None}, {"type": None}, {"properties": []}, {"oneOf": [TEXT, TEXT]}, {"$ref": "#"}, {"const": None}, []])  # fmt: skip
def test_arguments_are_an_object_in_any_case(parameters):
    found = enforced(Tool("t", "", parameters)).tool.parameters
    assert found["type"] == "object"
    jsonschema.validate({}, found)


@pytest.mark.parametrize(
    ("parameters", "lost"),
    [
        ({"properties": ["path"]}, ".properties"),
        ({"properties": "path"}, ".properties"),
        ({"$ref": ["path"]}, ".$ref"),
        ({"$ref": "#/$defs/none"}, ".$ref"),
        ({"anyOf": {"path": TEXT}}, ".anyOf"),
        ({"allOf": [{"properties": ["path"]}]}, ".allOf[0].properties"),
        ({"allOf": ["path"]}, ".allOf[0]"),
        ({"patternProperties": {"^(?=p)": TEXT}}, ".patternProperties"),
    ],
)
@pytest.mark.parametrize("name", ["hermes", "qwen coder", "lfm", "gemma"])
def test_names_that_are_lost_may_be_any(name, parameters, lost):
    """A call without arguments would be the only one otherwise."""
    tool = Tool("t", "", parameters)
    found = enforced(tool)
    assert found.loosened == (f"tools.t.parameters{lost}",)
    lark = required_calls(format_of(name), [found.tool], {})
    for arguments in ({}, {"path": "a"}):
        assert allows(lark, write_calls(format_of(name), [ToolCall("t", arguments)]))
    with pytest.raises(ConfigError, match="the tool 't' is strict"):
        enforced(replace(tool, strict=True))


def test_what_is_too_expensive_is_not_enforced_at_all(monkeypatch):
    """Nor is the part at fault looked for, which would cost as much again."""
    asked = []

    def too_expensive(schema):
        asked.append(schema)
        return TrialResult("", 0.25, "it is too complex", late=True)

    monkeypatch.setattr(of_tools, "try_schema", too_expensive)
    found = enforced(tool({"allOf": [{"pattern": "a.*"}]}))
    assert found.tool.parameters == {"type": "object", "additionalProperties": {}}
    assert found.loosened == ("tools.search.parameters",)
    assert len(asked) == 1


@pytest.mark.parametrize("error", ["", "it has a part that is not there"])
def test_the_tools_of_a_request_are_looked_at_for_a_while(monkeypatch, error):
    """Those behind take any arguments, and are named; again at each call."""
    asked = []

    def slow(schema):
        asked.append(schema)
        return TrialResult(error, 0.2)

    monkeypatch.setattr(of_tools, "try_schema", slow)
    tools = [
        Tool(f"t{i}", "", {"properties": {f"{error}{i}": {"type": "string"}}}) for i in range(100)
    ]
    found = enforceable(tools)
    assert 0.2 * len(asked) < 3
    assert found[-1].tool.parameters == {"type": "object", "additionalProperties": {}}
    assert found[-1].loosened == ("tools.t99.parameters",)
    count = len(asked)
    assert enforceable(tools) == found
    assert len(asked) == count
    with pytest.raises(ConfigError, match="the tool 't99' is strict"):
        enforceable([*tools[:-1], replace(tools[-1], strict=True)])


def test_a_schema_of_a_megabyte_is_not_looked_at():
    assert enforced(tool({"enum": ["x" * 2**20]})).loosened == ("tools.search.parameters",)


WORDS = st.sampled_from(
    ["type", "enum", "required", "properties", "items", "anyOf", "oneOf", "allOf", "$ref", "pattern", "format",
     "minLength", "maxItems", "minimum", "multipleOf", "const", "additionalProperties", "not", "prefixItems",
     "patternProperties", "exclusiveMinimum", "nullable", "$defs", "uniqueItems"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.sampled_from(["string", "object", "a", "#", "("]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(WORDS, VALUES, max_size=4))
def test_no_schema_refuses_the_request(schema):
    """Whatever it is: a grammar of it compiles, and what it enforces allows some arguments."""
    found = enforced(tool(schema)).tool.parameters
    assert found["type"] == "object"
    assert enforced(Tool("t", "", found)).loosened == ()
