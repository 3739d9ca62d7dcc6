"""Embeddings of a worker: the engine's, in turns beside replies, until they are cancelled."""

import asyncio
import threading

import numpy as np
import pytest
from engine_server import serving
from scripted_server import PATIENCE_S, running
from tiny_architectures.embeddings import TEXTS, build_embedder
from turns import run, until

from akunu_py import Engine
from akunu_py.models import cached_rows
from akunu_py.models.memory_check import PlannedModel
from akunu_py.server import engine_backend
from akunu_py.server.backend import EmbeddingRequest
from akunu_py.server.engine_backend import EngineBackend
from akunu_py.server.events import Finished
from akunu_py.server.model_source import ModelFile
from akunu_py.server.served_models import ServedModels
from akunu_py.server.worker import Worker
from akunu_py.values.load_options import EngineOptions, LoadOptions

LONG = "one two three " * 15


@pytest.fixture(scope="module")
def engine(tiny_gguf):
    """An engine that makes both."""
    with Engine.load(tiny_gguf, pooling="mean") as loaded:
        yield loaded


@pytest.fixture
def slices(monkeypatch):
    """Passes pause behind every layer, and hold 64 rows."""
    monkeypatch.setattr(cached_rows, "_TURN_S", 0.0)
    monkeypatch.setattr("akunu_py.models.embedding.PREFILL_CHUNK", 64)


def texts_of(engine, *texts):
    return engine.check_texts(texts)


def test_replies_go_on_between_the_pauses_of_embeddings(engine, make_worker, slices):
    worker = make_worker(engine, parallel=2)
    job = worker.submit(texts_of(engine, *[LONG] * 4))
    reply = worker.submit(engine.check(engine.prompt_ids("a cat"), max_tokens=4, drafter="none"))
    until(worker, lambda: reply.events.over)
    assert not job.events.over
    run(worker)
    *_, made = list(job.events)
    assert isinstance(made, Finished)
    np.testing.assert_allclose(made.vectors, engine.embed([LONG] * 4), atol=1e-5)
    assert made.usage.prompt_tokens == job.prepared.call.num_tokens > 4 * 40


def test_embeddings_that_are_cancelled_end_at_the_next_pause(engine, make_worker, slices):
    worker = make_worker(engine, parallel=1)
    job, waiting = (worker.submit(texts_of(engine, LONG)) for _ in range(2))
    worker.step()
    job.cancel()
    waiting.cancel()
    run(worker)
    assert list(job.events) == list(waiting.events) == []
    # And the lane is free, its caches as good as new.
    again = worker.submit(texts_of(engine, "a cat"))
    run(worker)
    np.testing.assert_array_equal(list(again.events)[-1].vectors, engine.embed("a cat"))


def test_an_error_ends_these_embeddings_alone(engine, make_worker):
    worker = make_worker(engine, parallel=2)
    wrong = worker.submit(engine.check_texts(["a"], dimensions=999))
    right = worker.submit(texts_of(engine, "a"))
    run(worker)
    with pytest.raises(Exception, match="dimensions is 999"):
        list(wrong.events)
    assert list(right.events)[-1].vectors.shape[0] == 1


def test_a_client_that_leaves_cancels_the_job(engine, make_worker, monkeypatch):
    worker, asked = make_worker(engine, parallel=1), threading.Event()
    ask = worker.ask
    monkeypatch.setattr(worker, "ask", lambda *args, **more: (ask(*args, **more), asked.set())[0])
    backend = EngineBackend(worker)

    async def leave():
        request = EmbeddingRequest(model="", texts=(LONG,))
        reply = backend.submit(request, "x")
        await asyncio.to_thread(asked.wait, PATIENCE_S)
        reply.cancel()
        await reply._asking

    asyncio.run(asyncio.wait_for(leave(), PATIENCE_S))
    (job,) = worker._line
    assert job.cancelled.is_set()


def test_more_tokens_than_one_request_may_have(engine, monkeypatch):
    monkeypatch.setattr(engine_backend, "_MOST_TOKENS", 9)
    with serving(engine) as server:
        response = server.post("/v1/embeddings", {"input": ["a cat"] * 3})
        assert response.status_code == 400
        assert "tokens together; send at most 9 in a request" in response.text


def test_models_of_embeddings_and_of_replies_side_by_side(tiny_gguf, tmp_path):
    embedder = build_embedder("qwen3-last").write(tmp_path / "embedder.gguf")
    sources = [
        ModelFile(name, [PlannedModel(path, LoadOptions())], EngineOptions(), checked=False)
        for name, path in (("chat", tiny_gguf), ("embedder", embedder))
    ]
    makes = [(one.replies, one.embeds) for one in (source.describe() for source in sources)]
    assert makes == [(True, False), (False, True)]
    with Engine.load(embedder) as alone:
        expected = alone.embed(TEXTS)
    worker = Worker(ServedModels(sources, engine=Engine.load(tiny_gguf)), parallel=2)
    worker.start()
    try:
        with running(EngineBackend(worker)) as server:
            ask = {"model": "embedder", "input": list(TEXTS)}
            # Known before it is loaded.
            for loaded in (False, True):
                refused = server.post("/v1/completions", {"model": "embedder", "prompt": "a"})
                assert "was made for embeddings" in refused.text
                refused = server.post("/v1/embeddings", ask | {"model": "chat"})
                assert "was not made for embeddings" in refused.text
                assert [model.loaded for model in EngineBackend(worker).models()] == [True, loaded]
                body = server.post("/v1/embeddings", ask).json()
                found = [one["embedding"] for one in body["data"]]
                np.testing.assert_allclose(found, expected, atol=1e-6)
            reply = server.post("/v1/completions", {"prompt": "a cat", "max_tokens": 3}).json()
            assert reply["usage"]["completion_tokens"] > 0
    finally:
        worker.close()
