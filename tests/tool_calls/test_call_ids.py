"""Ids of calls and results: those that a template takes, the same for both, and unlike others."""

import re
from itertools import pairwise

import pytest
from template_excerpts import ENDS, format_of, renderer

from akunu_py.tokenizers.accepted_turns import in_order_of_calls
from akunu_py.tool_calls.known import known_format
from akunu_py.tool_calls.probing import probe_format
from akunu_py.tool_calls.writing import with_calls_as_text, with_ids_of
from akunu_py.values.messages import Message, ToolCall

_KIMI = (
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|im_{{ m.role }}|>"
    "{{ '## Return of ' ~ m.tool_call_id ~ '\n' if m.role == 'tool' }}{{ m.content }}{% if m.tool_calls %}"
    "<|tool_calls_section_begin|>{% for c in m.tool_calls %}<|tool_call_begin|>ID<|tool_call_argument_begin|>"
    "{{ c.function.arguments | tojson }}<|tool_call_end|>{% endfor %}<|tool_calls_section_end|>{% endif %}<|end|>{% endfor %}"
)
TEMPLATES = {
    "counts in each message": _KIMI.replace("ID", "functions.{{ c.function.name }}:{{ loop.index0 }}"),
    "writes ids": _KIMI.replace("ID", "{{ c.id }}"),
}  # fmt: skip
FORMATS = {name: probe_format(renderer(source), ENDS) for name, source in TEMPLATES.items()}


def conversation(*ids):
    """Two calls at once, whose results come the other way round, one more, and one in a new turn."""
    made = iter(ids)

    def called(*names):
        return Message("assistant", tool_calls=tuple(ToolCall(n, {}, next(made)) for n in names))

    def result(place, name):
        return Message("tool", f"of {name}", tool_call_id=ids[place], name=name)

    return [
        Message("user", "ask"), called("read", "grep"), result(1, "grep"), result(0, "read"),
        called("read"), result(2, "read"), Message("assistant", "done"), Message("user", "more"),
        called("grep"), result(3, "grep"),
    ]  # fmt: skip


HISTORIES = {
    "its own": ("functions.read:0", "functions.grep:1", "functions.read:2", "functions.grep:3"),
    "counted anew": ("functions.read:0", "functions.grep:1", "functions.read:0", "functions.grep:0"),
    "of another model": ("toolu_01", "toolu_02", "toolu_03", "toolu_04"),
    "the same in each turn": ("call_0", "call_1", "call_0", "call_0"),
    "the same for all": ("call", "call", "call", "call"),
    "none": ("", "", "", ""),
}  # fmt: skip


def ids_in(text):
    return re.findall(r"call_begin\|>([^<]*)", text), re.findall(r"Return of (.*)\nof (\w+)", text)


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
@pytest.mark.parametrize("name", TEMPLATES)
def test_numbers_of_calls_and_results_agree(name, history):
    said = with_ids_of(FORMATS[name], in_order_of_calls(conversation(*history)))
    calls, results = ids_in(renderer(TEMPLATES[name])(said, []))
    assert [id_ for id_, _ in results] == calls
    assert [f"functions.{tool}" for _, tool in results] == [id_.split(":")[0] for id_ in calls]
    counted = [0, 1, 0, 0] if name == "counts in each message" else [0, 1, 2, 3]
    assert [int(id_.split(":")[1]) for id_ in calls] == counted


def test_calls_that_akunu_writes_have_the_numbers_of_their_results():
    kimi = known_format("", ["<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>"])
    said = with_ids_of(kimi, in_order_of_calls(conversation(*HISTORIES["of another model"])))
    text = "\n".join(one.text for one in with_calls_as_text(said, kimi, results=False))
    calls, results = ids_in(text)
    assert calls == [id_ for id_, _ in results]
    assert calls == ["functions.read:0", "functions.grep:1", "functions.read:2", "functions.grep:3"]


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_ids_that_a_template_refuses_get_its_length(history):
    """Mistral's demand nine letters and digits."""
    format_ = format_of("nemo")
    said = with_ids_of(format_, in_order_of_calls(conversation(*history)))
    ids = [call.id for one in said for call in one.tool_calls]
    assert [one.tool_call_id for one in said if one.role == "tool"] == ids
    assert all(re.fullmatch("[A-Za-z0-9]{9}", id_) for id_ in ids)
    assert len(set(ids)) == len(set(history)) or "" in history
    for shorter, longer in pairwise(range(1, len(said) + 1)):
        assert with_ids_of(format_, said[:longer])[:shorter] == with_ids_of(format_, said[:shorter])


def test_ids_that_fit_stay():
    said = in_order_of_calls(conversation("abcdefgh1", "abcdefgh2", "abcdefgh3", "abcdefgh4"))
    assert with_ids_of(format_of("nemo"), said) == said
    assert with_ids_of(format_of("qwen coder"), said) == said
    alone = [Message("tool", "of a call that was cut off", tool_call_id="toolu_01")]
    assert len(with_ids_of(format_of("nemo"), alone)[0].tool_call_id) == 9
