"""A prompt that is far too long is refused before all of it is tokenized, others as ever."""

import random

import pytest
from whole_replies import MEGABYTES, watch_tokenizer

from akunu_py import ContextOverflowError, Engine
from akunu_py.engine import request_checks
from akunu_py.engine.request_checks import check_chat_length, check_length
from akunu_py.gguf.reader import GGUFFile
from akunu_py.tokenizers import from_gguf
from akunu_py.values.messages import Message, TextPart, Tool


@pytest.fixture(scope="module")
def engine(tiny_gguf):
    with Engine.load(tiny_gguf) as engine:
        yield engine


@pytest.fixture
def tokenized(monkeypatch):
    return watch_tokenizer(monkeypatch)


@pytest.mark.parametrize("text", MEGABYTES.values(), ids=MEGABYTES)
def test_a_megabyte_is_not_tokenized_whole(engine, tokenized, text):
    calls = (
        lambda: engine.generate(text),
        lambda: engine.chat([{"role": "user", "content": text}]),
    )
    for call in calls:
        tokenized.clear()
        with pytest.raises(ContextOverflowError, match="and the context holds 256, the reply inc"):
            call()
        assert sum(tokenized) < len(text) / 4


def test_the_message_counts_what_was_tokenized(engine):
    with pytest.raises(ContextOverflowError) as error:
        engine.generate("1" * 100_000)
    assert str(error.value).startswith(
        "the first 65,536 characters of the prompt have 65,536 tokens and the context holds 256"
    )


def test_a_little_too_long_is_counted_whole(engine):
    for length in (256, 400):
        with pytest.raises(ContextOverflowError, match=f"the prompt has {length + 1} tokens"):
            engine.generate("1" * length)


def test_what_a_template_may_leave_out_is_not_counted(engine):
    hello, long = Message("user", "hello"), "1" * 100_000
    messages = [hello, Message("assistant", long, reasoning=long), hello]
    tool = Tool("look_up", "hello", {"properties": {"word": {"enum": ["1" * 100_000]}}})
    check_chat_length(messages, [tool], engine.tokenizer, engine.context)


@pytest.mark.parametrize(
    ("messages", "tools"),
    [
        ([Message("user", "1" * 100)] * 700, []),
        ([Message("user", (TextPart("1" * 100),) * 700)], []),
        ([Message("user", "hello"), Message("tool", "1" * 70_000)], []),
        ([Message("user", "hello")], [Tool("look_up", "1" * 70_000)]),
    ],
    ids=["messages", "parts", "result", "tool"],
)
def test_all_that_is_asked_counts(engine, messages, tools):
    with pytest.raises(ContextOverflowError):
        check_chat_length(messages, tools, engine.tokenizer, engine.context)


@pytest.mark.slow
def test_nothing_that_fits_is_refused(default_model, monkeypatch):
    """Nor what overfills the context by less than twice, cut into parts as it may be."""
    with GGUFFile.open(default_model) as file:
        tokenizer = from_gguf(file.metadata)
    monkeypatch.setattr(request_checks, "_PART", 500)
    draw = random.Random(7)
    words = [
        "    " * 8,
        "return self._value",
        "the ",
        "\n",
        "0",
        "\u4f60",
        "def read(",
        "\t",
        "<s>",
    ]
    refused = 0
    for _ in range(300):
        text = "".join(draw.choice(words) * draw.randrange(1, 60) for _ in range(20))
        count = len(tokenizer.encode(text))
        context = draw.choice([16, 64, 256, 1024])
        try:
            check_length([text], tokenizer, context)
        except ContextOverflowError:
            refused += 1
            assert count > 1.9 * context
        else:
            assert count <= 2 * context or len(text) <= max(4 * context, 500)
    assert 50 < refused < 250
