"""Several choices in one response: joined with their indexes, each the reply of its own seed."""

import time

import pytest
from engine_server import serving
from kept_worker import Worker
from scripted_server import ACCEPTED, Pause, ScriptedBackend, events_of, read_until, running, said
from toy_engine import PLAIN

from akunu_py.models.joined import JoinedForward
from akunu_py.server.backend import Health
from akunu_py.server.events import Decoded
from akunu_py.system.errors import ContextOverflowError, ServerBusyError
from akunu_py.values.generation_config import GenerationConfig
from akunu_py.values.reply_deltas import ContentDelta

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ASK = {"messages": [{"role": "user", "content": "Hi"}], "n": 3}
BODIES = {CHAT: ASK, COMPLETIONS: {"prompt": "Hi", "n": 3}}
LONG = "Tell me about cats and dogs and birds. " * 6


@pytest.fixture(scope="module")
def shared_server():
    with running(ScriptedBackend()) as server:
        yield server


@pytest.fixture
def server(shared_server):
    shared_server.backend.__init__(state=Health(places=4))
    return shared_server


@pytest.fixture
def backend(server):
    return server.backend


def streamed(server, path, **more):
    events = events_of(server.post(path, BODIES[path] | {"stream": True} | more))
    assert events[-1] == (None, "[DONE]")
    return [value for _, value in events[:-1]]


def text_of(choice):
    return choice["message"]["content"] if "message" in choice else choice["text"]


def texts_of(chunks, count=3):
    texts = [""] * count
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice.get("delta", choice)
            texts[choice["index"]] += delta.get("content") or delta.get("text") or ""
    return texts


def test_sources_are_counted_for_each_choice(server, backend):
    scripts = [
        [ACCEPTED, Decoded(count, 1), ContentDelta("x", source), said()[-1]]
        for count, source in ((5, "prompt"), (2, ""), (3, "reply"))
    ]
    backend.play(*scripts)
    own = {
        (choice["index"], chunk["akunu"]["source"], chunk["akunu"]["tokens"])
        for chunk in streamed(server, CHAT, akunu={"sources": True})
        for choice in chunk["choices"]
        if choice["delta"].get("content")
    }
    assert own == {(0, "prompt", 5), (1, None, 2), (2, "reply", 3)}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    ("seed", "seeds"), [(7, [7, 8, 9]), (None, [None] * 3), (2**64 - 2, [2**64 - 2, 2**64 - 1, 0])]
)
def test_each_choice_has_the_next_seed(server, backend, path, seed, seeds):
    server.post(path, BODIES[path] | {"seed": seed})
    assert [request.config.seed for request in backend.requests] == seeds


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("n", [0, -1, 5, 10**9])
def test_other_numbers_are_refused(server, backend, path, n):
    response = server.post(path, BODIES[path] | {"n": n})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "n"
    assert "give 1 to 4" in response.json()["error"]["message"]
    assert not backend.requests


def test_the_best_of_more_is_refused(server, backend):
    response = server.post(COMPLETIONS, BODIES[COMPLETIONS] | {"best_of": 4})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "best_of")
    assert server.post(COMPLETIONS, BODIES[COMPLETIONS] | {"best_of": 3}).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_of_one_ends_all(server, backend, stream):
    waiting = [Pause()]
    backend.play([ContextOverflowError("too long", num_tokens=9, context=5)], waiting, waiting)
    response = server.post(CHAT, ASK | {"stream": stream})
    assert response.json()["error"]["code"] == "context_length_exceeded"
    assert backend.cancelled.wait(300)


def test_an_error_in_a_stream_is_its_last_event(server, backend):
    late = [ACCEPTED, ContentDelta("A"), Pause(), ServerBusyError("full", retry_after_s=1)]
    backend.play(late, [ACCEPTED, ContentDelta("B"), Pause()], [ACCEPTED, Pause()])
    events = read_until(server, CHAT, ASK, '"content":"B"')
    *chunks, error = (value for _, value in events[:-1])
    assert texts_of(chunks) == ["A", "B", ""]
    assert error["error"]["code"] == "server_busy"


def test_choices_of_an_engine_are_the_replies_of_their_seeds(toy, caplog, monkeypatch):
    """The prompt is read once, each of the others reads its last token, and all share passes."""
    caplog.set_level("INFO", "akunu_py.server.worker")
    passes, forward, fill = [], JoinedForward.__call__, Worker._fill_lanes

    def counted(self, parts):
        passes.append(len(parts))
        return forward(self, parts)

    def all_come_first(worker):
        while not passes and worker.health().waiting < 3 and not worker.health().running:
            time.sleep(0.001)
        fill(worker)

    defaults = GenerationConfig(logit_bias=PLAIN, temperature=1.0, max_tokens=8, drafter="none")
    with monkeypatch.context() as patch, serving(toy, parallel=3, defaults=defaults) as server:
        assert toy.joined_passes() is not None
        patch.setattr(JoinedForward, "__call__", counted)
        patch.setattr(Worker, "_fill_lanes", all_come_first)
        body = server.post(COMPLETIONS, {"prompt": LONG, "n": 3, "seed": 5}).json()
    # They begin a round apart: the reader, and then the two that waited for it.
    assert passes.count(3) >= 6
    assert len(passes) <= 8
    with toy.sibling() as other:
        expected = [other.generate(LONG, defaults, seed=seed) for seed in (5, 6, 7)]
    texts = [text_of(choice) for choice in body["choices"]]
    assert texts == [result.text for result in expected]
    assert len(set(texts)) == 3
    assert body["usage"]["prompt_tokens"] == expected[0].num_prompt_tokens
    assert body["usage"]["completion_tokens"] == 24
    prompts = [record.args for record in caplog.records if "of a prompt" in record.msg]
    read = [total - cached for cached, total, _ in prompts]
    assert sorted(read) == [1, 1, expected[0].num_prompt_tokens]
