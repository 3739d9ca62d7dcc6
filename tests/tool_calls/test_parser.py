"""Text that is no call, calls that are not whole, and values at the edges; calls that mlx-lm's parsers read."""

import importlib
import json
import re

import pytest
from grammar_walks import allows
from template_excerpts import format_of

from akunu_py.tool_calls.given_reader import GivenParser, GivenReader
from akunu_py.tool_calls.grammar import optional_calls
from akunu_py.tool_calls.known import HERMES
from akunu_py.tool_calls.parser import CallParser, parse_calls
from akunu_py.tool_calls.writing import write_calls
from akunu_py.values.messages import Tool, ToolCall
from akunu_py.values.reply_deltas import CallEnd, ContentDelta, UnfinishedCall

TOOLS = (
    Tool("get", "words", {"properties": {"a": {"type": "string"}, "n": {"type": "number"}}}),
    Tool("get_now", "words"),
)
CALL = '<tool_call>\n{"name": "get", "arguments": {"a": "x"}}\n</tool_call>'


def read(text, format_=HERMES):
    parser = CallParser(format_, TOOLS)
    deltas = [delta for character in text for delta in parser.feed(character)]
    return [*deltas, *parser.finish()]


def content(deltas):
    return "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta))


@pytest.mark.parametrize(
    "text",
    [
        "The tag <tool_call> begins a call.",
        "<tool_call",
        "<tool_call>\n",
        '<tool_call>\n{"name": "ge',
        '<tool_call>\n{"name": "unknown", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "get", "arguments": []}\n</tool_call>',
        '<tool_call>\n{"arguments": {}}\n</tool_call>',
        "<<<tool_call>>>",
        "a\n\n \n",
    ],
)
def test_text_stays_text(text):
    assert content(read(text)) == text


def test_text_that_cannot_become_a_call_is_not_held_back():
    parser = CallParser(HERMES, TOOLS)
    assert content(parser.feed('<tool_call>\n{"name": "get')) == ""
    assert content(parser.feed("s")) == '<tool_call>\n{"name": "gets'


@pytest.mark.parametrize("name", ["nemo", "granite", "command", "lfm", "minimax m1"])
def test_what_closes_a_call_and_begins_another_is_not_content(name):
    format_ = format_of(name)
    calls = [ToolCall("get", {}, "abcdef123"), ToolCall("get_now", {}, "abcdef124")]
    text = write_calls(format_, calls)
    begun = re.search(r"\{\}|\(\)", text).end()
    for cut in range(begun, text.rindex("get_now") + 1):
        parser = CallParser(format_, TOOLS)
        assert content([*parser.feed(text[:cut]), *parser.finish(cut=True)]) == "", text[:cut]


@pytest.mark.parametrize(
    "size", range(len('<tool_call>\n{"name": "get", "arguments": {'), len(CALL))
)
def test_a_call_that_is_cut_is_not_a_call(size):
    deltas = read(CALL[:size])
    whole = CALL.index("}") + 1 <= size
    assert content(deltas) == ""
    assert any(isinstance(delta, CallEnd) for delta in deltas) == whole
    unfinished = [delta for delta in deltas if isinstance(delta, UnfinishedCall)]
    if not whole:
        [cut] = unfinished
        assert (cut.reason, cut.name, cut.index) == ("cut", "get", 0)
        assert '{"a": "x"}'.startswith(cut.arguments)


@pytest.mark.parametrize("size", range(len("<tool_call>"), CALL.index("arguments")))
def test_a_reply_that_is_cut_before_the_arguments(size):
    parser = CallParser(HERMES, TOOLS)
    deltas = [*parser.feed(CALL + "\n" + CALL[:size]), *parser.finish(cut=True)]
    assert content(deltas) == ""
    assert deltas[-1] == UnfinishedCall(1, "", "", "", "cut")


