"""Formats read off templates: what the template writes is read back, whatever the arguments."""

import importlib
import json
import os
import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_files import SHARED
from template_excerpts import ENDS, EXCERPTS, format_of, render_of, renderer

from akunu_py.system.errors import ConfigError, ModelFormatError
from akunu_py.tool_calls.format import TAG, PythonArguments, QuotedArguments, TaggedArguments
from akunu_py.tool_calls.known import known_format
from akunu_py.tool_calls.parser import CallParser, parse_calls
from akunu_py.tool_calls.probing import UnknownFormatError, probe_format, section_of
from akunu_py.tool_calls.writing import write_calls
from akunu_py.values.messages import Message, Tool, ToolCall
from akunu_py.values.reply_deltas import ArgumentsDelta, CallEnd, CallStart, ContentDelta

# Command R+'s template fails on arguments without description, and on such objects.
WORD = {"description": "a word"}
TOOLS = (
    Tool(
        "get_weather",
        "The weather",
        {
            "type": "object",
            "properties": {
                "place": {"type": "string", **WORD},
                "note": {"type": "string", **WORD},
                "days": {"type": "number", **WORD},
                "exact": {"type": "boolean", **WORD},
                "units": {"type": "array", **WORD},
                "more": {"type": "object", "additionalProperties": {}, **WORD},
            },
        },
    ),
    Tool("get", "Without arguments"),
    Tool("a.b-c_9", "All characters", {"properties": {"text": {"type": "string", **WORD}}}),
)
EDGES = [
    0, -1, 2**53 + 1, 2**63, -(2**64), 10**20, 0.1, -0.0, 1e22, 1e-7, 5e-324, 1.7976931348623157e308,
]  # fmt: skip
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


# One of each kind of format.
KINDS = ("hermes", "llama", "qwen coder", "lfm", "gpt-oss", "gemma")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=() if name in KINDS else pytest.mark.slow) for name in EXCERPTS
    ],
)
def excerpt(request):
    return request.param, render_of(request.param), format_of(request.param)


@pytest.mark.parametrize("name", EXCERPTS)
def test_the_format_of_each_family_is_found(name):
    found, excerpt = format_of(name), EXCERPTS[name]
    assert (found.name, found.marker) == (excerpt.kind, excerpt.marker)
    assert found.several == excerpt.several


def hard_calls(format_):
    """Yield calls with what a format may take for its own: its texts, and values at the edges."""
    own = [*MARKERS, *format_.texts, "".join(format_.texts)]
    long = ["x" * 10_000, "ü\n" * 5_000, "🙂" * 10_000]
    for text in (
        *own,
        *long,
        "",
        " ",
        "\n",
        "\t x \n",
        "\x00\x1f\x7f",
        "\u2028é\ufeff",
        "'a' \"b\" `c`",
    ):
        yield ("get_weather", {"place": text, "note": f"a{text}b"})
        yield ("get_weather", {"units": [text], "more": {"x": text}})
    for number in EDGES:
        yield ("get_weather", {"days": number, "units": [number, -number]})
    yield ("get_weather", {"units": [], "more": {}})
    yield ("get_weather", {"units": [[], {}, None, True], "more": {"x": {"y": []}}})
    yield ("get_weather", {"more": {"": None, "a": {"": ""}}})
    yield ("a.b-c_9", {"text": "{}"})
    yield ("get", {})


def rendered(render, format_, given, ends=ENDS):
    form = format_.id_form or "call{index:05}"
    made = [
        ToolCall(name, arguments, form.format(name=name, index=index))
        for index, (name, arguments) in enumerate(given)
    ]
    section = section_of(render, made, TOOLS, ())
    assert section is not None
    end = next((end for end in ends if section.rstrip().endswith(end)), "")
    return section.rstrip().removesuffix(end) if end else section


