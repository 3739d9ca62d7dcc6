"""From the marker on a call cannot fail to parse: what a grammar allows, its parser reads."""

import json
import re

import jsonschema
import pytest
from grammar_walks import allows, compile_error, walk
from template_excerpts import EXCERPTS, format_of

from akunu_py.server.custom_tools import custom_tool
from akunu_py.server.errors import RequestError
from akunu_py.system.errors import ConfigError
from akunu_py.tool_calls.grammar import (
    MOST_TOOLS,
    goes_with_answers,
    optional_calls,
    required_calls,
)
from akunu_py.tool_calls.known import HARMONY
from akunu_py.tool_calls.parser import parse_calls
from akunu_py.tool_calls.writing import write_calls
from akunu_py.values.constraint import Constraint
from akunu_py.values.messages import Tool, ToolCall

TOOLS = (
    Tool(
        "get",
        "All kinds of arguments",
        {
            "type": "object",
            "properties": {
                "place": {"type": "string"},
                "n": {"type": "integer"},
                "unit": {"enum": ["c", "f"]},
                "maybe": {"type": ["string", "null"]},
                "sure": {"type": ["boolean", "null"]},
                "list": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
                "inner": {
                    "type": "object",
                    "properties": {"x": {"$ref": "#/$defs/q"}},
                    "additionalProperties": False,
                },
            },
            "required": ["place"],
            "$defs": {"q": {"type": "number"}},
        },
    ),
    Tool("get_now", "Without arguments"),
    Tool("a.b-c", "One argument", {"properties": {"t": {"type": "string"}}}),
)
# One of each kind of format; llama has no marker.
KINDS = ("hermes", "llama", "qwen coder", "lfm", "gpt-oss", "gemma")
EACH_FORMAT = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in KINDS else pytest.mark.slow) for name in EXCERPTS],
)
EACH_WALK = pytest.mark.parametrize(
    "seeds", [range(12), pytest.param(range(12, 25), marks=pytest.mark.slow)], ids=["few", "many"]
)


def schema_of(name):
    [tool] = [tool for tool in TOOLS if tool.name == name]
    return {"additionalProperties": False, **tool.parameters}


@pytest.mark.fast_every(2)
@EACH_WALK
@EACH_FORMAT
def test_what_is_allowed_is_read(name, seeds):
    format_ = format_of(name)
    lark = required_calls(format_, TOOLS, {})
    found = [text for seed in seeds if (text := walk(lark, seed)) is not None]
    assert found
    for text in found:
        calls, rest = parse_calls(format_, text, TOOLS)
        assert calls, text
        assert format_ is HARMONY or not rest.strip(), text
        assert format_.several or len(calls) == 1
        for call in calls:
            jsonschema.validate(call.arguments, schema_of(call.name))


@EACH_FORMAT
def test_only_the_whole_head_of_a_call_binds(name):
    """A marker in prose, in code or before another name stays text, and so it does for the parser."""
    format_ = format_of(name)
    lark = optional_calls(format_, TOOLS, {})
    assert not compile_error(lark)
    if format_ is HARMONY:
        assert allows(
            lark,
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>So.",
        )
        assert not allows(lark, "<|channel|>commentary to=functions.get_now<|message|>")
        return
    marker, opening, after = format_.marker, format_.openings[0].lstrip(), format_.after_names[0]
    opening, after = (re.sub("[\ue000\ue001]", "1", text) for text in (opening, after))
    call = write_calls(format_, [ToolCall("get_now", {})])
    rest = "" if format_.only_first else f" so:\n{call}"
    texts = [
        "Hello there",
        f"The tag `{marker}` starts a call in this format.",
        f"Like this:\n```\n{marker}\n```\n",
        marker * 2 + " is twice the tag",
        opening,
        f"{opening}\n",
        opening + "get_none" + after,
        f"{opening}<function-name>{after}<args>",
        opening[:-1],
        f"{opening} {opening}",
    ]
    for text in texts:
        calls, content = parse_calls(format_, text, TOOLS)
        assert not calls, text
        assert content == text
        assert allows(lark, text), text
        assert allows(lark, text + rest), text
        assert len(parse_calls(format_, text + rest, TOOLS)[0]) == bool(rest)
        # Where nothing stands behind a name, what follows it decides.
        head = f"{opening}get_now{after}" + ("" if after else call.partition("get_now")[2][0])
        bound = head if format_.only_first else text + " " + head
        assert not allows(lark, bound + "!"), text
    assert allows(lark, call)
    for seed in range(5):
        if (text := walk(required_calls(format_, TOOLS, {}), seed)) is not None:
            assert allows(lark, text if format_.only_first else "So: " + text)


