"""Calls that akunu writes itself, where a template does not: they are read back equal."""

import pytest
from hypothesis import given
from template_excerpts import EXCERPTS, format_of
from test_formats import TOOLS, ambiguous, calls, hard_calls

from akunu_py.tool_calls.format import QuotedArguments, TaggedArguments
from akunu_py.tool_calls.known import HERMES, known_format
from akunu_py.tool_calls.parser import parse_calls
from akunu_py.tool_calls.writing import write_calls
from akunu_py.values.messages import ToolCall

OTHERS = {"described": HERMES}
KNOWN = {
    "LFM 2": ("", ["<|tool_call_start|>", "<|tool_call_end|>"], "<|tool_call_start|>"),
    "Kimi K2": (
        "", ["<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>"],
        "<|tool_calls_section_begin|>",
    ),
    "Granite 3": (
        "respond only with <|tool_call|> followed by a JSON list of tools used.", [],
        "<|tool_call|>",
    ),
    "SmolLM 3": (
        '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>', [],
        "<tool_call>",
    ),
    "Llama 3.2": (
        "the format [func_name1(params_name1=params_value1, params_name2=params_value2...), func_n",
        [], "[",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*EXCERPTS, *OTHERS])
@given(given_=calls)
def test_written_calls_are_read(name, given_):
    format_ = OTHERS.get(name) or format_of(name)
    if holds_an_end(format_, given_[1]):
        return
    made = [ToolCall(*given_, id="abcdef123")]
    read, rest = parse_calls(format_, write_calls(format_, made), TOOLS)
    assert [(call.name, call.arguments) for call in read] == [given_]
    assert not rest.strip()


@pytest.mark.parametrize("name", [*EXCERPTS, *OTHERS])
def test_what_looks_like_the_format_is_written_and_read(name):
    format_ = OTHERS.get(name) or format_of(name)
    escapes = not isinstance(format_.arguments, TaggedArguments | QuotedArguments)
    hard = [call for call in hard_calls(format_) if escapes or not ambiguous(format_, [call])]
    assert hard
    for call in hard:
        written = write_calls(format_, [ToolCall(*call, id="abcdef123")])
        read, rest = parse_calls(format_, written, TOOLS)
        assert [(call.name, call.arguments) for call in read] == [call]
        assert not rest.strip()


def holds_an_end(format_, arguments):
    """Whether a text holds what ends a text, or a key is not a word: tags cannot express it."""
    notation = format_.arguments
    if isinstance(notation, TaggedArguments):
        end = notation.value_end.strip()
        return any(isinstance(value, str) and end in value for value in arguments.values()) or (
            notation.wrapper is not None and "]]>" in str(arguments)
        )
    return isinstance(notation, QuotedArguments) and (
        notation.quote in str(arguments) or bool(arguments.get("more") or arguments.get("units"))
    )


@pytest.mark.parametrize("name", KNOWN)
def test_a_model_whose_template_writes_no_calls_is_known(name):
    prompt, tokens, marker = KNOWN[name]
    format_ = known_format(prompt, tokens)
    assert format_.marker == marker
    made = [ToolCall("get", {}), ToolCall("get_weather", {"place": "Köln", "exact": True})]
    read, _ = parse_calls(format_, write_calls(format_, made), TOOLS)
    assert [(call.name, call.arguments) for call in read] == [
        (call.name, call.arguments) for call in made
    ]
    assert known_format("", ["<|im_start|>"]) is None
