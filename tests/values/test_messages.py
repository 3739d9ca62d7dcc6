"""Messages, calls and tools: what is taken, and what is said of malformed ones."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_py import ConfigError, Message, TextPart, Tool, ToolCall
from akunu_py.values.messages import read_messages, read_tools

HI = {"role": "user", "content": "Hi"}


def call(**function):
    return {"id": "call_1", "type": "function", "function": {"name": "look_up", **function}}


def tool(**function):
    return {"type": "function", "function": {"name": "look_up", **function}}


def assistant(**fields):
    return {"role": "assistant", **fields}


CALL = ToolCall("look_up", {"word": "owl"}, "call_1")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (HI, Message("user", "Hi")),
        (Message("user", "Hi"), Message("user", "Hi")),
        ({"role": "system", "content": ""}, Message("system")),
        ({**HI, "name": "Zoë", "tool_calls": None}, Message("user", "Hi", name="Zoë")),
        (
            {"role": "user", "content": [{"type": "text", "text": "a"}, TextPart("b")]},
            Message("user", (TextPart("a"), TextPart("b"))),
        ),
        (
            assistant(content=None, tool_calls=[call(arguments='{"word": "owl"}')]),
            Message("assistant", tool_calls=(CALL,)),
        ),
        (
            assistant(content="Wait.", tool_calls=(call(arguments={"word": "owl"}), CALL)),
            Message("assistant", "Wait.", tool_calls=(CALL, CALL)),
        ),
        (
            assistant(tool_calls=[{"function": {"name": "look_up", "arguments": " "}}]),
            Message("assistant", tool_calls=(ToolCall("look_up"),)),
        ),
        (assistant(content="b", reasoning_content="a"), Message("assistant", "b", reasoning="a")),
        (
            assistant(content="b", reasoning_content="a", reasoning="a"),
            Message("assistant", "b", reasoning="a"),
        ),
        (
            {"role": "tool", "tool_call_id": "call_1", "content": "a bird"},
            Message("tool", "a bird", tool_call_id="call_1"),
        ),
    ],
    ids=str,
)
def test_what_is_taken(given, expected):
    assert read_messages([given]) == (expected,)


DEEP = {}
for _ in range(70):
    DEEP = {"a": DEEP}

WRONG = {
    "text": ("Hi", r"messages is a str; give a list such as"),
    "mapping": ({}, r"messages is a dict; give a list"),
    "none": (None, r"messages is a NoneType"),
    "empty": ([], r"messages is empty; give a list"),
    "item": ([HI, "Hi"], r"messages\[1\] is a str; give \{"),
    "no role": ([{"content": "Hi"}], r"messages\[0\]\.role is missing; give system"),
    "role": ([HI, HI, {**HI, "role": "usr"}],
             r"messages\[2\]\.role is 'usr'; give system, user, assistant or tool$"),
    "role 1": ([{**HI, "role": ["user"]}], r"messages\[0\]\.role is \['user'\]"),
    "no content": ([{"role": "user"}], r"messages\[0\]\.content is missing"),
    "content None": ([assistant(content=None)], r"messages\[0\]\.content is missing"),
    "content": ([{**HI, "content": 5}], r"messages\[0\]\.content is a int; give a list"),
    "no parts": ([{**HI, "content": []}], r"messages\[0\]\.content has no parts"),
    "part": ([{**HI, "content": ["Hi"]}], r"messages\[0\]\.content\[0\] is a str; give a text"),
    "image": ([{**HI, "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
              r"messages\[0\]\.content\[0\]\.type is 'image_url'; akunu's models read only text"),
    "part text": ([{**HI, "content": [{"type": "text", "text": 5}]}],
                  r"messages\[0\]\.content\[0\]\.text is a int"),
    "part without": ([{**HI, "content": [{"type": "text"}]}],
                     r"messages\[0\]\.content\[0\]\.text is missing"),
    "field": ([{**HI, "refusal": "no"}], r"messages\[0\] has the unknown field 'refusal'; known"),
    "name": ([{**HI, "name": "a\nb"}], r"messages\[0\]\.name is 'a.nb'; give one line"),
    "user calls": ([{**HI, "tool_calls": [call()]}],
                   r"messages\[0\]\.tool_calls belongs to messages of the role assistant"),
    "user thinks": ([{**HI, "reasoning": "a"}], r"messages\[0\]\.reasoning belongs to"),
    "user answers": ([{**HI, "tool_call_id": "a"}], r"messages\[0\]\.tool_call_id belongs to"),
    "two thoughts": ([assistant(content="", reasoning="a", reasoning_content="b")],
                     r"messages\[0\] has reasoning and a different reasoning_content"),
    "calls": ([assistant(tool_calls=call())], r"messages\[0\]\.tool_calls is a dict; give a list"),
    "no function": ([assistant(tool_calls=[{"id": "a"}])],
                    r"messages\[0\]\.tool_calls\[0\]\.function is missing; give \{"),
    "call id": ([assistant(tool_calls=[{**call(), "id": 7}])],
                r"messages\[0\]\.tool_calls\[0\]\.id is a int"),
    "call type": ([assistant(tool_calls=[{**call(), "type": "custom"}])],
                  r"messages\[0\]\.tool_calls\[0\]\.type is 'custom'"),
    "call name": ([assistant(tool_calls=[call(name=5)])],
                  r"messages\[0\]\.tool_calls\[0\]\.function\.name is a int; give a text"),
    "arguments": ([assistant(tool_calls=[call(arguments="{word")])],
                  r"messages\[0\]\.tool_calls\[0\]\.function\.arguments is not JSON: '\{word'"),
    "arguments 1": ([assistant(tool_calls=[call(arguments="[1]")])],
                    r"function\.arguments is a list; give an object"),
    "arguments nan": ([assistant(tool_calls=[call(arguments='{"a": NaN}')])],
                      r"function\.arguments has the number nan"),
    "arguments deep": ([assistant(tool_calls=[call(arguments="[" * 100_000)])],
                       r"function\.arguments is not JSON"),
    "arguments deep 1": ([assistant(tool_calls=[call(arguments=DEEP)])],
                         r"function\.arguments is nested more than 64 levels deep"),
}  # fmt: skip


@pytest.mark.parametrize(("messages", "error"), WRONG.values(), ids=WRONG)
def test_what_is_said_of_malformed_messages(messages, error):
    with pytest.raises(ConfigError, match="^" + error if error.startswith("messages") else error):
        read_messages(messages)


@pytest.mark.parametrize("tools", [None, [], ()])
def test_no_tools(tools):
    assert read_tools(tools) == ()


WRONG_TOOLS = {
    "mapping": (tool(), r"tools is a dict; give a list"),
    "item": (["look_up"], r"tools\[0\] is a str; give \{"),
    "flat": ([{"name": "look_up"}], r"tools\[0\] has the unknown field 'name'; known are type"),
    "type": ([{"type": "web_search"}], r"tools\[0\]\.type is 'web_search'; akunu knows only 'function'"),
    "no name": ([{"function": {}}], r"tools\[0\]\.function\.name is ''; a tool's name"),
    "name": ([tool(name="x" * 129)], r"tools\[0\]\.function\.name is 'xxx"),
    "field": ([tool(returns={})], r"tools\[0\]\.function has the unknown field 'returns'"),
    "description": ([tool(description=5)], r"tools\[0\]\.function\.description is a int"),
    "parameters": ([tool(parameters=["word"])],
                   r"tools\[0\]\.function\.parameters is a list; give an object"),
    "schema": ([tool(parameters={"type": "array"})],
               r"tools\[0\]\.function\.parameters\.type is 'array'"),
    "set": ([tool(parameters={"a": {1}})],
            r"tools\[0\]\.function\.parameters has a set, which is not a JSON value"),
    "bytes": ([tool(parameters={"a": b"x"})], r"parameters has a bytes"),
    "key": ([tool(parameters={"a": {1: 2}})], r"parameters has the key 1; keys in JSON are"),
    "deep": ([tool(parameters=DEEP)], r"parameters is nested more than 64 levels deep"),
    "twice": ([tool(), tool()], r"tools\[1\] has the name 'look_up' of another tool"),
}  # fmt: skip


@pytest.mark.parametrize(("tools", "error"), WRONG_TOOLS.values(), ids=WRONG_TOOLS)
def test_what_is_said_of_malformed_tools(tools, error):
    with pytest.raises(ConfigError, match=error):
        read_tools(tools)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Message("usr"), "^role is 'usr'; give"),
        (lambda: Message("user", ["Hi"]), r"^content is \['Hi'\]; give a text or a tuple"),
        (lambda: Message("assistant", tool_calls=[CALL]), "^tool_calls is .*; give a tuple"),
        (lambda: ToolCall("look_up", "{}"), "^arguments is a str; give an object"),
        (lambda: TextPart(None), "^text is a NoneType"),
    ],
)
def test_values_made_by_hand_are_checked_too(make, error):
    with pytest.raises(ConfigError, match=error):
        make()


def test_values_stay_as_they_are():
    arguments, schema = {"words": ["owl"]}, {"type": "object", "properties": {"words": {}}}
    called, offered = ToolCall("look_up", arguments), Tool("look_up", "", schema)
    arguments["words"].append("hen")
    schema["properties"].clear()
    assert called.arguments == {"words": ["owl"]}
    assert offered.parameters["properties"] == {"words": {}}
    with pytest.raises(dataclasses.FrozenInstanceError):
        called.name = "x"


def test_text_of_parts():
    assert Message("user", (TextPart("a"), TextPart("b"))).text == "ab"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers(), values, max_size=3)
    ),
    max_leaves=8,
)
names = st.sampled_from(
    ["role", "content", "tool_calls", "function", "name", "arguments", "type", "text", "id",
     "reasoning", "tool_call_id", "parameters", "description", "x"]
)  # fmt: skip
anything = st.recursive(
    json_values | st.sampled_from(["user", "assistant", "tool", "function", "text", "{}"]),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(names, values, max_size=5),
    max_leaves=20,
)


@given(value=anything)
def test_nothing_but_config_errors(value):
    """Whatever is given, it is taken or refused in words of ours."""
    for read in (read_messages, read_tools):
        try:
            found = read(value)
        except ConfigError:
            continue
        assert read(found) == found