PATCHES = """
start: "*** Begin Patch" LF change+ "*** End Patch" LF?
change: delete | update
delete: "*** Delete File: " path LF
update: "*** Update File: " path LF moved? line+
path: /(.+)/
moved: "*** Move to: " path LF
line: ("+" | "-" | " ") /(.*)/ LF -> row
%import common.LF
"""
"""In the style of the grammar that Codex sends: an import, an alias, lines of any text."""

INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
CUSTOM = Tool("apply_patch", "Changes files", INPUT, Constraint.grammar(PATCHES))
PATCH = "*** Begin Patch\n*** Update File: a.py\n-x = '<b>'\n+y = {}\n*** End Patch\n"


@pytest.mark.parametrize("name", ["qwen coder", "gemma"])
def test_input_of_a_custom_tool_follows_its_own_grammar(name):
    format_ = format_of(name)
    assert format_.writes_texts_as_they_are
    lark = required_calls(format_, [CUSTOM, *TOOLS], {}, one=True)
    assert not compile_error(lark)
    only = {"properties": {"input": {"enum": ["MARK"]}}, "required": ["input"]}
    around = required_calls(format_, [Tool("apply_patch", "", only)], {}, one=True)
    before, after = walk(around, 0).split("MARK")
    assert allows(lark, before + PATCH + after)
    assert not allows(lark, before + "any other text" + after)
    [call], _ = parse_calls(format_, before + PATCH + after, [CUSTOM])
    assert call.arguments == {"input": PATCH}


def test_size_of_a_custom_grammar_is_limited():
    rules = "\n".join(f"r{number}: r{number + 1}" for number in range(1200))
    form = {"type": "grammar", "syntax": "lark", "definition": rules}
    with pytest.raises(RequestError, match=r"tools\[0\]\.format: grammar has 1200 rules"):
        custom_tool("tools[0]", {"format": form}, "find")


@EACH_FORMAT
def test_input_of_a_custom_tool_follows_its_expression(name):
    """In JSON it does so through the schema, in its escaped form."""
    expression = r'[a-z]+ "\w/x"\n(?s:.)*end'
    text = {"type": "grammar", "syntax": "regex", "definition": expression}
    tool = custom_tool("tools[0]", {"format": text}, "find")
    format_ = format_of(name)
    lark = required_calls(format_, [tool], {}, one=True)
    assert not compile_error(lark)
    for given, allowed in (('ab "c/x"\nä\nend', True), ('ab "c/x" end', False), ("ab", False)):
        written = write_calls(format_, [ToolCall("find", {"input": given})])
        assert allows(lark, written) == allowed, written


def test_control_tokens_stand_for_themselves():
    lark = required_calls(format_of("kimi"), TOOLS, {"<|tool_call_begin|>": 17, "unused": 3})
    assert '<[17]> "functions."' in lark
    assert "<[3]>" not in lark


