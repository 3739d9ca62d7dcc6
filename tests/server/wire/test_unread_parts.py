"""Images, audio and documents: an error in the user's newest message, and left out elsewhere.

An error about what stays in a client's history would end the conversation for good.
"""

import pytest

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
URL = "data:image/png;base64,aGk="
SOURCE = {"type": "base64", "media_type": "image/png", "data": "aGk="}
PARTS = {
    CHAT: [
        ({"type": "image_url", "image_url": {"url": URL}}, "image"),
        ({"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}, "audio"),
        ({"type": "file", "file": {"file_id": "f"}}, "file"),
        ({"type": "video_url", "video_url": {"url": URL}}, "video"),
    ],
    MESSAGES: [
        ({"type": "image", "source": SOURCE}, "image"),
        ({"type": "document", "source": SOURCE}, "document"),
    ],
    RESPONSES: [
        ({"type": "input_image", "image_url": URL, "detail": "auto"}, "image"),
        ({"type": "input_file", "file_id": "f"}, "file"),
        ({"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}, "audio"),
    ],
}


def text(path, said="Look"):
    return {"type": "input_text" if path == RESPONSES else "text", "text": said}


def result(path, content):
    """A call and its result."""
    if path == MESSAGES:
        use = {"type": "tool_use", "id": "c1", "name": "shot", "input": {}}
        block = {"type": "tool_result", "tool_use_id": "c1", "content": content}
        return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [block]}]
    if path == CHAT:
        call = {"id": "c1", "type": "function", "function": {"name": "shot", "arguments": "{}"}}
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": content},
        ]
    call = {"call_id": "c1", "name": "shot"}
    return [
        {"type": "function_call", **call, "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": content},
    ]


def asked(server, path, *said):
    body = {"input" if path == RESPONSES else "messages": list(said)}
    return server.post(path, body | ({"max_tokens": 5} if path == MESSAGES else {}))


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
def test_left_out_of_system_messages(server, backend, path):
    part = PARTS[path][0][0]
    said = [{"role": "developer", "content": [text(path), part]}, {"role": "user", "content": "Hi"}]
    assert asked(server, path, *said).status_code == 200
    assert "[image left out" in backend.request.messages[0].text


def test_left_out_of_the_system_text_of_messages(server, backend):
    part = PARTS[MESSAGES][0][0]
    ask = {"max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}], "system": [part]}
    assert server.post(MESSAGES, ask).status_code == 200
    assert "[image left out" in backend.request.messages[0].text


def test_unknown_parts_are_listed(server, backend):
    said = {"role": "user", "content": [text(RESPONSES), {"type": "hologram"}]}
    assert asked(server, RESPONSES, said).headers["x-akunu-ignored"] == "hologram"
    assert backend.request.messages[0].text == "Look"


@pytest.mark.parametrize("block", [{"type": "tool_reference", "tool_name": "x"}, {"type": "new"}])
def test_unknown_blocks_of_results_are_listed(server, backend, block):
    response = asked(server, MESSAGES, *result(MESSAGES, [text(MESSAGES), block]))
    assert response.headers["x-akunu-ignored"] == block["type"]
    assert backend.request.messages[-1].text == "Look"


def test_documents_that_are_text_are_read(server, backend):
    source = {"type": "text", "media_type": "text/plain", "data": "Page one."}
    document = {"type": "document", "source": source}
    newest = {"role": "user", "content": [document, text(MESSAGES)]}
    response = asked(server, MESSAGES, *result(MESSAGES, [document]), newest)
    assert "x-akunu-ignored" not in response.headers
    _, tool, user = backend.request.messages
    assert (tool.text, user.text) == ("Page one.", "Page one.\n\nLook")


SEARCH = {"type": "search_result", "source": "http://a", "title": "A", "content": [{"type": "text", "text": "found"}]}  # fmt: skip
NESTED = {"type": "content", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}  # fmt: skip
PICTURED = {"type": "content", "content": [{"type": "image", "source": SOURCE}, {"type": "text", "text": "two"}]}  # fmt: skip
READ_PARTS = {
    "search result": (SEARCH, "A\nhttp://a\nfound"),
    "search result without a title": ({"type": "search_result", "content": "found"}, "found"),
    "document with a title": (
        {"type": "document", "title": "T", "context": "C", "source": {"type": "text", "data": "x"}},
        "T\nC\nx",
    ),
    "document of parts": ({"type": "document", "source": NESTED}, "one\ntwo"),
    "document of a text": ({"type": "document", "source": NESTED | {"content": "one"}}, "one"),
    "a new kind": ({"type": "novel", "text": "one"}, "one"),
}


@pytest.mark.parametrize("name", READ_PARTS)
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
def test_texts_within_parts_are_read(server, backend, path, name):
    part, told = READ_PARTS[name]
    newest = {"role": "user", "content": [part]}
    reply = {"role": "assistant", "content": [part]}
    response = asked(server, path, newest, reply, *result(path, [part]), newest)
    assert response.status_code == 200, response.text
    assert "x-akunu-ignored" not in response.headers
    texts = [message.text for message in backend.request.messages]
    assert [text for text in texts if text] == [told] * len([text for text in texts if text])
    assert len([text for text in texts if text]) == 4


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
def test_images_within_documents_are_told(server, backend, path):
    part = {"type": "document", "source": PICTURED}
    hi = {"role": "user", "content": "Hi"}
    response = asked(server, path, hi, *result(path, [part]), hi)
    assert response.headers["x-akunu-ignored"] == "image"
    assert "[image left out: this model reads text]\ntwo" in [
        message.text for message in backend.request.messages
    ]
    assert asked(server, path, {"role": "user", "content": [part]}).status_code == 400


def test_a_summary_of_earlier_messages_is_read(server, backend):
    """What `compaction` stands for is nowhere else; one that failed has no content."""
    for content, told in (("They said hi.", "They said hi."), (None, "")):
        block = {"type": "compaction", "content": content}
        said = {"role": "assistant", "content": [block]}
        asked(server, MESSAGES, said, {"role": "user", "content": "Hi"})
        assert backend.request.messages[0].text == told
