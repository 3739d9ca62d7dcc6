"""Tools as agents of today and servers of the Model Context Protocol (MCP) offer them.

agent_tools.json has their schemas as they were sent, without descriptions; a schema that several
send is there once. Agents: Claude Code 2.1.332, Codex 0.171.0, opencode 1.18.33, Qwen Code 0.24.4,
Cline 3.0.65, pi 0.73.1. opencode sent those of MCP's servers filesystem, github, memory, everything.
The other servers (MIT licence) listed them: @notionhq/notion-mcp-server 2.5.2, firecrawl-mcp 3.26.0,
tavily-mcp 0.2.22, @brave/brave-search-mcp-server 2.1.4.
"""

import json
import re
from pathlib import Path

import jsonschema
import pytest
from grammar_walks import allows, compile_error
from template_excerpts import format_of

from akunu_py.constraints import look_up
from akunu_py.tool_calls.enforceable import enforceable
from akunu_py.tool_calls.grammar import optional_calls, required_calls, unwritten
from akunu_py.tool_calls.parser import parse_calls
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

FORMATS = {"uri": "https://a.test/b?c=d", "uuid": UUID, "json": "{}"}


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
            return FORMATS[name]
    return TEXT[: schema.get("maxLength")]


@pytest.mark.parametrize("agent", SENT)
@pytest.mark.parametrize(
    "name",
    ["hermes", "llama", "glm"]
    + [pytest.param(name, marks=pytest.mark.slow) for name in ("mistral", "qwen coder", "gpt-oss")],
)
def test_calls_of_agents(agent, name):
    format_ = format_of(name)
    given = [Tool(name, "", schema) for name, schema in SENT[agent].items()]
    known = enforceable(given)
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