def test_hostile_tools_have_limits():
    many = [Tool(f"tool_{number}", "words") for number in range(MOST_TOOLS + 1)]
    with pytest.raises(ConfigError, match=f"there are {MOST_TOOLS + 1} tools; give at most"):
        required_calls(format_of("hermes"), many, {})
    lark = required_calls(format_of("hermes"), many[:500], {})
    assert not compile_error(lark)
    assert allows(lark, '<tool_call>\n{"name": "tool_499", "arguments": {}}\n</tool_call>')
    wordy = {"properties": {"a": {"enum": ["x" * 1200]}}}
    with pytest.raises(
        ConfigError, match=r"the 500 tools have schemas of .* characters, more than"
    ):
        required_calls(
            format_of("hermes"), [Tool(f"t{number}", "words", wordy) for number in range(500)], {}
        )
    for name in ("glm", "qwen coder", "gemma"):
        # An argument that the template cannot write, or that no value fits, is left out.
        odd = {"a>\n<": {"type": "string"}, "b": {"type": "string", "const": 5}}
        tool = Tool("f", "words", {"properties": {**odd, "c": {"type": "string"}}})
        lark = required_calls(format_of(name), [tool], {})
        assert not compile_error(lark)
        plain = Tool("f", "words", {"properties": {"c": {"type": "string"}}})
        assert lark.count('"c') == required_calls(format_of(name), [plain], {}).count('"c')


@pytest.mark.parametrize("name", ["hermes", "qwen coder", "gemma"])
def test_deep_schemas(name):
    schema = {"type": "string"}
    for _ in range(30):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    lark = required_calls(format_of(name), [Tool("f", "deep", schema)], {})
    assert not compile_error(lark)
    for _ in range(10):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(ConfigError, match="nested more than 64 levels"):
        Tool("f", "deep", schema)


@pytest.mark.parametrize("name", ["hermes", "gemma"])
def test_a_schema_that_refers_to_itself(name):
    node = {
        "type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
        "required": ["next"],
        "additionalProperties": False,
    }
    tool = Tool(
        "f",
        "a list",
        {
            "properties": {"head": {"$ref": "#/$defs/node"}},
            "required": ["head"],
            "$defs": {"node": node},
        },
    )
    format_ = format_of(name)
    lark = required_calls(format_, [tool], {})
    texts = [text for seed in range(10) if (text := walk(lark, seed)) is not None]
    assert texts
    for text in texts:
        [call, *_], _ = parse_calls(format_, text, [tool])
        jsonschema.validate(json.loads(json.dumps(call.arguments)), dict(tool.parameters))


@pytest.mark.parametrize("name", ["hermes", "qwen coder"])
def test_many_tools_with_enums(name):
    values = {f"p{key}": {"enum": [f"value {key} {n}" for n in range(5)]} for key in range(4)}
    many = [Tool(f"tool_{n}", "words", {"properties": values}) for n in range(500)]
    grammar = optional_calls(format_of(name), many, {})
    assert len(grammar) > 200_000
    assert Constraint.tools(grammar).source == grammar
    assert not compile_error(grammar)


@EACH_FORMAT
def test_calls_or_an_answer(name):
    if not goes_with_answers(format_of(name)):
        assert name == "llama 4"
        return
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    if name == "llama":
        with pytest.raises(ConfigError, match="write the references out"):
            optional_calls(format_of(name), TOOLS, {}, answer=schema)
    tools = TOOLS[1:]
    lark = optional_calls(format_of(name), tools, {}, answer=schema)
    final = "<|channel|>final<|message|>" if name == "gpt-oss" else ""
    assert allows(lark, final + '{"n": 3}')
    assert not allows(lark, final + "Hello")
    called = required_calls(format_of(name), tools, {})
    texts = [text for seed in range(4) if (text := walk(called, seed)) is not None]
    assert all(allows(lark, text) for text in texts)


LIMITED = Tool(
    "f",
    "words",
    {
        "properties": {
            "code": {"type": "string", "pattern": r"^[A-Z]{2}/\d+$"},
            "size": {"type": "string", "minLength": 2, "maxLength": 4},
            "word": {"type": "string", "pattern": "b+"},
            "odd": {"type": "string", "pattern": r"(?=a)a"},
        }
    },
)


