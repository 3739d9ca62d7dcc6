"""A last message of the assistant is continued: without a seam, and the reply has what follows."""

import functools

import pytest
from gguf_files import write_tiny_llama

from akunu_py import ConfigError, Engine, Message, Tool, ToolCall
from akunu_py.engine.reply_text import MessageReader
from akunu_py.values.constraint import Constraint
from akunu_py.values.types import TextPiece

THINKS = (
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' }}{% if m.reasoning_content %}"
    "{{ '<think>\n' + m.reasoning_content | trim + '\n</think>\n\n' }}{% endif %}{{ m.content | trim }}"
    '{% for c in m.tool_calls %}{{ "<tool_call>\n" }}{"name": "{{ c.function.name }}", "arguments": '
    '{{ c.function.arguments | tojson }}}{{ "\n</tool_call>" }}{% endfor %}{{ "<|end|>\n" }}{% endfor %}'
    "{% if add_generation_prompt %}{{ '<|assistant|>\n<think>\n' }}{% endif %}"
)
TOOLS = [Tool("weather", "The weather")]
U = functools.partial(Message, "user")
A = functools.partial(Message, "assistant")
SHORT = {"max_tokens": 12, "seed": 5, "temperature": 1.0}


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    path = tmp_path_factory.mktemp("continued") / "thinks.gguf"
    write_tiny_llama(path, context=2048, chat_template=THINKS)
    with Engine.load(path) as loaded:
        yield loaded


def prompt_of(engine, *messages, **options):
    return engine.tokenizer.decode(engine.chat_ids(messages, **options), with_control=True)


@pytest.mark.parametrize(
    ("last", "end"),
    [
        (A("The answer"), "<|assistant|>\nThe answer"),
        (A("The answer is \n"), "<|assistant|>\nThe answer is \n"),
        (A("b", reasoning="a"), "<|assistant|>\n<think>\na\n</think>\n\nb"),
        (A(reasoning="a thought "), "<|assistant|>\n<think>\na thought "),
        (A("an <|end|>"), "<|assistant|>\nan <|end|>"),
        (A("a\ufdd0"), "<|assistant|>\na\ufdd0"),
        (A(""), "<|assistant|>\n<think>\n"),
    ],
)
def test_the_prompt_ends_with_the_message(engine, last, end):
    assert prompt_of(engine, U("hello"), last) == f"<|user|>\nhello<|end|>\n{end}"
    assert prompt_of(engine, U("hello"), last, continued=False).endswith("<|assistant|>\n<think>\n")


def test_the_reply_is_that_of_one_text(engine):
    reply = engine.chat([U("hello"), A("The answer")], **SHORT)
    plain = engine.generate("<|user|>\nhello<|end|>\n<|assistant|>\nThe answer", **SHORT)
    assert reply.token_ids == plain.token_ids
    assert reply.text == reply.message.text == plain.text
    assert not reply.message.reasoning


def test_thoughts_go_on_as_thoughts(engine):
    reply = engine.chat([U("hello"), A(reasoning="a thought")], **SHORT)
    assert reply.message.reasoning
    assert not reply.message.text


def read(before, said, text):
    reader = MessageReader(before, None, said)
    reader.feed([TextPiece(text)])
    reader.finish(cut=True)
    return reader.message.reasoning, reader.message.text


@pytest.mark.parametrize(
    ("before", "said", "text", "reasoning", "answer"),
    [
        ("<|assistant|>", "It is", " so", "", " so"),
        ("<|assistant|>", "It is ", "<think>", "", "<think>"),
        ("<think>\n", "I see", " it\n</think>\n\nYes", " it", "Yes"),
        ("<|assistant|>", "<think>I", " see</think>Yes", " see", "Yes"),
        ("<|assistant|>", "<think>I</think>", "\nYes", "", "Yes"),
        ("<|channel|>final<|message|>", "It is", " so", "", " so"),
        ("<|channel|>analysis<|message|>", "I", " see<|end|>", " see", ""),
    ],
)
def test_what_was_said_is_no_part_of_the_message(before, said, text, reasoning, answer):
    assert read(before, said, text) == (reasoning, answer)


def test_with_tools_the_reply_may_call(engine):
    reply = engine.chat(
        [U("hello"), A("I look.\n")], tools=TOOLS, tool_choice="required", max_tokens=60, seed=1
    )
    assert reply.message.tool_calls or reply.unfinished_call
    assert not reply.message.text


@pytest.mark.parametrize(
    ("last", "options", "reason"),
    [
        (A("a", (ToolCall("weather", {}, "c"),)), {}, "tool_calls, so it cannot be continued"),
        (A("a"), {"constraint": Constraint.json_schema({})}, "cannot have a form"),
        (A('<tool_call>\n{"name": "weather", "arguments": {'), {"tools": TOOLS}, "begins a call"),
    ],
)
def test_what_cannot_be_continued_is_named(engine, last, options, reason):
    with pytest.raises(ConfigError, match=reason):
        engine.check_chat([U("hello"), last], **options)


def test_a_template_without_thoughts_cannot_continue_them(tmp_path):
    write_tiny_llama(tmp_path / "m.gguf", context=256)
    with Engine.load(tmp_path / "m.gguf") as plain:
        assert plain.check_chat([U("hello"), A("a")])
        with pytest.raises(ConfigError, match="no place where the assistant's last message"):
            plain.check_chat([U("hello"), A(reasoning="a")])
