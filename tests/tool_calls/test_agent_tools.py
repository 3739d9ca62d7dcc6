"""Tools as agents of today and servers of the Model Context Protocol (MCP) offer them.

agent_tools.json has their schemas as they were sent, without descriptions; a schema that several
send is there once. Agents: Claude Code 2.1.332, Codex 0.171.0, opencode 1.18.33, Qwen Code 0.24.4,
Cline 3.0.65, pi 0.73.1. opencode sent those of MCP's servers filesystem, github, memory, everything.
The other servers (MIT licence) listed them: @notionhq/notion-mcp-server 2.5.2, firecrawl-mcp 3.26.0,
tavily-mcp 0.2.22, @brave/brave-search-mcp-server 2.1.4.
"""

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from grammar_walks import allows, compile_error, walk
from template_excerpts import format_of

from akunu_py.constraints import look_up
from akunu_py.tool_calls.enforceable import enforceable
from akunu_py.tool_calls.grammar import optional_calls, required_calls, unwritten
from akunu_py.tool_calls.parser import parse_calls
from akunu_py.tool_calls.schemas import alternatives, by_name, constants, kinds_of
from akunu_py.tool_calls.writing import write_calls
from akunu_py.values.messages import Tool, ToolCall

SENT = json.loads((Path(__file__).parent / "agent_tools.json").read_text())
# Branches that overlap, as far as llguidance knows; a format of its own; a pattern with a length.
LOST = {
    "qwen": ("tools.agent.parameters.properties.fork_turns.oneOf",),
    "notion": (
        "tools.API-post-page.parameters.properties.icon.format",
        "tools.API-post-page.parameters.properties.cover.format",
        "tools.API-post-page.parameters.$defs.parentRequest.oneOf",
    ),
    "firecrawl": (
        "tools.firecrawl_search.parameters.properties.includeDomains.items.pattern",
        "tools.firecrawl_search.parameters.properties.excludeDomains.items.pattern",
    ),
}
TEXT = 'def f(x):\n    return {"a": [x, "é"], \'b\': "<c>\\n"}  # 😀\n'
UUID = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
SPECIAL = (
    "12",
    "wf_abc-123",
    "https://a.test/b?c=d",
    UUID,
    "a.test",
    "2026-11-28",
    "2026-11-01to2026-11-28",
)
"""Texts of a given form: one of them fits each pattern and format."""


def example(schema, whole, root):
    """A value of a schema: with all properties, or those alone that must be there."""
    match schema:
        case {"$ref": place}:
            return example(look_up(place, root), whole, root)
        case {"enum": [*_, last]} | {"const": last}:
            return last
        case {"anyOf": [first, *_]} | {"oneOf": [first, *_]}:
            return example(first, whole, root)
        case {"type": [kind, *_]}:
            return example(schema | {"type": kind}, whole, root)
        case {"type": "object"}:
            properties = schema.get("properties", {})
            names = properties if whole else schema.get("required", ())
            return {
                name: example(properties[name], whole, root) for name in properties if name in names
            }
        case {"type": "array"}:
            return [example(schema.get("items", {}), whole, root)] * max(
                2, schema.get("minItems", 0)
            )
        case {"type": "boolean"}:
            return True
        case {"type": "integer" | "number"}:
            return min(max(7, schema.get("minimum", 7)), schema.get("maximum", 7))
        case {"pattern": pattern}:
            return next(text for text in SPECIAL if re.search(pattern, text))
        case {"format": name}:
            return {"uri": "https://a.test/b?c=d", "uuid": UUID, "json": "{}"}[name]
    return TEXT[: schema.get("maxLength")]


@pytest.mark.parametrize("agent", SENT)
@pytest.mark.parametrize(
    "name",
    ["hermes", "llama", "glm"]
    + [pytest.param(name, marks=pytest.mark.slow) for name in ("mistral", "qwen coder", "gpt-oss")],
)
def test_calls_of_agents(agent, name):
    format_ = format_of(name)
    known = enforceable([Tool(name, "", schema) for name, schema in SENT[agent].items()])
    assert sum((one.loosened for one in known), ()) == LOST.get(agent, ())
    tools = [one.tool for one in known]
    assert not unwritten(format_, tools)
    assert compile_error(optional_calls(format_, tools, {})) == ""
    for tool in tools:
        lark = required_calls(format_, [tool], {})
        for whole in (False, True):
            schema = SENT[agent][tool.name]
            arguments = example(schema, whole, schema)
            jsonschema.validate(arguments, schema)
            text = write_calls(format_, [ToolCall(tool.name, arguments)])
            [call], _ = parse_calls(format_, text, tools)
            assert (call.name, call.arguments) == (tool.name, arguments)
            assert allows(lark, text), text


LETTER = {"enum": ["a", "b"]}
X, Y = ({"properties": {name: LETTER}, "required": [name]} for name in "xy")
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
        {"properties": dict.fromkeys("axby", LETTER), "required": ["x", "y"]},
        [{"x": "a", "y": "b"}, dict.fromkeys("axby", "a")], [{}, {"x": "a"}, {"y": "a"}, dict.fromkeys("axb", "a")],
    ),
    "a reference": ({"$ref": "#/$defs/X", "$defs": {"X": X}}, [{"x": "a"}], [{}, {"y": "a"}]),
    "references in a row": (
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/definitions/B"}}, "definitions": {"B": X}},
        [{"x": "a"}], [{}, {"x": "a", "y": "a"}],
    ),
    "a reference elsewhere": (
        {"properties": {"x": LETTER, "far": {"$ref": "#/properties/x"}}, "required": ["far"]},
        [{"far": "a"}, {"x": "a", "far": "b"}], [{"x": "a"}],
    ),
    "allOf": ({"allOf": [X, {"properties": {"y": LETTER}}]}, [{"x": "a"}, {"x": "a", "y": "b"}], [{}, {"y": "b"}]),
    "required elsewhere": (
        {"allOf": [{"required": ["far"]}, {"properties": {"far": {"type": "integer"}}}]},
        [{"far": 5}], [{}, {"far": "x"}],
    ),
    "a name alone": (
        {"properties": {"x": LETTER}, "required": ["z"], "additionalProperties": {"type": "integer"}},
        [{"z": 1}, {"x": "a", "z": 1}], [{"x": "a"}, {"z": "a"}],
    ),
    "anyOf": ({"anyOf": [X, Y]}, [{"x": "a"}, {"y": "b"}], [{}, {"x": "a", "y": "b"}]),
    "oneOf with names of both": (
        {"properties": {"id": LETTER}, "oneOf": [MOVE, STOP]},
        [{"do": "move", "far": 2}, {"id": "a", "do": "stop"}],
        [{"do": "move"}, {"do": "go"}, {"id": "a"}, {"do": "stop", "far": 2}],
    ),
    "one of them required": (
        {"properties": {"x": LETTER, "y": LETTER}, "anyOf": [{"required": ["x"]}, {"required": ["y"]}]},
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
        {"properties": {"do": {"const": n}, f"p{n}": LETTER}, "required": ["do", f"p{n}"]}
        for n in range(17)
    ]
    assert len(alternatives({"anyOf": parts[:16]})) == 16
    [one] = alternatives({"anyOf": parts, "properties": {"id": LETTER}, "required": ["id"]})
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
    defs[names[-1]] = {"type": "object", "properties": {"x": LETTER}}
    root = {"$ref": "#/$defs/d0", "$defs": defs}
    assert "object" in kinds_of(root, root)
    assert constants(root, root) is None
    assert list(by_name(root)["properties"]) == ["x"]
