"""/v1/completions over HTTP."""

from dataclasses import replace

import pytest
from scripted_server import MODEL, ScriptedBackend, events_of, running, said

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
    texts = [chunk["choices"][0]["text"] for chunk in chunks[:-1]]
    assert "".join(texts) == "Hello world"
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"] == whole["usage"]
    assert chunks[-1]["choices"] == []
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)


@pytest.mark.parametrize(
    ("given", "prompt"),
    [("text", "text"), (["text"], "text"), ([1, 2, 3], (1, 2, 3)), ([[1, 2]], (1, 2)), ("", "")],
)
def test_prompts(server, backend, given, prompt):
    assert server.post(PATH, {"prompt": given}).status_code == 200
    assert backend.request.prompt == prompt


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