@pytest.mark.parametrize("name", ["qwen coder", "glm", "deepseek v3.2", "minimax m2"])
def test_tagged_calls_that_are_cut(name):
    format_ = format_of(name)
    tags = format_.arguments
    head = format_.openings[0] + "get" + format_.after_names[0] + tags.key_start + "a"
    whole = head + tags.value_starts["string"] + "text" + tags.value_end + format_.close
    for size in range(len(head), len(whole)):
        deltas = read(whole[:size], format_)
        assert not any(isinstance(delta, CallEnd) for delta in deltas)
        assert isinstance(deltas[-1], UnfinishedCall)
        assert content(deltas) == ""
    assert any(isinstance(delta, CallEnd) for delta in read(whole, format_))


def test_arguments_that_are_none_are_reported():
    deltas = read('<tool_call>\n{"name": "get", "arguments": {"a": nothing}}\n</tool_call> more')
    [failed] = [delta for delta in deltas if isinstance(delta, UnfinishedCall)]
    assert (failed.reason, failed.arguments) == ("malformed", '{"a": nothing}')
    assert content(deltas).endswith("more")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e400", 1.7976931348623157e308),
        ("-1e400", -1.7976931348623157e308),
        ("9" * 5000, 1.7976931348623157e308),
        ("-0", 0),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("5e-324", 5e-324),
    ],
)
def test_numbers_at_the_edges(written, value):
    text = f'<tool_call>\n{{"name": "get", "arguments": {{"n": {written}}}}}\n</tool_call>'
    [call], _ = parse_calls(HERMES, text, TOOLS)
    assert call.arguments["n"] == value
    json.loads(json.dumps(call.arguments))


def test_half_a_surrogate_pair_is_replaced():
    text = (
        '<tool_call>\n{"name": "get", "arguments": {"a": "\\ud800x\\ud83d\\ude00"}}\n</tool_call>'
    )
    [call], _ = parse_calls(HERMES, text, TOOLS)
    assert call.arguments["a"] == "\ufffdx😀"


def test_arguments_that_are_too_deep_are_reported():
    text = '<tool_call>\n{"name": "get", "arguments": {"a": ' + "[" * 70 + "]" * 70 + "}}"
    assert isinstance(read(text)[-1], UnfinishedCall) or not parse_calls(HERMES, text, TOOLS)[0]
    deep = '<tool_call>\n{"name": "get", "arguments": {"a": ' + "[" * 5000
    assert isinstance(read(deep)[-1], UnfinishedCall)


def test_a_bare_call_is_one_at_the_beginning_alone():
    llama = format_of("llama")
    call = '{"name": "get_now", "parameters": {}}'
    assert len(parse_calls(llama, "\n" + call, TOOLS)[0]) == 1
    assert parse_calls(llama, "So: " + call, TOOLS) == ([], "So: " + call)


