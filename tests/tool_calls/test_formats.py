"""Formats read off templates: what the template writes is read back, whatever the arguments."""

import importlib
import json
import os
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_files import SHARED
from template_excerpts import ENDS, EXCERPTS, format_of, render_of, renderer

from akunu_py.messages import Message, Tool, ToolCall
from akunu_py.reply_deltas import ArgumentsDelta, CallEnd, CallStart, ContentDelta
from akunu_py.tool_calls.format import PythonArguments, TaggedArguments
from akunu_py.tool_calls.parser import CallParser, parse_calls
from akunu_py.tool_calls.probing import UnknownFormatError, probe_format, section_of

TOOLS = (
    Tool(
        "get_weather",
        "The weather",
        {
            "type": "object",
            "properties": {
                "place": {"type": "string"},
                "note": {"type": "string"},
                "days": {"type": "number"},
                "exact": {"type": "boolean"},
                "units": {"type": "array"},
                "more": {"type": "object"},
            },
        },
    ),
    Tool("get", "Without arguments"),
    Tool("a.b-c_9", "A name of all characters", {"properties": {"text": {"type": "string"}}}),
)
MARKERS = [
    "</tool_call>", "<tool_call>", '{"name": "get"}', "[TOOL_CALLS]", "<|end|>", "]<|END_ACTION|>",
    "</arg_value", "<｜tool▁call▁end｜>", '"}', "\\", '\\"', "}}", "```", "\n\n", "<parameter=x>",
]  # fmt: skip
texts = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",))),
    st.lists(st.sampled_from(MARKERS)).map("".join),
    st.sampled_from(["null", "true", "12", "[]", '"quoted"', "x" * 10_000]),
)
numbers = st.one_of(
    st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
calls = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "place": texts,
            "note": texts,
            "days": numbers,
            "exact": st.booleans(),
            "units": st.lists(values, max_size=3),
            "more": st.dictionaries(texts, values, max_size=3),
        },
    ).map(lambda arguments: ("get_weather", arguments)),
    st.just(("get", {})),
    texts.map(lambda text: ("a.b-c_9", {"text": text})),
)


@pytest.fixture(scope="module", params=EXCERPTS)
def excerpt(request):
    return request.param, render_of(request.param), format_of(request.param)


@pytest.mark.parametrize("name", EXCERPTS)
def test_the_format_of_each_family_is_found(name):
    found, excerpt = format_of(name), EXCERPTS[name]
    assert (found.name, found.marker) == (excerpt.kind, excerpt.marker)
    assert found.several == excerpt.several


def rendered(render, format_, given):
    form = format_.id_form or "call{index:05}"
    made = [
        ToolCall(name, arguments, form.format(name=name, index=index))
        for index, (name, arguments) in enumerate(given)
    ]
    section = section_of(render, made, TOOLS, ())
    assert section is not None
    return section.removesuffix("<|call|>")


def ambiguous(format_, given):
    """Whether a text holds what ends a text, which tags cannot express.

    Templates that write Python escape nothing.
    """
    if isinstance(format_.arguments, PythonArguments):
        return bool(set("'\"\\\n") & set("".join(_texts_in([given]))))
    if not isinstance(format_.arguments, TaggedArguments):
        return False
    end, key = format_.arguments.value_end, format_.arguments.key_start
    texts = json.dumps([arguments for _, arguments in given], ensure_ascii=False)
    found = json.dumps(texts, ensure_ascii=False)
    return any(
        json.dumps(part, ensure_ascii=False)[1:-1].strip() in found
        for part in (end.strip() + key, end.strip() + format_.close)
    )


def _texts_in(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for part in pair for text in _texts_in(part))
    elif isinstance(value, list | tuple):
        yield from (text for part in value for text in _texts_in(part))


@given(data=st.data())
def test_calls_come_back_equal(excerpt, data):
    _, render, format_ = excerpt
    most = 3 if format_.several else 1
    given_ = data.draw(st.lists(calls, min_size=1, max_size=most))
    if ambiguous(format_, given_):
        return
    section = rendered(render, format_, given_)
    read, rest = parse_calls(format_, section, TOOLS)
    assert [(call.name, call.arguments) for call in read] == given_
    assert not rest.strip()


