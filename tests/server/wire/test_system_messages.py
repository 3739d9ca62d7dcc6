"""System messages in the middle: no text is lost, and a longer conversation only adds to its end."""

import itertools

import pytest

from akunu_py.messages import Message, TextPart, ToolCall
from akunu_py.server.system_messages import as_notes, keeps_in_place, merged_beginning
from akunu_py.tokenizers.chat_template import ChatTemplate

_LOOP = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
TEMPLATES = {
    "in place": _LOOP,
    "refuses all but the first": (
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
        "{{ raise_exception('System message must be at the beginning') }}{% endif %}"
        "<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    ),
    "moves all to the beginning": (
        "{% for m in messages if m.role == 'system' %}<|system|>{{ m.content }}{% endfor %}"
        "{% for m in messages if m.role != 'system' %}<|{{ m.role }}|>{{ m.content }}<|end|>"
        "{% endfor %}"
    ),
    "leaves later ones out": (
        "{% for m in messages %}{% if m.role != 'system' or loop.first %}"
        "<|{{ m.role }}|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    ),
    "writes the last one at the beginning too": (
        "{% for m in messages if m.role == 'system' %}{% if loop.last %}{{ m.content }}{% endif %}"
        "{% endfor %}" + _LOOP
    ),
}
S, U, A, T = (
    lambda text, role=role: Message(role, text) for role in ("system", "user", "assistant", "tool")
)
# In turns: what a client has sent by each of its requests.
CONVERSATIONS = {
    "at the beginning": [[S("s0"), U("u1")], [A("a1"), U("u2")]],
    "after the user": [[S("s0"), U("u1"), S("s1")], [A("a1"), U("u2"), S("s2")]],
    "after a result": [
        [S("s0"), U("u1")],
        [Message("assistant", "a1", (ToolCall("f"),)), T("t1"), S("s1")],
        [A("a2"), U("u2")],
    ],
    "two in a row": [[S("s0"), U("u1"), S("s1"), S("s2")], [A("a1"), U("u2"), S("s3"), S("s4")]],
    "two at the beginning": [[S("s0"), S("s1"), U("u1"), S("s2")], [A("a1"), U("u2")]],
    "after a reply": [[S("s0"), U("u1")], [A("a1"), S("s1"), U("u2")], [A("a2"), U("u3")]],
    "in parts": [[S("s0"), Message("user", (TextPart("u1"), TextPart("u2"))), S("s1")], [A("a1"), U("u3")]],
}  # fmt: skip


def written(template, messages):
    return template.render(
        [{"role": message.role, "content": message.text} for message in messages],
        add_generation_prompt=False,
    )


@pytest.mark.parametrize("turns", CONVERSATIONS.values(), ids=CONVERSATIONS.keys())
@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES.keys())
def test_texts_stay_and_prompts_only_grow(source, turns):
    template = ChatTemplate(source, {})
    kept = keeps_in_place(lambda messages: written(template, messages))
    assert kept == (source == TEMPLATES["in place"])
    prompts = []
    for count in range(1, len(turns) + 1):
        messages = merged_beginning([message for turn in turns[:count] for message in turn])
        prompts.append(written(template, messages if kept else as_notes(messages)))
    for shorter, longer in itertools.pairwise(prompts):
        assert longer.startswith(shorter)
    for message in itertools.chain(*turns):
        assert message.text in prompts[-1]
    places = [prompts[-1].index(message.text) for message in itertools.chain(*turns)]
    assert places == sorted(places)


def test_first_system_messages_are_one():
    merged = merged_beginning([S("a"), S("b"), U("c"), S("d")])
    assert [message.text for message in merged] == ["a\n\nb", "c", "d"]
    assert merged_beginning([S("a"), S("b")]) == (Message("system", "a\n\nb"),)
    assert merged_beginning([U("a")]) == (U("a"),)
    assert merged_beginning([]) == ()


def test_no_two_messages_of_the_user_follow_each_other():
    notes = as_notes([U("u1"), A("a1"), S("s1"), U("u2")])
    assert [message.role for message in notes] == ["user", "assistant", "user"]
    assert as_notes([U("u1"), A("a1"), S("s1")])[-1].role == "user"
    assert as_notes([U("u1"), A("a1"), S("s1"), A("a2")])[2].role == "user"
