"""/v1/completions over HTTP."""

from dataclasses import replace

import pytest
from scripted_server import ACCEPTED, MODEL, USAGE, Pause, ScriptedBackend, events_of, running, said

from akunu_py.server.backend import Health
from akunu_py.server.events import Finished
from akunu_py.system.errors import ServerBusyError
from akunu_py.values.reply_deltas import ContentDelta

PATH = "/v1/completions"


def test_object_and_stream(server):
    whole = server.post(PATH, {"prompt": "Once"}).json()
    assert whole["object"] == "text_completion"
    assert whole["choices"] == [
        {"index": 0, "text": "Hello world", "logprobs": None, "finish_reason": "stop"}
    ]
    assert whole["usage"]["completion_tokens"] == 12
    options = {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, done = [value for _, value in events_of(server.post(PATH, {"prompt": "x"} | options))]
    assert done == "[DONE]"
    assert "".join([chunk["choices"][0]["text"] for chunk in chunks[:-1]]) == "Hello world"
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"] == whole["usage"]
    assert chunks[-1]["choices"] == []
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)


@pytest.mark.parametrize(
    ("given", "prompts"),
    [
        ("text", ["text"]),
        (["text"], ["text"]),
        ([1, 2, 3], [(1, 2, 3)]),
        ([[1, 2]], [(1, 2)]),
        ("", [""]),
        (["a", [1], "b"], ["a", (1,), "b"]),
    ],
)
def test_prompts(server, backend, given, prompts):
    backend.requests.clear()
    assert server.post(PATH, {"prompt": given}).status_code == 200
    assert [request.prompt for request in backend.requests] == prompts


def test_a_prompt_of_a_list_waits_where_the_line_is_full(server, backend):
    """It has its turn when another of the list has ended; the first prompt is refused."""
    backend.state = Health(places=2)
    busy = ServerBusyError("full", retry_after_s=1)
    slow = [ACCEPTED, Pause(0.05), ContentDelta("a"), Finished("stop", USAGE)]
    backend.play(slow, [busy], said("b"), said("c"))
    body = server.post(PATH, {"prompt": ["a", "b", "c"]}).json()
    assert [choice["text"] for choice in body["choices"]] == ["a", "b", "c"]
    backend.play([busy])
    assert server.post(PATH, {"prompt": ["a", "b", "c"]}).status_code == 503


@pytest.mark.parametrize(
    ("asked", "echo", "reads_only", "limit"),
    [
        ({}, False, False, None),
        ({"echo": True, "max_tokens": 3}, True, False, 3),
        ({"echo": True, "max_tokens": 0}, True, True, 1),
        ({"max_tokens": 0}, False, True, 1),
    ],
)
def test_prompts_that_are_said_or_only_read(server, backend, asked, echo, reads_only, limit):
    assert server.post(PATH, {"prompt": "x"} | asked).status_code == 200
    asked = backend.request
    assert (asked.echo, asked.reads_only, asked.config.max_tokens) == (echo, reads_only, limit)


def test_a_gap_has_no_echo(server):
    error = server.post(PATH, {"prompt": "x", "suffix": "y", "echo": True}).json()["error"]
    assert error["param"] == "echo"


@pytest.mark.parametrize(
    ("stop", "texts"), [("", ()), (["", "\n", ""], ("\n",)), ([], ()), (None, ())]
)
def test_empty_stop_texts_are_left_out(server, backend, stop, texts):
    assert server.post(PATH, {"prompt": "x", "stop": stop}).status_code == 200
    assert backend.request.config.stop == texts


def test_gap(server, backend):
    server.post(PATH, {"prompt": "def f(", "suffix": "return x", "max_tokens": 5, "stop": ["\n"]})
    assert (backend.request.prompt, backend.request.suffix) == ("def f(", "return x")
    assert (backend.request.config.max_tokens, backend.request.config.stop) == (5, ("\n",))
    server.post(PATH, {"prompt": "x", "suffix": ""})
    assert backend.request.suffix is None


def test_gap_without_the_tokens_for_it():
    with running(ScriptedBackend(served=(replace(MODEL, fills_in=False),))) as server:
        response = server.post(PATH, {"prompt": "x", "suffix": "y"})
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "suffix"


def test_length(server, backend):
    backend.play(said("x", reason="length"))
    assert server.post(PATH, {"prompt": "x"}).json()["choices"][0]["finish_reason"] == "length"
