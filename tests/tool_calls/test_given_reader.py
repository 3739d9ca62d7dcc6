"""Calls that mlx-lm's parsers read: whole or not at all, and nothing is dropped."""

import importlib

import pytest

from akunu_py.tool_calls.given_reader import GivenParser, GivenReader
from akunu_py.values.messages import Tool
from akunu_py.values.reply_deltas import CallEnd, ContentDelta, UnfinishedCall

TOOLS = [Tool("get", "words", {"properties": {"place": {"type": "string"}}}), Tool("now", "words")]
CALL = (
    '<atem:function_calls>\n<atem:invoke name="get">\n'
    '<atem:parameter name="place">Köln</atem:parameter>\n</atem:invoke>\n</atem:function_calls>'
)


@pytest.fixture(scope="module")
def reader():
    module = importlib.import_module("mlx_lm.tool_parsers.muse_spark")
    end = module.tool_call_end
    return GivenReader("mlx-lm", module.tool_call_start, end, module.parse_tool_call)


def read(reader, text, size=1, *, cut=False):
    parser = GivenParser(reader, TOOLS)
    pieces = [text[place : place + size] for place in range(0, len(text), size)]
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    return deltas + parser.finish(cut=cut)


def content(deltas):
    return "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta))


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_calls_and_text_are_told_apart(reader, size):
    deltas = read(reader, f"I look.\n{CALL}And <atem:fun{CALL}", size)
    calls = [(d.index, d.call.name, d.call.arguments) for d in deltas if isinstance(d, CallEnd)]
    assert calls == [(0, "get", {"place": "Köln"}), (1, "get", {"place": "Köln"})]
    assert content(deltas) == "I look.And <atem:fun"


def test_what_is_no_call_is_reported(reader):
    [failed] = read(reader, CALL.replace("atem:invoke", "odd"))
    assert isinstance(failed, UnfinishedCall)
    assert failed.reason == "malformed"
    assert "Köln" in failed.arguments
    [unknown] = read(reader, CALL.replace('"get"', '"other"'))
    assert isinstance(unknown, UnfinishedCall)


def test_content_keeps_its_sources(reader):
    parser = GivenParser(reader, TOOLS)
    deltas = [*parser.feed("I ", "prompt"), *parser.feed("look.\n" + CALL[:5])]
    deltas += [*parser.feed(CALL[5:] + "So", "memory"), *parser.finish()]
    found = [(d.text, d.source) for d in deltas if isinstance(d, ContentDelta)]
    assert found == [("I", "prompt"), (" ", "prompt"), ("look.", ""), ("So", "memory")]
