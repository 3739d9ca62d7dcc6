"""Which part of a conversation a token of its prompt is from."""

import pytest

from akunu_py import Engine
from akunu_py.cli.chat.attachments import (
    Attachment,
    PromptParts,
    find_attachments,
    with_attachments,
)
from akunu_py.values.messages import Message


@pytest.fixture(scope="module")
def engine(roomy_gguf):
    with Engine.load(roomy_gguf) as engine:
        yield engine


def attachment(tmp_path, name, text):
    return Attachment(tmp_path / name, text)


def test_places_beyond_the_prompt_and_text_that_a_template_changed(engine):
    messages = [Message("user", "hello"), Message("user", "never said")]
    prompt = engine.tokenizer.encode_chat(messages[:1])
    parts = PromptParts(prompt, messages, engine.tokenizer)
    assert parts.name(len(prompt)) == parts.name(-1) == "this chat"
    assert {parts.name(place) for place in range(len(prompt))} == {"this chat"}


def test_files_of_a_message_are_found_again(tmp_path):
    files = [attachment(tmp_path, "a b.py", "x\n````\ny\n"), attachment(tmp_path, "c", "")]
    message = with_attachments("What\n```\nis it?\n```", files)
    found = [(name, message[begin:end]) for begin, end, name in find_attachments(message)]
    assert [name for name, _ in found] == ["a b.py", "c"]
    assert found[0][1].endswith("y\n`````")
    assert list(find_attachments("Look:\n\n```\ncode\n```")) == []
