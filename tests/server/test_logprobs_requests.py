"""Log probabilities over HTTP: in the fields of each API, and those of the engine."""

import contextlib
from itertools import pairwise

import pytest
from engine_server import serving
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import ACCEPTED, USAGE, ScriptedBackend, events_of, running

from akunu_py.engine.engine import Engine
from akunu_py.server.events import Finished, Logprob, Logprobs
from akunu_py.server.logprobs import CompletionLogprobs
from akunu_py.values.reply_deltas import ContentDelta

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
ASK = {"messages": [{"role": "user", "content": "Hello there"}], "max_tokens": 8, "seed": 3}
INCLUDE = {"include": ["message.output_text.logprobs"]}

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


def test_completions_have_them(scripted):
    asked = {"prompt": "x", "logprobs": 1}
    [choice] = scripted.post(COMPLETIONS, asked).json()["choices"]
    found = choice["logprobs"]
    assert found["tokens"] == ["bytes:\\xc3", "bytes:\\xa9", " b"]
    assert found["token_logprobs"] == [-0.5, -9999.0, -0.25]
    assert found["top_logprobs"][1:] == [{"!": -1.0, "bytes:\\xa9": -9999.0}, {" b": -0.25}]
    chunks = streamed(scripted, COMPLETIONS, asked)[:-1]
    parts = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert [one for part in parts if part for one in part["tokens"]] == found["tokens"]
    assert [part["text_offset"] for part in parts if part] == [[0, 0], [1]]
    assert found["text_offset"] == [0, 0, 1]


def test_responses_have_them(scripted):
    asked = {"input": "x", "top_logprobs": 1} | INCLUDE
    body = scripted.post(RESPONSES, asked).json()
    assert body["top_logprobs"] == 1
    found = body["output"][0]["content"][0]["logprobs"]
    assert [one["logprob"] for one in found] == [-0.5, -9999.0, -0.25]
    events = streamed(scripted, RESPONSES, asked)
    deltas = [one["logprobs"] for one in events if one["type"] == "response.output_text.delta"]
    assert deltas == [found[:2], found[2:]]
    [done] = [one for one in events if one["type"] == "response.output_text.done"]
    assert done["logprobs"] == found
    assert events[-1]["response"]["output"][0]["content"][0]["logprobs"] == found


@pytest.mark.parametrize(
    ("path", "asked", "config"),
    [
        (CHAT, {}, None),
        (CHAT, {"logprobs": False, "top_logprobs": 0}, None),
        (CHAT, {"logprobs": True}, 0),
        (CHAT, {"logprobs": True, "top_logprobs": 20}, 20),
        (COMPLETIONS, {}, None),
        (COMPLETIONS, {"logprobs": 0}, 0),
        (RESPONSES, {"include": ["reasoning.encrypted_content"]}, None),
        (RESPONSES, INCLUDE, 0),
        (RESPONSES, {"top_logprobs": 2}, 2),
    ],
)
def test_what_is_asked_of_the_engine(scripted, path, asked, config):
    body = {CHAT: ASK, COMPLETIONS: {"prompt": "x"}, RESPONSES: {"input": "x"}}[path]
    response = scripted.post(path, body | asked)
    assert response.status_code == 200, response.text
    assert scripted.backend.request.config.logprobs == config


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


@given(
    text=st.text(max_size=12),
    rest=st.binary(max_size=2),
    cuts=st.lists(st.integers(0, 50), max_size=12),
)
def test_offsets_of_completions_are_places_of_the_text(text, rest, cuts):
    """However a text is cut into tokens and tokens into parts, also one that ends in a character."""
    data = text.encode() + rest
    whole = data.decode(errors="replace")
    ends = sorted({*(cut for cut in cuts if cut < len(data)), len(data)} - {0})
    pieces = [data[first:last] for first, last in pairwise([0, *ends])]
    tokens = [Logprob("", piece, -1.0) for piece in pieces]
    spelled = CompletionLogprobs()
    found = [place for part in (tokens[:3], tokens[3:]) for place in _offsets(spelled, part)]
    assert found == sorted(found)
    for place, piece in zip(found, pieces, strict=True):
        assert place < len(whole)
        with contextlib.suppress(UnicodeDecodeError):
            assert whole.startswith(piece.decode(), place)


def _offsets(spelled, tokens):
    return spelled.fields(tokens)["text_offset"]


def test_stop_sequence_is_named(served):
    text = served.post(CHAT, ASK).json()["choices"][0]["message"]["content"]
    stop = text[4:7]
    body = served.post("/v1/messages", ASK | {"stop_sequences": ["never said", stop]}).json()
    assert (body["stop_reason"], body["stop_sequence"]) == ("stop_sequence", stop)
    assert body["content"][0]["text"].strip() == text[: text.index(stop)].strip()
    body = served.post("/v1/messages", ASK).json()
    assert (body["stop_reason"], body["stop_sequence"]) == ("max_tokens", None)
