"""Conversations as strict templates accept them: no text is lost or moved, and prompts only grow."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from akunu_py.system.errors import ChatTemplateError
from akunu_py.tokenizers.accepted_turns import with_one_turn_each
from akunu_py.tokenizers.chat_template import ChatTemplate
from akunu_py.tool_calls.known import HERMES
from akunu_py.tool_calls.writing import with_calls_as_text
from akunu_py.values.messages import Message, TextPart, Tool, ToolCall

_TURN = "<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}<|end|>"
_LOOP = "{% for m in messages %}" + _TURN + "{% endfor %}"
_ALTERNATE = "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
IN_PLACE = {"in place": _LOOP}
"""Templates that take everything as it is."""
WAYS = {
    "refuses all but the first system message": (
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
        "{{ raise_exception('System message must be at the beginning') }}{% endif %}" + _TURN + "{% endfor %}"
    ),
    "moves all to the beginning": (
        "{% for m in messages if m.role == 'system' %}<|system|>{{ m.content }}{% endfor %}"
        "{% for m in messages if m.role != 'system' %}" + _TURN + "{% endfor %}"
    ),
    "leaves later ones out": (
        "{% for m in messages %}{% if m.role != 'system' or loop.first %}" + _TURN + "{% endif %}{% endfor %}"
    ),
    "writes the last one at the beginning too": (
        "{% for m in messages if m.role == 'system' %}{% if loop.last %}{{ m.content }}{% endif %}{% endfor %}" + _LOOP
    ),
    "Gemma 2: no system message, roles alternate": (
        "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
        "{% for m in messages %}" + _ALTERNATE + _TURN + "{% endfor %}"
    ),
    "Gemma 3: the system message is part of the first question": (
        "{% set first = messages[0].content + '\n\n' if messages[0].role == 'system' else '' %}"
        "{% for m in (messages[1:] if first else messages) %}" + _ALTERNATE
        + "{{ first if loop.first }}" + _TURN + "{% endfor %}"
    ),
    "Gemma 1: no system message": "{% for m in messages if m.role != 'system' %}" + _TURN + "{% endfor %}",
    "Mistral Nemo: the system message is part of the last question, roles alternate beside calls": (
        "{% set first = messages[0].content if messages[0].role == 'system' else '' %}{% set n = namespace(i=0) %}"
        "{% for m in (messages[1:] if first else messages) %}{% if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}"
        "{% if (m.role == 'user') != (n.i % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{% set n.i = n.i + 1 %}{% endif %}"
        "{% if m.role == 'user' and loop.last %}{{ first }}{% endif %}{% if m.role == 'system' %}{{ raise_exception('only user and assistant') }}{% endif %}"
        + _TURN + "{% endfor %}"
    ),
    "Llama 3: one call a message, without text": (
        "{% for m in messages %}{% if m.tool_calls %}{% if m.tool_calls | length != 1 %}{{ raise_exception('one call') }}{% endif %}"
        "{{ m.tool_calls[0].function.arguments | tojson }}{% else %}" + _TURN + "{% endif %}{% endfor %}"
    ),
    "gpt-oss: only the first call, a result needs one": (
        "{% set n = namespace(c=false) %}{% for m in messages %}{% if m.role == 'tool' and not n.c %}{{ raise_exception('no call') }}{% endif %}"
        "{% set n.c = m.role == 'tool' or m.tool_calls %}<|{{ m.role }}|>{{ m.content }}"
        "{% if m.tool_calls %}{{ m.tool_calls[0].function.arguments | tojson }}{% endif %}{% endfor %}"
    ),
    "refuses an empty reply": (
        "{% for m in messages %}{% if m.role == 'assistant' and not (m.content or m.tool_calls) %}{{ raise_exception('empty') }}{% endif %}"
        + _TURN + "{% endfor %}"
    ),
    "Llama 3.1: tools are in the first question": (
        "{% set rest = messages %}{% if rest[0].role == 'system' %}<|system|>{{ rest[0].content }}<|end|>{% set rest = rest[1:] %}{% endif %}"
        "{% if tools %}{% if not rest %}{{ raise_exception('no question') }}{% endif %}"
        "<|user|>{{ tools[0].function.name }}{{ rest[0].content }}<|end|>{% set rest = rest[1:] %}{% endif %}"
        "{% for m in rest %}" + _TURN + "{% endfor %}"
    ),
    "Nemotron: leaves a last call out": (
        "{% for m in messages %}{% if not (loop.last and m.tool_calls) %}" + _TURN + "{% endif %}{% endfor %}"
    ),
    "Hermes: for tools alone, leaves the text of a call's message out": (
        "{% for t in tools %}{{ t.function.name }}{% endfor %}"
        "{% for m in messages %}{% if m.tool_calls %}{{ m.tool_calls[0].function.arguments | tojson }}"
        "{% for c in m.tool_calls[1:] %}{{ c.function.arguments | tojson }}{% endfor %}{% else %}" + _TURN + "{% endif %}{% endfor %}"
    ),
    "needs a question": (
        "{% if not messages | selectattr('role', 'equalto', 'user') | list %}{{ raise_exception('No user query') }}{% endif %}" + _LOOP
    ),
}  # fmt: skip
TEMPLATES = IN_PLACE | WAYS
S, U, A, T = (
    lambda text, role=role: Message(role, text) for role in ("system", "user", "assistant", "tool")
)


def calls(*values, text=""):
    return Message(
        "assistant", text, tuple(ToolCall("f", {"x": v}, f"call{v:0>5}") for v in values)
    )


def result(text, value):
    return Message("tool", text, tool_call_id=f"call{value:0>5}")


# In turns: what a client has sent by each of its requests.
CONVERSATIONS = {
    "at the beginning": [[S("s0"), U("u1")], [A("a1"), U("u2")]],
    "after the user": [[S("s0"), U("u1"), S("s1")], [A("a1"), U("u2"), S("s2")]],
    "after a result": [[S("s0"), U("u1")], [calls("c1"), result("t1", "c1"), S("s1")], [A("a2"), U("u2")]],
    "a countdown": [
        [S("s0"), U("u1"), S("n1")], [calls("c1"), result("t1", "c1"), S("n2")],
        [calls("c2"), result("t2", "c2"), S("n3")], [A("a1"), U("u2"), S("n4")],
    ],
    "two in a row": [[S("s0"), U("u1"), S("s1"), S("s2")], [A("a1"), U("u2"), S("s3"), S("s4")]],
    "two at the beginning": [[S("s0"), S("s1"), U("u1"), S("s2")], [A("a1"), U("u2")]],
    "after a reply": [[S("s0"), U("u1")], [A("a1"), S("s1"), U("u2")], [A("a2"), U("u3")]],
    "in parts": [[S("s0"), Message("user", (TextPart("u1"), TextPart("u2"))), S("s1")], [A("a1"), U("u3")]],
    "two questions": [[U("u1"), U("u2")], [A("a1"), U("u3"), U("u4"), U("u5")]],
    "two replies": [[U("u1")], [A("a1"), A("a2"), U("u2")]],
    "a reply first": [[A("a0"), U("u1")], [A("a1"), U("u2")]],
    "a system message, then a reply": [[S("s0"), A("a0"), U("u1")], [A("a1"), U("u2")]],
    "a result, then a question": [[U("u1")], [calls("c1"), result("t1", "c1"), U("u2")], [A("a1"), U("u3")]],
    "a call without a result": [[U("u1")], [calls("c1"), U("u2")], [A("a1"), U("u3")]],
    "a text, then a call": [[U("u1")], [A("a1"), calls("c1"), result("t1", "c1")], [A("a2"), U("u2")]],
    "two calls in two messages": [[U("u1")], [calls("c1"), result("t1", "c1"), calls("c2"), result("t2", "c2"), U("u2")], [A("a1"), U("u3")]],
    "a result alone": [[T("t0"), U("u1")], [A("a1"), U("u2")]],
    "an empty reply": [[U("u1")], [A(""), U("u2")]],
    "only a system message": [[S("s0")]],
    "two calls without results": [[U("u1")], [calls("c1", "c2"), U("u2")], [A("a1"), U("u3")]],
    "a result between replies": [[U("u1")], [A("a1"), T("t1"), A("a2"), U("u2")], [A("a3"), U("u3")]],
}  # fmt: skip


def words_in(messages):
    for message in messages:
        if isinstance(message.content, str):
            yield message.content
        else:
            yield from (part.text for part in message.content)
        yield from (call.arguments["x"] for call in message.tool_calls)


def written(template, messages):
    messages = list(messages)
    if _ALTERNATE in template.source:
        # As the engine does where there is no place for tools.
        messages = with_calls_as_text(messages, HERMES, results=True)
    values, tools = template.input.of(
        tuple(messages), TOOLS if " tools " in template.source else ()
    )
    return template.render(values, tools=tools, add_generation_prompt=False)


TOOLS = (Tool("f", "d", {"type": "object", "properties": {}}),)


@pytest.fixture(scope="module", params=TEMPLATES.values(), ids=TEMPLATES)
def template(request):
    return ChatTemplate(request.param, {})


@pytest.mark.parametrize("turns", CONVERSATIONS.values(), ids=CONVERSATIONS.keys())
def test_texts_stay_and_prompts_only_grow(template, turns):
    prompts = [
        written(template, itertools.chain(*turns[:count])) for count in range(1, len(turns) + 1)
    ]
    for shorter, longer in itertools.pairwise(prompts):
        assert longer.startswith(shorter)
    place = 0
    for word in words_in(itertools.chain(*turns)):
        place = prompts[-1].index(word, place) + len(word)
        assert not word or prompts[-1].count(word) == 1


def test_two_calls_in_one_message(template):
    """Where a template writes only one a message, each is followed by its result."""
    said = [U("u1"), calls("c1", "c2", text="a1"), result("t2", "c2"), result("t1", "c1"), U("u2")]
    text = written(template, said)
    assert all(word in text for word in words_in(said) if word != "a1")
    alone = "one call" in template.source or "only the first" in template.source
    assert not alone or text.index("t1") < text.index("c2")


@given(st.text("suatcdxr", min_size=1, max_size=7))
@settings(max_examples=80, deadline=None)
def test_any_conversation_is_whole_or_refused(template, letters):
    """Texts, calls, two at once, calls with a text, and results with and without one."""
    said, waiting = [], []
    for place, letter in enumerate(letters):
        word, ids = f"{letter}{place}.", [f"{place}{number}" for number in range(2)]
        if letter in "cdx":
            said.append(calls(*ids[: 1 + (letter == "d")], text=word if letter == "x" else ""))
            waiting += ids[: 1 + (letter == "d")]
        elif letter == "r":
            said.append(result(word, waiting.pop(0) if waiting else ids[0]))
        else:
            said.append({"s": S, "u": U, "a": A, "t": T}[letter](word))
    try:
        text = written(template, said)
    except ChatTemplateError:
        assert "u" not in letters
        return
    words = list(filter(None, words_in(said)))
    assert [text.count(word) for word in words] == [1] * len(words)
    places = [text.index(word) for word in words]
    # Two calls may be taken apart, a call be written before the text of its message, and a result
    # without an id behind that with the call's.
    assert places == sorted(places) or set(letters) & set("dxt")


def test_one_turn_each():
    parts = Message("user", (TextPart("c"), TextPart("d")))
    said = [U("a"), U("b"), parts, A("x"), calls("y"), result("z", "y"), U("e"), U("f")]
    merged = with_one_turn_each(said)
    assert [message.role for message in merged] == ["user", "assistant", "tool", "user"]
    assert merged[0].text == "a\n\nb\n\ncd"
    assert merged[1].text == "x"
    assert merged[1].tool_calls
    assert merged[3].text == "e\n\nf"


def test_a_refusal_names_the_reason_and_no_option_of_the_command_line():
    refuses = ChatTemplate("{{ raise_exception('not this') }}", {})
    with pytest.raises(ChatTemplateError) as caught:
        written(refuses, [U("u")])
    assert caught.value.message == "the model's chat template refuses the conversation: not this"
    assert "--raw" in str(caught.value)
