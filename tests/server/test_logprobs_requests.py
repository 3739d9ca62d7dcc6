"""Log probabilities over HTTP: in the fields of each API, and those of the engine."""

import pytest
from engine_server import serving
from scripted_server import ACCEPTED, USAGE, ScriptedBackend, events_of, running

from akunu_py.engine.engine import Engine
from akunu_py.server.events import Finished, Logprob, Logprobs
from akunu_py.values.reply_deltas import ContentDelta

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
ASK = {"messages": [{"role": "user", "content": "Hello there"}], "max_tokens": 8, "seed": 3}

# Half of "é" in each token.
HALF = Logprob("\ufffd", b"\xc3", -0.5, (Logprob("\ufffd", b"\xc3", -0.5),))
OTHER = Logprob("\ufffd", b"\xa9", float("-inf"), (Logprob("!", b"!", -1.0),))
LAST = Logprob(" b", b" b", -0.25)
SCRIPT = [
    ACCEPTED,
    Logprobs((HALF, OTHER)),
    ContentDelta("é"),
    Logprobs((LAST,)),
    ContentDelta(" b"),
    Finished("stop", USAGE),
]


@pytest.fixture(scope="module")
def scripted():
    with running(ScriptedBackend(scripts=[SCRIPT])) as server:
        yield server


@pytest.fixture(scope="module")
def served(roomy_gguf):
    with Engine.load(roomy_gguf) as engine, serving(engine, places=2) as server:
        yield server


def streamed(server, path, body):
    return [value for _, value in events_of(server.post(path, body | {"stream": True}))]


def test_chat_completions_have_them(scripted):
    asked = ASK | {"logprobs": True, "top_logprobs": 1}
    [choice] = scripted.post(CHAT, asked).json()["choices"]
    found = choice["logprobs"]["content"]
    assert [one["bytes"] for one in found] == [[0xC3], [0xA9], [32, 98]]
    assert [one["logprob"] for one in found] == [-0.5, -9999.0, -0.25]
    assert found[1]["top_logprobs"] == [{"token": "!", "bytes": [33], "logprob": -1.0}]
    assert b"".join(bytes(one["bytes"]) for one in found).decode() == "é b"
    chunks = streamed(scripted, CHAT, asked)[:-1]
    with_text = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["logprobs"]]
    assert [choice["delta"]["content"] for choice in with_text] == ["é", " b"]
    assert [one for choice in with_text for one in choice["logprobs"]["content"]] == found


def test_tokens_make_up_the_text_of_a_reply(served):
    asked = ASK | {"logprobs": True, "top_logprobs": 2}
    [choice] = served.post(CHAT, asked).json()["choices"]
    found = choice["logprobs"]["content"]
    data = b"".join(bytes(one["bytes"]) for one in found)
    assert data.decode(errors="replace") == choice["message"]["content"]
    # At temperature 0 the chosen token is the likeliest.
    for one in found:
        assert one["logprob"] == one["top_logprobs"][0]["logprob"] <= 0
        assert one["token"] == one["top_logprobs"][0]["token"]
        assert len(one["top_logprobs"]) == 2
    chunks = streamed(served, CHAT, asked)[:-1]
    parts = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert [one for part in parts if part for one in part["content"]] == found
    assert choice == served.post(CHAT, asked).json()["choices"][0]


def test_stop_sequence_is_named(served):
    text = served.post(CHAT, ASK).json()["choices"][0]["message"]["content"]
    stop = text[4:7]
    body = served.post("/v1/messages", ASK | {"stop_sequences": ["never said", stop]}).json()
    assert (body["stop_reason"], body["stop_sequence"]) == ("stop_sequence", stop)
    assert body["content"][0]["text"].strip() == text[: text.index(stop)].strip()
    body = served.post("/v1/messages", ASK).json()
    assert (body["stop_reason"], body["stop_sequence"]) == ("max_tokens", None)
