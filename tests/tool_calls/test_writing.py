"""Calls that akunu writes itself, where a template does not: they are read back equal."""

import pytest
from template_excerpts import EXCERPTS, format_of
from test_format import TOOLS, ambiguous, hard_calls

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