@settings(max_examples=settings.default.max_examples // 5)
@given(data=st.data())
def test_pieces_of_any_size_give_the_same_calls(excerpt, data):
    _, render, format_ = excerpt
    given_ = data.draw(st.lists(calls, min_size=1, max_size=2 if format_.several else 1))
    if ambiguous(format_, given_):
        return
    text = ("" if format_.only_first else "I look.\n") + rendered(render, format_, given_)
    parser, deltas, place = CallParser(format_, TOOLS), [], 0
    while place < len(text):
        size = data.draw(st.integers(1, 7)) if len(text) < 500 else 97
        deltas += parser.feed(text[place : place + size])
        place += size
    deltas += parser.finish()
    ended = [delta for delta in deltas if isinstance(delta, CallEnd)]
    assert [(end.call.name, end.call.arguments) for end in ended] == given_
    assert [end.index for end in ended] == list(range(len(given_)))
    starts = [delta for delta in deltas if isinstance(delta, CallStart)]
    assert [(start.index, start.id) for start in starts] == [(e.index, e.call.id) for e in ended]
    for end in ended:
        parts = [d.text for d in deltas if isinstance(d, ArgumentsDelta) and d.index == end.index]
        assert json.loads("".join(parts)) == end.call.arguments
    said = "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta))
    assert said.strip() == ("" if format_.only_first else "I look.")


@pytest.mark.parametrize("name", [name for name, excerpt in EXCERPTS.items() if excerpt.mlx_parser])
def test_mlx_lms_parsers_agree(name):
    module = importlib.import_module(f"mlx_lm.tool_parsers.{EXCERPTS[name].mlx_parser}")
    format_ = format_of(name)
    arguments = {"place": "Köln", "days": 2, "exact": True, "units": ["C"], "more": {"x": [1]}}
    section = rendered(render_of(name), format_, [("get_weather", arguments)])
    inside = section.strip().removeprefix(module.tool_call_start)
    inside = inside.removesuffix(module.tool_call_end)
    tools = [
        {"type": "function", "function": {"name": tool.name, "parameters": tool.parameters}}
        for tool in TOOLS
    ]
    theirs = module.parse_tool_call(inside, tools)
    [theirs] = theirs if isinstance(theirs, list) else [theirs]
    [ours], _ = parse_calls(format_, section, TOOLS)
    assert (theirs["name"], theirs["arguments"]) == (ours.name, ours.arguments)


_OF_A_MESSAGE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}CALLS<|end|>{% endfor %}"
UNREADABLE = {
    "a list of Python's calls": (
        ("{% for c in m.tool_calls %}[{{ c.function.name }}({% for k, v in c.function.arguments.items() %}{{ k }}='{{ v }}'"
        "{% if not loop.last %}, {% endif %}{% endfor %})]{% endfor %}"),
        "does not say what its arguments were|nothing sets an argument|in quotes",
    ),
    "the name twice": (
        "{% for c in m.tool_calls %}<{{ c.function.name }}>{{ c.function.arguments | tojson }}</{{ c.function.name }}>{% endfor %}",
        "the name of a tool 2 times in a call",
    ),
    "no marker": (
        "{% for c in m.tool_calls %}{{ c.function.name }}\n{{ c.function.arguments | tojson }}{% endfor %}",
        "a call begins with the name of a tool alone",
    ),
    "texts with entities": (
        ("{% for c in m.tool_calls %}<call>{{ c.function.name }}{% for k, v in c.function.arguments.items() %}<arg>{{ k }}</arg><value>"
        "{{ v | string | replace('<', '&lt;') }}</value>{% endfor %}</call>{% endfor %}"),
        "does not say what its arguments were",
    ),
    "texts without quotes": (
        "{% for c in m.tool_calls %}<call>{{ c.function.name }}({% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{{ '' if loop.last else ', ' }}{% endfor %}){% endfor %}",
        "the template writes texts in calls without quotes",
    ),
    "arguments as tags": (
        "{% for c in m.tool_calls %}<call>{{ c.function.name }}{% for k, v in c.function.arguments.items() %}<{{ k }}>{{ v }}</{{ k }}>{% endfor %}</call>{% endfor %}",
        "the name of an argument 2 times in a call",
    ),
    "a marker of all messages": (
        "{% for c in m.tool_calls %}<|assistant|>{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}",
        "so calls cannot be told apart",
    ),
    "an unknown value": (
        "{% for c in m.tool_calls %}<call>{{ c.function.name + functions }}{% endfor %}",
        "needs a value named functions, which akunu does not have",
    ),
    "no calls": ("", "cannot be written: the model's chat template leaves tool_calls out"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNREADABLE)
def test_other_formats_are_named(name):
    calls, reason = UNREADABLE[name]
    source = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}" + _OF_A_MESSAGE
    with pytest.raises(UnknownFormatError, match=reason):
        probe_format(renderer(source.replace("CALLS", calls)), ENDS)


def _templates() -> list[Path]:
    folder = Path(os.environ.get("AKUNU_TEMPLATES", SHARED / "templates"))
    return sorted(folder.glob("*.jinja"))


@cache
def _found(path):
    render = renderer(path.read_text())
    ends = (
        *ENDS,
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|tool_response>",
        "<|eom|>",
        "<|eot|>",
    )
    try:
        return render, probe_format(render, ends)
    except UnknownFormatError as error:
        return render, error.message


@pytest.mark.slow
@pytest.mark.skipif(not _templates(), reason="no templates at AKUNU_TEMPLATES or shared/templates")
@pytest.mark.parametrize("path", _templates(), ids=lambda path: path.stem)
@given(data=st.data())
def test_templates_of_models(path, data):
    """Whatever is found is right: a template's format is unknown, or its calls come back equal."""
    render, format_ = _found(path)
    if isinstance(format_, str):
        pytest.skip(format_)
    most = 3 if format_.several else 1
    given_ = data.draw(st.lists(calls, min_size=1, max_size=most))
    if ambiguous(format_, given_):
        return
    section = rendered(render, format_, given_)
    read, rest = parse_calls(format_, section, TOOLS)
    assert [(call.name, call.arguments) for call in read] == given_
    assert rest.strip() in ("", *ENDS, "<|eom|>")


def test_messages_can_follow(excerpt):
    """A conversation with the calls that were read can be written, results included."""
    _, render, format_ = excerpt
    [call], _ = parse_calls(format_, rendered(render, format_, [("get", {})]), TOOLS)
    said = [
        Message("user", "now"),
        Message("assistant", tool_calls=(call,)),
        Message("tool", "a result", tool_call_id=call.id),
    ]
    assert "a result" in render(said, TOOLS)