@pytest.mark.parametrize("name", ["hermes", "qwen coder", "glm", "minicpm", "lfm", "gemma"])
@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        ({"code": "DE/12"}, True),
        ({"code": "DE/"}, False),
        ({"code": "xDE/12"}, False),
        ({"size": "éé"}, True),
        ({"size": "é"}, False),
        ({"size": "12345"}, False),
        ({"word": "abc"}, True),
        ({"word": "ac"}, False),
    ],
)
def test_texts_follow_lengths_and_patterns(name, arguments, allowed):
    tool = Tool(
        "f", "words", {"properties": dict(list(LIMITED.parameters["properties"].items())[:3])}
    )
    format_ = format_of(name)
    lark = required_calls(format_, [tool], {})
    assert not compile_error(lark)
    assert allows(lark, write_calls(format_, [ToolCall("f", arguments)])) == allowed


@pytest.mark.parametrize("name", ["qwen coder", "gemma"])
def test_a_pattern_that_cannot_be_followed_is_left_out(name):
    lark = required_calls(format_of(name), [LIMITED], {})
    assert allows(lark, write_calls(format_of(name), [ToolCall("f", {"odd": "b"})]))


@pytest.mark.parametrize(("number", "allowed"), [(3, True), (11, False), (-1, False), (2.5, False)])
def test_numbers_follow_bounds(number, allowed):
    schema = {"properties": {"n": {"type": "integer", "minimum": 0, "maximum": 10}}}
    for name in ("gemma", "lfm", "glm"):
        lark = required_calls(format_of(name), [Tool("f", "words", schema)], {})
        assert allows(lark, write_calls(format_of(name), [ToolCall("f", {"n": number})])) == allowed


@pytest.mark.parametrize(
    ("name", "schema", "value", "written", "wrong"),
    [
        ("deepseek v3.2", {"type": ["string", "null"]}, None, "null", '"x"'),
        ("deepseek v3.2", {"enum": ["aaa", 1]}, "aaa", "aaa", "1"),
        ("qwen coder", {"type": ["string", "integer"], "minLength": 2}, 5, "", ""),
        ("minicpm", {"type": "string"}, "", "", ""),
        ("minicpm", {"type": "string", "minLength": 1}, "<b>", "<![CDATA[<b>]]>", ""),
    ],
)
def test_each_type_of_a_tagged_value_keeps_to_itself(name, schema, value, written, wrong):
    """A text that may be empty, or a value of another type, is no reason to allow a mixture."""
    format_ = format_of(name)
    lark = required_calls(format_, [Tool("t", "", {"properties": {"v": schema}})], {})
    text = write_calls(format_, [ToolCall("t", {"v": value})])
    assert allows(lark, text)
    assert not written or not allows(lark, text.replace(written, wrong))


def test_keys_are_in_the_order_in_which_templates_sort_them():
    tool = Tool(
        "t", "", {"properties": {"B": {"enum": [1]}, "a": {"type": "integer", "enum": [1, "x"]}}}
    )
    lark = required_calls(format_of("gemma"), [tool], {})
    assert allows(lark, "<|tool_call>call:t{a:1,B:1}<tool_call|>")
    assert not allows(lark, "<|tool_call>call:t{B:1,a:1}<tool_call|>")
    assert not allows(lark, '<|tool_call>call:t{a:<|"|>x<|"|>}<tool_call|>')  # not of its type


@pytest.mark.parametrize(
    ("schema", "allowed", "refused"),
    [
        ({"type": "boolean"}, ["True", "false"], ["None"]),
        ({"type": "boolean", "enum": [True]}, ["true"], ["False", "false"]),
        ({"type": "string"}, ["'a'", '"a"'], ["a"]),
        ({"type": "string", "minLength": 2}, ['"ab"'], ["'a'", '"a"']),
    ],
)
def test_values_in_pythons_notation_follow_their_schema(schema, allowed, refused):
    tool = Tool("t", "", {"properties": {"v": schema}})
    lark = required_calls(format_of("lfm in single quotes"), [tool], {})
    before, _, after = write_calls(
        format_of("lfm in single quotes"), [ToolCall("t", {"v": 5})]
    ).partition("5")
    assert all(allows(lark, before + value + after) for value in allowed)
    assert not any(allows(lark, before + value + after) for value in refused)
