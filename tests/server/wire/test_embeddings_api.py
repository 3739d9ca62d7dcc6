"""/v1/embeddings, /api/embed and /api/embeddings: what is asked of the backend, and the answers."""

import base64
import re

import numpy as np
import pytest
from scripted_server import EMBEDDER, MODEL, PATIENCE_S, Pause
from wire_formats import BODIES, error_of

from akunu_py.server import incoming
from akunu_py.system.errors import ConfigError, ContextOverflowError, ServerBusyError

OPENAI, EMBED, EMBEDDINGS = "/v1/embeddings", "/api/embed", "/api/embeddings"
ASK = {"model": "embedder"}


@pytest.fixture
def embedder(server):
    """A server of a model of embeddings beside one of replies."""
    server.backend.served = (MODEL, EMBEDDER)
    return server


@pytest.mark.parametrize(("given", "texts"), [
    ("Hi", ("Hi",)), (["Hi", ""], ("Hi", "")), ([1, 2], ((1, 2),)), ([[1], [2, 3]], ((1,), (2, 3))),
    (["a", [4]], ("a", (4,))),
])  # fmt: skip
def test_inputs_of_openais_format(embedder, given, texts):
    body = embedder.post(OPENAI, {**ASK, "input": given, "user": "x"}).json()
    assert embedder.backend.request.texts == texts
    sizes = [len(text) for text in texts]
    assert body == {
        "object": "list", "model": "embedder",
        "data": [
            {"object": "embedding", "index": place, "embedding": [size, place]}
            for place, size in enumerate(sizes)
        ],
        "usage": {"prompt_tokens": sum(sizes), "total_tokens": sum(sizes)},
    }  # fmt: skip


def test_base64_has_the_bytes_of_float32_and_other_fields_are_passed_on(embedder):
    more = {"encoding_format": "base64", "dimensions": 7, "prompt_name": "query", "truncate": True}
    response = embedder.post("/embeddings", {**ASK, "input": "Hi", **more, "foo": 1})
    (one,) = response.json()["data"]
    assert np.frombuffer(base64.b64decode(one["embedding"]), "<f4").tolist() == [2, 0]
    asked = embedder.backend.request
    assert (asked.dimensions, asked.prompt_name, asked.truncate) == (7, "query", True)
    assert response.headers["x-akunu-ignored"] == "foo"
    embedder.post(OPENAI, {**ASK, "input": "Hi"})
    asked = embedder.backend.request
    assert (asked.dimensions, asked.prompt_name, asked.truncate) == (None, None, False)


def test_ollamas_formats(embedder):
    options = {"options": {"num_ctx": 9, "use_mmap": True}, "keep_alive": "5m"}
    response = embedder.post(EMBED, {"model": "embedder:latest", "input": ["Hi", "you"], **options})
    body = response.json()
    total = body.pop("total_duration")
    assert total - body.pop("load_duration") == pytest.approx(0.5e9, abs=1)
    assert body == {
        "model": "embedder:latest", "embeddings": [[2, 0], [3, 1]], "prompt_eval_count": 5,
    }  # fmt: skip
    assert response.headers["x-akunu-ignored"] == "keep_alive"
    assert embedder.backend.request.truncate
    embedder.post(EMBED, {**ASK, "input": "Hi", "truncate": False, "dimensions": 2})
    asked = embedder.backend.request
    assert (asked.texts, asked.truncate, asked.dimensions) == (("Hi",), False, 2)
    assert embedder.post(EMBEDDINGS, {**ASK, "prompt": "you"}).json() == {"embedding": [3, 0]}


def test_ollamas_requests_without_a_text_load_and_unload(embedder):
    loaded = embedder.backend.loaded
    assert embedder.post(EMBED, ASK).json() == {"model": "embedder", "embeddings": []}
    assert embedder.post(EMBEDDINGS, {**ASK, "prompt": ""}).json() == {"embedding": []}
    assert loaded == ["embedder", "embedder"]
    embedder.post(EMBED, {**ASK, "input": [], "keep_alive": 0})
    assert loaded == ["embedder"]
    assert embedder.backend.requests == []


