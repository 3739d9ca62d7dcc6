"""docs/python.md: its asyncio example is run, and help(Engine) shows what is for users."""

import asyncio
import pydoc
import re
from pathlib import Path

import pytest

from akunu_py import ConfigError, Engine

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture
def async_engine(tiny_gguf):
    (code,) = [
        one for one in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
        if "class AsyncEngine" in one
    ]  # fmt: skip
    names = {}
    exec(code, names)  # noqa: S102 - the page's own example
    engine = names["AsyncEngine"](tiny_gguf)
    yield engine
    engine.close()


def test_the_example_for_asyncio(async_engine, engine):
    expected = engine.chat(MESSAGES, max_tokens=12).token_ids

    async def streamed():
        return [
            token
            async for event in async_engine.stream(MESSAGES, max_tokens=12)
            for token in event.token_ids
        ]

    async def left_early():
        stream = async_engine.stream(MESSAGES, max_tokens=200)
        await anext(stream)
        await stream.aclose()

    async def failing():
        with pytest.raises(ConfigError, match="max_tokens"):
            async for _ in async_engine.stream(MESSAGES, max_tokens=0):
                pass

    async def all_of_them():
        chats = [async_engine.chat(MESSAGES, max_tokens=12) for _ in range(3)]
        *replies, tokens = await asyncio.gather(*chats, streamed())
        await left_early()
        await failing()
        return replies, tokens, await async_engine.chat(MESSAGES, max_tokens=12)

    replies, tokens, last = asyncio.run(all_of_them())
    assert [reply.token_ids for reply in (*replies, last)] == [expected] * 4
    assert tuple(tokens) == expected


def test_help_has_what_users_call_and_no_internals(engine):
    text = pydoc.plain(pydoc.render_doc(Engine))
    shown = set(re.findall(r"^ \|  (\w+)\(", text, re.MULTILINE))
    assert {"load", "generate", "chat", "stream", "stream_chat", "generate_many", "close"} <= shown
    assert not {"lane", "joined_passes", "measure_drafts", "lend", "check", "loading"} & shown
    assert all(callable(getattr(engine, name)) for name in Engine.internal - {"internal"})
    assert repr(engine) == f"<Engine tiny, context {engine.context}>"


def test_models_have_the_names_that_commands_take(tiny_gguf):
    with Engine.load("akunu-tiny") as engine:
        assert engine.description.name == "akunu-tiny"
    with pytest.raises(ConfigError, match="akunu models"):
        Engine.load("no-such-model")
    with Engine.load(str(tiny_gguf)) as engine:
        assert engine.description.path == tiny_gguf
    assert repr(engine) == "<Engine tiny, closed>"
