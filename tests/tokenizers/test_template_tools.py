"""Tools, calls and results in chat templates: the form each takes, as transformers writes it.

The templates here have the ways of real families in few lines; Gemma 4's is the model's own.
"""

import json

import pytest
from gguf_files import CONTROL_TOKENS
from hostile_templates import HOSTILE
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_files import SHARED
from test_gguf_tokenizer import tiny, tiny_metadata

from akunu_py.gguf.reader import GGUFFile
from akunu_py.system.errors import ConfigError, ModelFormatError
from akunu_py.tokenizers import ChatTemplate, sandbox
from akunu_py.values.messages import Message, TextPart, Tool, ToolCall, read_messages, read_tools

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather <now> at a place",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "description": "City & country"},
                    "days": {"type": "integer", "description": "How many"},
                },
                "required": ["place"],
            },
        },
    }
]


def call(number, **arguments):
    function = {"name": "get_weather", "arguments": arguments}
    return {"id": f"call0000{number}", "type": "function", "function": function}


def result(number, content):
    return {
        "role": "tool", "content": content, "tool_call_id": f"call0000{number}",
        "name": "get_weather",
    }  # fmt: skip


ASKED = [{"role": "user", "content": "The weather in Köln?"}]
CALLED = [
    *ASKED,
    {
        "role": "assistant", "content": "", "reasoning_content": "I'll look.",
        "tool_calls": [call(1, place="Köln", days=2)],
    },
    result(1, '{"t": 5}'),
]  # fmt: skip
GOES_ON = [
    {"role": "system", "content": "Be brief."},
    *CALLED,
    {"role": "assistant", "content": "Five degrees."},
    {"role": "user", "content": "Paris and Rome?"},
    {"role": "assistant", "content": "", "tool_calls": [call(2, place="Paris"), call(3)]},
    result(2, "6"),
    result(3, "7"),
]
CONVERSATIONS = {"asked": ASKED, "called": CALLED, "goes on": GOES_ON}

_LISTED = "{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}"
# Qwen's, Hermes'.
OBJECTS = _LISTED + (
    "{% for m in messages %}[{{ m.role }}]{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}"
    "{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}"
    "{% endfor %}{% endfor %}"
)
# GLM's, Qwen3-Coder's.
ITEMS = OBJECTS.replace(
    "{{ c.function.arguments | tojson }}",
    "{% for k, v in c.function.arguments.items() %}<{{ k }}>{{ v }}</{{ k }}>{% endfor %}",
)
# Mistral's: ids of nine letters and digits.
IDS = _LISTED + (
    "{% for m in messages %}{% if m.tool_calls is defined %}{% for c in m.tool_calls %}"
    "{% if c.id | length != 9 %}{{ raise_exception('ids have 9 characters') }}{% endif %}"
    '{% set f = c.function | tojson %}{{ f[:-1] }}, "id": "{{ c.id }}"}{% endfor %}'
    "{% elif m.role == 'tool' %}{{ m.content }}{{ m.tool_call_id }}{% else %}{{ m.content }}{% endif %}"
    "{% endfor %}"
)
# functionary's: arguments are a text between others.
TEXT = OBJECTS.replace("c.function.arguments | tojson", "'=' + c.function.arguments + ';'")
# The first DeepSeek R1's: calls only where there is no content, and arguments that are a text.
NO_CONTENT = _LISTED + (
    "{% for m in messages %}{% if m.role == 'assistant' and m.content is none %}"
    "{% for c in m.tool_calls %}{{ c.function.name + c.function.arguments }}{% endfor %}"
    "{% elif m.content is not none %}{{ m.role + m.content }}{% endif %}{% endfor %}"
)
# Apriel's: prints what it is given.
PRINTS = OBJECTS.replace("c.function.arguments | tojson", "c.function.arguments")
SOURCES = {"objects": OBJECTS, "items": ITEMS, "ids": IDS}


def written(source, messages, tools=None):
    template = ChatTemplate(source, {"bos": "<s>"})
    values, given_tools = template.input.of(read_messages(messages), read_tools(tools))
    return template.render(values, tools=given_tools)


def by_transformers(source, messages, tools):
    chat = pytest.importorskip("transformers.utils.chat_template_utils")
    texts, _ = chat.render_jinja_template(
        [messages], tools=tools, chat_template=source, add_generation_prompt=True, bos_token="<s>"
    )
    return texts[0]


def real_template(name):
    path = SHARED / "vocabs" / f"ggml-vocab-{name}.gguf"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    with GGUFFile.open(path) as file:
        return file.metadata["tokenizer.chat_template"]


@pytest.fixture(scope="module")
def gemma():
    return real_template("gemma-4")


def count_renders(template):
    """Return a list that gets an item each time the template is tried."""
    asked, render = [], template.input._render
    template.input._render = lambda *arguments: asked.append(1) or render(*arguments)
    return asked


@pytest.mark.parametrize("name", CONVERSATIONS)
class TestAgreesWithTransformers:
    @pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
    @pytest.mark.parametrize("tools", [TOOLS, None], ids=["tools", "no tools"])
    def test_on_ways_of_families(self, name, source, tools):
        messages = CONVERSATIONS[name]
        assert written(source, messages, tools) == by_transformers(source, messages, tools)

    @pytest.mark.parametrize("tools", [TOOLS, None], ids=["tools", "no tools"])
    def test_on_gemmas_own(self, gemma, name, tools):
        messages = CONVERSATIONS[name]
        text = written(gemma, messages, tools)
        assert text == by_transformers(gemma, messages, tools)
        assert ("City & country" in text) == (tools is not None)
        assert ('{"t": 5}' in text) == (name != "asked")

    @pytest.mark.parametrize("source", [TEXT, NO_CONTENT, PRINTS], ids=["text", "none", "prints"])
    def test_where_arguments_are_a_text(self, name, source):
        given_ones = [dict(message) for message in CONVERSATIONS[name]]
        for message in given_ones:
            if "tool_calls" in message:
                message["content"] = None if source is NO_CONTENT else ""
                message["tool_calls"] = [
                    {**called, "function": {
                        "name": "get_weather",
                        "arguments": json.dumps(called["function"]["arguments"], ensure_ascii=False),
                    }}
                    for called in message["tool_calls"]
                ]  # fmt: skip
        expected = by_transformers(source, given_ones, TOOLS)
        assert written(source, CONVERSATIONS[name], TOOLS) == expected
        # OpenAI's way to write the same.
        assert written(source, given_ones, TOOLS) == expected


