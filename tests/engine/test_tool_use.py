"""Chats with tools: what is required is called, what is streamed adds up, and nothing half is a call."""

import json

import pytest
from gguf_files import CHAT_TEMPLATE, write_tiny_llama

from akunu_py import ConfigError, Engine, Message, Tool, ToolCall
from akunu_py.values.reply_deltas import ArgumentsDelta, CallEnd, CallStart, ContentDelta

PLACE = {
    "type": "object",
    "properties": {"place": {"enum": ["Rome", "Köln"]}},
    "required": ["place"],
}
TOOLS = [Tool("weather", "The weather", PLACE), Tool("now", "The time")]
ASK = [Message("user", "hello")]
HERMES = (
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}"
    '{% for c in m.tool_calls %}{{ "<tool_call>\\n" }}{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}'
    '{{ "\\n" }}</tool_call>{% endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}'
)


@pytest.fixture(scope="module", params=["native", "described"])
def engine(request, tmp_path_factory):
    template = HERMES if request.param == "native" else CHAT_TEMPLATE
    path = tmp_path_factory.mktemp("tools") / f"{request.param}.gguf"
    write_tiny_llama(path, context=2048, chat_template=template)
    with Engine.load(path) as loaded:
        yield loaded


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_required_call_is_made(engine, temperature):
    stream = engine.stream_chat(
        ASK, tools=TOOLS, tool_choice="required", max_tokens=400, temperature=temperature, seed=3
    )
    deltas = [delta for event in stream for delta in event.deltas]
    result = stream.result
    calls = result.message.tool_calls
    assert calls
    assert all(call.name in ("weather", "now") for call in calls)
    ends = [delta for delta in deltas if isinstance(delta, CallEnd)]
    starts = [delta for delta in deltas if isinstance(delta, CallStart)]
    assert tuple(end.call for end in ends) == calls
    assert [(s.index, s.id, s.name) for s in starts][: len(ends)] == [
        (end.index, end.call.id, end.call.name) for end in ends
    ]
    for end in ends:
        texts = [d.text for d in deltas if isinstance(d, ArgumentsDelta) and d.index == end.index]
        assert json.loads("".join(texts)) == end.call.arguments
    assert not any(isinstance(delta, ContentDelta) for delta in deltas)
    assert result.text.startswith("<tool_call>\n")
    assert (result.finish_reason == "tool_calls") == (result.unfinished_call is None)


def test_a_named_tool_is_called_once(engine):
    result = engine.chat(ASK, tools=TOOLS, tool_choice={"name": "weather"}, max_tokens=200)
    [call] = result.message.tool_calls
    assert call.name == "weather"
    assert call.arguments["place"] in ("Rome", "Köln")
    assert result.finish_reason == "tool_calls"


def test_some_tools_may_be_called(engine):
    choice = {"mode": "required", "names": ["now"]}
    result = engine.chat(ASK, tools=TOOLS, tool_choice=choice, max_tokens=100)
    assert {call.name for call in result.message.tool_calls} == {"now"}
    # The model is told of all tools.
    assert result.num_prompt_tokens == len(engine.chat_ids(ASK, TOOLS))
    for wrong in ({"mode": "none", "names": ["now"]}, {"mode": "auto", "names": []}):
        with pytest.raises(ConfigError, match="tool_choice is"):
            engine.chat(ASK, tools=TOOLS, tool_choice=wrong)
    with pytest.raises(ConfigError, match="'then', which is not among the tools: weather, now"):
        engine.chat(ASK, tools=TOOLS, tool_choice={"mode": "auto", "names": ["now", "then"]})


def test_drafts_change_nothing(engine):
    options = {"tools": TOOLS, "tool_choice": {"name": "weather"}, "max_tokens": 200}
    plain = engine.chat(ASK, **options, drafter="none")
    assert engine.chat(ASK, **options).token_ids == plain.token_ids


@pytest.mark.parametrize("size", [1, 5, 12])
def test_a_call_that_is_cut_is_not_a_call(engine, size):
    whole = engine.chat(ASK, tools=TOOLS, tool_choice={"name": "weather"}, max_tokens=200)
    cut = len(whole.token_ids) - 1 - size
    result = engine.chat(ASK, tools=TOOLS, tool_choice={"name": "weather"}, max_tokens=cut)
    assert result.finish_reason == "length"
    assert result.message.content == ""
    if not result.message.tool_calls:
        assert result.unfinished_call is not None
        return
    assert result.message.tool_calls[0].arguments == whole.message.tool_calls[0].arguments