def ambiguous(format_, given):
    """Whether the notation cannot express these arguments: docs/tools.md says what each cannot.

    Tags and quotes of a format end a text, and templates that write Python escape nothing.
    """
    notation = format_.arguments
    texts = list(_texts_in([arguments for _, arguments in given]))
    if isinstance(notation, PythonArguments):
        values = [value for _, arguments in given for value in arguments.values()]
        inner = _texts_in([value for value in values if not isinstance(value, str)])
        return bool(set("'\"\\\n") & set("".join(texts))) or not "".join(inner).isprintable()
    if isinstance(notation, QuotedArguments):
        keys = _keys_in([arguments for _, arguments in given])
        return any(notation.quote in text for text in texts) or any(
            not re.fullmatch(r"[\w.$-]*", key) for key in keys
        )
    if not isinstance(notation, TaggedArguments):
        return False
    ends = [notation.value_end.strip() + text for text in (notation.key_start, format_.close)]
    written = json.dumps([json.dumps(texts, ensure_ascii=False), *texts], ensure_ascii=False)
    return any(json.dumps(end, ensure_ascii=False)[1:-1].strip() in written for end in ends)


def _keys_in(value):
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list | tuple):
        yield from (key for part in value for key in _keys_in(part))


def _texts_in(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for part in pair for text in _texts_in(part))
    elif isinstance(value, list | tuple):
        yield from (text for part in value for text in _texts_in(part))


def test_what_looks_like_the_format_comes_back_equal(excerpt):
    _, render, format_ = excerpt
    checked = 0
    for call in hard_calls(format_):
        if not ambiguous(format_, [call]):
            read, rest = parse_calls(format_, rendered(render, format_, [call]), TOOLS)
            assert [(call.name, call.arguments) for call in read] == [call]
            assert not rest.strip()
            checked += 1
    assert checked > 30


@given(data=st.data())
def test_calls_come_back_equal(excerpt, data):
    _, render, format_ = excerpt
    most = 3 if format_.several else 1
    given_ = data.draw(st.lists(calls, min_size=1, max_size=most))
    if ambiguous(format_, given_):
        return
    read, rest = parse_calls(format_, rendered(render, format_, given_), TOOLS)
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


ENDS_OF_MODELS = (
    *ENDS, "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|tool_response>", "<|eom|>", "<|eot|>",
)  # fmt: skip
OF_EACH_MODEL = pytest.mark.parametrize("path", _templates(), ids=lambda path: path.stem)


@cache
def _found(path):
    """Return how a template's calls are written, and their format; skip if there is none."""
    render = renderer(path.read_text())
    try:
        prompt = render([Message("user", "words")], TOOLS)
    except ConfigError:  # no place for tools, but there may be one for calls
        shown, prompt = (lambda messages, _: render(messages, ())), ""
    except ModelFormatError:
        shown, prompt = render, ""
    else:
        shown = render
    try:
        format_ = probe_format(shown, ENDS_OF_MODELS)
    except UnknownFormatError as error:
        format_ = known_format(prompt, TAG.findall(path.read_text()))
        return (error.message, None) if format_ is None else (None, format_)
    return shown, format_


def _check_read(path, given_):
    """Check that what the template writes, or akunu in its place, is read back equal."""
    render, format_ = _found(path)
    if ambiguous(format_, given_) or (
        # Jinja's filter takes these characters for ends of lines: Command R+ loses them.
        re.search(r"\|\s*indent\(", path.read_text())
        and re.search("[\x85\u2028\u2029]", "".join(_texts_in([given_])))
    ):
        return
    if render is None:
        made = [ToolCall(*parts, f"functions.{parts[0]}:0") for parts in given_]
        section = write_calls(format_, made)
    else:
        section = rendered(render, format_, given_, ENDS_OF_MODELS)
    read, rest = parse_calls(format_, section, TOOLS)
    assert [(call.name, call.arguments) for call in read] == given_
    assert not rest.strip()


@pytest.mark.slow
@pytest.mark.skipif(not _templates(), reason="no templates at AKUNU_TEMPLATES or shared/templates")
@OF_EACH_MODEL
@given(data=st.data())
def test_templates_of_models(path, data):
    """Whatever is found is right: a template's format is unknown, or its calls come back equal."""
    reason, format_ = _found(path)
    if format_ is None:
        pytest.skip(reason)
    most = 3 if format_.several else 1
    _check_read(path, data.draw(st.lists(calls, min_size=1, max_size=most)))


@pytest.mark.slow
@pytest.mark.skipif(not _templates(), reason="no templates at AKUNU_TEMPLATES or shared/templates")
@OF_EACH_MODEL
def test_hard_arguments_in_templates_of_models(path):
    reason, format_ = _found(path)
    if format_ is None:
        pytest.skip(reason)
    for call in hard_calls(format_):
        _check_read(path, [call])
