"""Tools as agents of today and servers of the Model Context Protocol (MCP) offer them.

agent_tools.json has their schemas as they were sent, without descriptions; a schema that several
send is there once. Agents: Claude Code 2.1.332, Codex 0.171.0, opencode 1.18.33, Qwen Code 0.24.4,
Cline 3.0.65, pi 0.73.1. opencode sent those of MCP's servers filesystem, github, memory, everything.
"""

import json
from pathlib import Path

import jsonschema
import pytest
from grammar_walks import allows, compile_error
from template_excerpts import format_of

from akunu_py.tool_calls.enforceable import enforceable
from akunu_py.tool_calls.grammar import optional_calls, required_calls, unwritten
from akunu_py.tool_calls.parser import parse_calls
from akunu_py.tool_calls.writing import write_calls
from akunu_py.values.messages import Tool, ToolCall

SENT = json.loads((Path(__file__).parent / "agent_tools.json").read_text())
# The branches of its schema overlap, as far as llguidance knows.
LOST = {"qwen": ("tools.agent.parameters.properties.fork_turns.oneOf",)}
TEXT = 'def f(x):\n    return {"a": [x, "é"], \'b\': "<c>\\n"}  # 😀\n'
SPECIAL = {"^[1-9][0-9]*$": "12", "^wf_[a-z0-9-]{6,}$": "wf_abc-123", "uri": "https://a.test/b?c=d"}


def example(schema, whole):
    """A value of a schema: with all properties, or those alone that must be there."""
    match schema:
        case {"enum": [*_, last]}:
            return last
        case {"anyOf": [first, *_]} | {"oneOf": [first, *_]}:
            return example(first, whole)
        case {"type": [kind, *_]}:
            return example(schema | {"type": kind}, whole)
        case {"type": "object"}:
            properties = schema.get("properties", {})
            names = properties if whole else schema.get("required", ())
            return {name: example(properties[name], whole) for name in properties if name in names}
        case {"type": "array"}:
            return [example(schema.get("items", {}), whole)] * max(2, schema.get("minItems", 0))
        case {"type": "boolean"}:
            return True
        case {"type": "integer" | "number"}:
            return min(max(7, schema.get("minimum", 7)), schema.get("maximum", 7))
        case {"pattern": special} | {"format": special}:
            return SPECIAL[special]
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
            arguments = example(SENT[agent][tool.name], whole)
            jsonschema.validate(arguments, SENT[agent][tool.name])
            text = write_calls(format_, [ToolCall(tool.name, arguments)])
            [call], _ = parse_calls(format_, text, tools)
            assert (call.name, call.arguments) == (tool.name, arguments)
            assert allows(lark, text), text