def test_without_a_choice_text_is_text(engine):
    for choice in ("auto", "none"):
        result = engine.chat(ASK, tools=TOOLS, tool_choice=choice, max_tokens=12)
        assert result.message.content == result.text


def test_a_chat_without_tools_has_a_message(engine):
    stream = engine.stream_chat(ASK, max_tokens=20)
    deltas = [delta for event in stream for delta in event.deltas]
    assert "".join(delta.text for delta in deltas) == stream.result.message.content
    assert engine.generate("hello", max_tokens=3).message is None


def test_calls_and_results_are_in_the_next_prompt(engine):
    result = engine.chat(ASK, tools=TOOLS, tool_choice={"name": "weather"}, max_tokens=200)
    [call] = result.message.tool_calls
    said = [*ASK, result.message, Message("tool", "fourteen", tool_call_id=call.id)]
    stream = engine.stream_chat(said, tools=TOOLS, max_tokens=1)
    prompt = engine.tokenizer.decode(stream.prompt)
    stream.close()
    assert "fourteen" in prompt
    assert prompt.rindex('{"name": "weather", "arguments": ') > prompt.index("hello")
    assert call.arguments["place"] in prompt[prompt.index("hello") :]


def test_a_parser_can_be_chosen(tmp_path):
    with pytest.raises(ConfigError, match=r"tool_parser is 'kimi'; .* has .*kimi_k2, kimi_k3, "):
        Engine.load(tmp_path / "never.gguf", tool_parser="kimi")
    path = tmp_path / "model.gguf"
    write_tiny_llama(path, context=2048, chat_template=HERMES)
    with Engine.load(path, tool_parser="kimi_k3") as loaded, loaded.sibling() as another:
        for engine in (loaded, another):
            with pytest.raises(ConfigError, match="by mlx-lm's parser kimi_k3, so they cannot be"):
                engine.chat(ASK, tools=TOOLS, tool_choice="required")


def test_what_is_wrong_is_named(engine):
    with pytest.raises(ConfigError, match="tool_choice is 'maybe'; give 'auto'"):
        engine.chat(ASK, tools=TOOLS, tool_choice="maybe")
    with pytest.raises(ConfigError, match="'required', but there are no tools"):
        engine.chat(ASK, tool_choice="required")
    with pytest.raises(
        ConfigError, match="names 'run', which is not among the tools: weather, now"
    ):
        engine.chat(ASK, tools=TOOLS, tool_choice={"name": "run"})
    with pytest.raises(ConfigError, match="cannot have a constraint, too"):
        engine.chat(ASK, tools=TOOLS, regex="a+")
    with pytest.raises(ConfigError, match="cannot have a constraint, too"):
        engine.chat(ASK, tools=TOOLS, tool_choice="required", json_schema={})


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("drafter", ["none", "ngram"])
def test_a_model_that_would_not_call_answers_in_the_callers_schema(engine, drafter, temperature):
    """The schema leaves a model the choice that it would make without: prose is no call."""

    def reply(liked):
        before = engine.tokenizer.encode("\n")
        first = engine.tokenizer.encode("\n" + liked, parse_special=True)[len(before)]
        options = {"max_tokens": 60, "temperature": temperature, "drafter": drafter, "seed": 3}
        result = engine.chat(
            ASK, tools=TOOLS, json_schema={"enum": ["yes", "no"]}, logit_bias={first: 100.0}, **options
        )  # fmt: skip
        return result.text.lstrip()

    assert json.loads(reply("Hello")) in ("yes", "no")
    assert reply("<tool_call>").startswith("<tool_call>")


def test_a_template_with_calls_of_an_unknown_form(tmp_path):
    # The name of the tool stands in the end of a call, too.
    template = HERMES.replace("</tool_call>", "</{{ c.function.name }}>")
    path = write_tiny_llama(tmp_path / "odd.gguf", context=2048, chat_template=template)
    with Engine.load(path) as engine:
        with pytest.raises(ConfigError, match=r"tool calls of this model cannot be read: .*; with"):
            engine.chat(ASK, tools=TOOLS)
        result = engine.chat(ASK, tools=TOOLS, tool_choice="none", max_tokens=3)
        assert result.message is not None


def test_a_call_in_a_message_is_a_value():
    call = ToolCall("weather", {"place": "Rome"}, "abc")
    assert Message("assistant", tool_calls=(call,)).tool_calls == (call,)