PARTS = "{% for m in messages %}{% for p in m.content %}{{ p.text }},{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% for m in messages %}[{{ m.content }}]{% endfor %}", "[ab]"),
        ("{% for m in messages %}{{ m.content + '.' }}{% endfor %}", "ab."),
        ("{% for m in messages %}{{ m.content | tojson }}{% endfor %}", '"ab"'),
        (PARTS, "a,b,"),
    ],
)
def test_parts_are_joined_where_a_template_takes_texts_alone(source, text):
    parts = [{"type": "text", "text": part} for part in "ab"]
    assert written(source, [{"role": "user", "content": parts}]) == text


def test_parts_of_others_than_users_are_joined():
    source = "{% for m in messages %}{{ m.content | length }}{% endfor %}" + PARTS
    parts = (TextPart("abc"), TextPart("d"))
    assert written(source, [Message("user", parts), Message("system", parts)])[:2] == "24"


def test_what_a_template_leaves_out_is_an_error():
    plain = "{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}"
    with pytest.raises(ConfigError, match=r"leaves tools out; describe them in a message"):
        written(plain, ASKED, TOOLS)
    with pytest.raises(ConfigError, match=r"leaves tool_calls out; put a call into the content"):
        written(plain, CALLED)
    # As LFM2 wants it.
    messages = [*ASKED, {"role": "assistant", "content": "[look()]"}, result(1, "a")]
    assert written(plain, messages).endswith("assistant[look()]toola")
    users = "{% for m in messages if m.role != 'tool' %}{{ m.content }}{% endfor %}"
    with pytest.raises(ConfigError, match=r"leaves out messages of the role tool; give results as"):
        written(OBJECTS.replace("{% for m in messages %}", users[: users.index("{{")]), CALLED)


@pytest.mark.parametrize("name", ["phi-3", "qwen2"])
def test_real_templates_without_tools(name):
    source = real_template(name)
    with pytest.raises(ConfigError, match="leaves tools out"):
        written(source, ASKED, TOOLS)


@pytest.mark.parametrize("name", ["loops", "doubling a list"])
def test_hostile_templates_are_not_asked_again(name, monkeypatch):
    monkeypatch.setattr(sandbox, "TIME_LIMIT_S", 0.1)
    template = ChatTemplate(HOSTILE[name], {})
    asked = count_renders(template)
    with pytest.raises(ModelFormatError, match="chat template fails"):
        template.input.of(read_messages(CALLED), ())
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for p in m.content %}<{{ p.text | trim }}end|>{% endfor %}",
         Message("user", (TextPart("|"), TextPart(" |\n")))),
        ("<{{ m.reasoning_content }}end|>", Message("assistant", "a", reasoning="|")),
    ],
)  # fmt: skip
def test_what_is_said_does_not_become_whole_beside_the_template(template, message):
    source = f"{{% for m in messages %}}{template}{{% endfor %}}"
    metadata = tiny_metadata("bpe", tokenizer__chat_template=source)
    tokenizer = tiny("bpe", tokenizer__chat_template=source)
    ids = tokenizer.encode_chat([message])
    words = [metadata["tokenizer.ggml.tokens"][id_] for id_ in ids]
    assert [word for word in words if word in CONTROL_TOKENS] == ["<s>"]
    assert tokenizer.decode(ids) in ("<|end|>", "<|end|><|end|>")


SAID = [
    lambda text: Message("user", text),
    lambda text: Message("user", (TextPart("a"), TextPart(text), TextPart("b"))),
    lambda text: Message("assistant", "a", reasoning=text),
    lambda text: Message("assistant", tool_calls=(ToolCall("look_up", {"word": text}),)),
    lambda text: Message("assistant", tool_calls=(ToolCall("look_up", {text: [text]}),)),
    lambda text: Message("tool", text),
    lambda text: Message("tool", "a", name=text, tool_call_id=text),
]


@settings(max_examples=settings.default.max_examples * 5 // 3)
@given(
    parts=st.lists(st.sampled_from([*CONTROL_TOKENS, "<", "|", ">", "end", "s"]), min_size=1),
    say=st.sampled_from(SAID),
)
def test_nothing_said_makes_a_control_token(parts, say):
    text = "".join(parts)
    tool = Tool("look_up", text, {"properties": {text: {"enum": [text]}}})
    source = ITEMS.replace("{% endfor %}{% endfor %}", "{% endfor %}{{ m.name }}{% endfor %}")
    metadata = tiny_metadata("bpe", tokenizer__chat_template=source)
    tokenizer = tiny("bpe", tokenizer__chat_template=source)
    ids = tokenizer.encode_chat([Message("user", "Hi"), say(text)], tools=[tool])
    words = [metadata["tokenizer.ggml.tokens"][id_] for id_ in ids]
    assert [word for word in words if word in CONTROL_TOKENS] == ["<s>"]
    assert text in tokenizer.decode(ids)