QWEN_CALL = "<function=get>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>"
BARE = '{"name": "get", "arguments": {"a": "x"}}'
UNTAGGED = {
    "a forgotten tag": ("qwen coder", QWEN_CALL, ""),
    "behind text": ("qwen coder", f"I will look.\n\n{QWEN_CALL}", "I will look."),
    "twice": ("qwen coder", f"{QWEN_CALL}\n{QWEN_CALL}", ""),
    "with and without": ("qwen coder", f"<tool_call>\n{QWEN_CALL}\n{QWEN_CALL}", ""),
    "in other words": (
        "minimax m2", '<invoke name="get">\n<parameter name="a">x</parameter>\n</invoke>\n</minimax:tool_call>', ""
    ),
    "bare": ("hermes", BARE, ""),
    "bare, in lines": ("hermes", '{\n    "name": "get",\n    "arguments": {"a": "x"}\n}', ""),
    "in a block": ("hermes", f"\n```json\n{BARE}\n```", ""),
    "in a plain block": ("hermes", f"```\n{BARE}\n```\n", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", UNTAGGED)
def test_calls_without_their_tags(name):
    """Qwen3-Coder's without `<tool_call>`; Qwen2.5-Coder's as a whole message in JSON."""
    format_, text, said = UNTAGGED[name]
    format_ = format_of(format_)
    calls, rest = parse_calls(format_, text, TOOLS)
    assert [(call.name, call.arguments) for call in calls] == [("get", {"a": "x"})] * len(calls)
    assert len(calls) == text.count("get")
    assert rest.strip() == said
    deltas = read(text, format_)
    assert [one.call.arguments for one in deltas if isinstance(one, CallEnd)] == [
        call.arguments for call in calls
    ]
    assert content(deltas) == rest
    lark = optional_calls(format_, TOOLS, {})
    if len(calls) == 1:  # the grammar makes further ones have their tags
        assert allows(lark, text.rstrip())
    # The arguments follow their schema from the head on.
    assert not allows(lark, text.rstrip().replace('"a"', '"b"').replace("=a>", "=b>"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qwen coder", QWEN_CALL.replace("get", "unknown")),
        ("qwen coder", "Write <function=NAME> and its parameters."),
        ("qwen coder", "<function=get_no"),
        ("hermes", BARE.replace("get", "unknown")),
        ("hermes", f"Such as {BARE}"),
        ("hermes", f"Such as\n```json\n{BARE}\n```"),
        ("hermes", '{"name": "get"}'),
        ("hermes", '```json\n{"names": 1}\n```'),
        ("hermes", "```python\nx = {}\n```"),
        ("hermes", "{"),
    ],
)
def test_what_is_no_call_of_a_tool_stays_text(name, text):
    format_ = format_of(name)
    assert content(read(text, format_)) == text
    assert parse_calls(format_, text, TOOLS) == ([], text)
    assert allows(optional_calls(format_, TOOLS, {}), text)


def test_a_bare_call_behind_one_with_tags_is_text():
    calls, rest = parse_calls(HERMES, f"{CALL}\n{BARE}", TOOLS)
    assert len(calls) == 1
    assert rest.strip() == BARE


def test_a_long_text_takes_linear_time():
    """Ten thousand beginnings of a call, character by character."""
    text = "<tool_call>\n{" * 10_000
    parser = CallParser(HERMES, TOOLS)
    pieces = [text[place : place + 3] for place in range(0, len(text), 3)]
    deltas = [delta for piece in pieces for delta in parser.feed(piece)] + parser.finish()
    assert content(deltas) == text


PLACES = [Tool("get", "words", {"properties": {"place": {"type": "string"}}}), Tool("now", "words")]
SPARK = (
    '<atem:function_calls>\n<atem:invoke name="get">\n'
    '<atem:parameter name="place">Köln</atem:parameter>\n</atem:invoke>\n</atem:function_calls>'
)


@pytest.fixture(scope="module")
def reader():
    module = importlib.import_module("mlx_lm.tool_parsers.muse_spark")
    end = module.tool_call_end
    return GivenReader("mlx-lm", module.tool_call_start, end, module.parse_tool_call)


def given(reader, text, size=1, *, cut=False):
    parser = GivenParser(reader, PLACES)
    pieces = [text[place : place + size] for place in range(0, len(text), size)]
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    return deltas + parser.finish(cut=cut)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_calls_and_text_are_told_apart(reader, size):
    deltas = given(reader, f"I look.\n{SPARK}And <atem:fun{SPARK}", size)
    calls = [(d.index, d.call.name, d.call.arguments) for d in deltas if isinstance(d, CallEnd)]
    assert calls == [(0, "get", {"place": "Köln"}), (1, "get", {"place": "Köln"})]
    assert content(deltas) == "I look.And <atem:fun"


def test_what_is_no_call_is_reported(reader):
    [failed] = given(reader, SPARK.replace("atem:invoke", "odd"))
    assert isinstance(failed, UnfinishedCall)
    assert failed.reason == "malformed"
    assert "Köln" in failed.arguments
    [unknown] = given(reader, SPARK.replace('"get"', '"other"'))
    assert isinstance(unknown, UnfinishedCall)


def test_content_keeps_its_sources(reader):
    parser = GivenParser(reader, PLACES)
    deltas = [*parser.feed("I ", "prompt"), *parser.feed("look.\n" + SPARK[:5])]
    deltas += [*parser.feed(SPARK[5:] + "So", "memory"), *parser.finish()]
    found = [(d.text, d.source) for d in deltas if isinstance(d, ContentDelta)]
    assert found == [("I", "prompt"), (" ", "prompt"), ("look.", ""), ("So", "memory")]