@pytest.mark.parametrize(("path", "fields", "words"), [
    (OPENAI, {"input": []}, "input has 0 texts; give 1 to 2,048"),
    (OPENAI, {"input": ["a"] * 2049}, "input has 2,049 texts"),
    (EMBED, {"input": ["a"] * 2049}, "input has 2,049 texts"),
    (OPENAI, {"input": ["a", 3]}, "input has ids of tokens beside texts"),
    (OPENAI, {}, "input"),
    (OPENAI, {"input": 3}, "input"),
    (OPENAI, {"input": "a", "encoding_format": "hex"}, "encoding_format"),
    (OPENAI, {"input": "a", "model": "other"}, "no model named 'other'; known are tiny, embedder"),
    (OPENAI, {"input": "a", "model": "tiny"}, "tiny was not made for embeddings; .*--pooling"),
    (EMBED, {"input": [1]}, "input"),
    (EMBED, {"input": "a", "model": None}, "tiny was not made for embeddings"),
])  # fmt: skip
def test_requests_that_are_refused(embedder, path, fields, words):
    response = embedder.post(path, {**ASK, **fields})
    assert response.status_code in (400, 404)
    assert re.search(words, error_of(response, path)["message"])
    assert embedder.backend.requests == []


def test_more_text_than_one_request_may_have(embedder, monkeypatch):
    monkeypatch.setattr(incoming, "_MOST_CHARACTERS", 9)
    for path in (OPENAI, EMBED):
        response = embedder.post(path, {**ASK, "input": ["aaaaa", "bbbbb"]})
        assert response.status_code == 413
        assert "the texts have 10 characters together; send at most 9" in response.text
    assert embedder.backend.requests == []


@pytest.mark.parametrize(("error", "status"), [
    (ConfigError("dimensions is 9"), 400), (ServerBusyError("busy", retry_after_s=3), 503),
    (ContextOverflowError("text 1 has 9 tokens"), 400), (RuntimeError("x"), 500),
])  # fmt: skip
def test_errors_of_the_backend_and_what_is_counted(embedder, error, status):
    before = counted(embedder, status)
    embedder.backend.embeddings = lambda _: [error]
    response = embedder.post(OPENAI, {**ASK, "input": "a"})
    assert response.status_code == status
    assert error_of(response)["message"]
    assert counted(embedder, status) == before + 1


def counted(server, status):
    line = f'akunu_requests_total{{path="{OPENAI}",status="{status}"}} '
    values = [row for row in server.get("/metrics").text.splitlines() if row.startswith(line)]
    return float(values[0].removeprefix(line)) if values else 0


def test_a_client_that_leaves_ends_the_work(embedder):
    embedder.backend.embeddings = lambda _: [Pause()]
    body = b'{"model": "embedder", "input": "a"}'
    head = f"POST {OPENAI} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n"
    with embedder.socket() as client:
        client.sendall(head.encode() + body)
        assert embedder.backend.paused.wait(PATIENCE_S)
        assert not embedder.backend.cancelled.is_set()
    assert embedder.backend.cancelled.wait(PATIENCE_S)


@pytest.mark.parametrize("path", BODIES)
def test_a_model_of_embeddings_is_not_asked_for_replies(embedder, path):
    response = embedder.post(path, {**BODIES[path], **ASK})
    assert response.status_code == 400
    assert "embedder was made for embeddings" in error_of(response, path)["message"]
    assert embedder.backend.requests == []


def test_lists_of_models_tell_what_they_make(embedder):
    ids = [one["id"] for one in embedder.get("/v1/models").json()["data"]]
    assert ids == ["tiny", "embedder", "claude-akunu-tiny"]
    assert embedder.post("/api/show", ASK).json()["capabilities"] == ["embedding"]
