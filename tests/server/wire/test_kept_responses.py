"""Responses that are kept: what follows one, and getting, deleting and counting."""

import pytest
from scripted_server import USAGE, called, events_of, running, said
from test_responses_api import PATH, TOOLS
from wire_formats import error_of

from akunu_py.server.errors import Problem
from akunu_py.server.events import Finished
from akunu_py.server.responses.form import ResponseForm
from akunu_py.server.responses.tools import ToolBook
from akunu_py.server.security import Access, digests
from akunu_py.values.recent_texts import RecentTexts
from akunu_py.values.reply_deltas import ContentDelta


def made(server, *, stream=False, path=PATH, **body):
    """A response; of a stream, as its last event has it."""
    response = server.post(path, {"tools": TOOLS, "stream": stream, **body})
    assert response.status_code == 200, response.text
    return events_of(response)[-1][1]["response"] if stream else response.json()


def test_one_response_may_be_followed_twice(server, backend):
    backend.play(said("One."))
    first = made(server, input="Hi")
    for text in ("And now?", "And then?"):
        made(server, input=text, previous_response_id=first["id"])
        assert [one.text for one in backend.request.messages] == ["Hi", "One.", text]


def test_a_client_that_leaves_at_the_end_changes_nothing():
    kept = []
    form = ResponseForm({}, ToolBook(), kept.append)
    form.addition(ContentDelta("Hello"))
    form.closing(Finished("stop", USAGE))
    form.failing(Problem(499, "the client left"), "req_1")
    assert [one["status"] for one in kept if one.get("object") == "response"] == ["completed"]


@pytest.mark.parametrize("path", [PATH, "/responses"])
@pytest.mark.parametrize("stream", [False, True])
def test_getting_and_deleting(server, backend, monkeypatch, stream, path):
    monkeypatch.setattr(server.service, "items", RecentTexts())
    backend.play(called(("read", {"path": "a"})))
    first = made(server, input="Hi", stream=stream, path=path)
    at = f"{path}/{first['id']}"
    assert server.get(at).json() == first
    assert first["store"] is True
    assert error_of(server.get(f"{at}?stream=true"))["param"] == "stream"
    deleted = server.client.delete(at)
    assert deleted.json() == {"id": first["id"], "object": "response", "deleted": True}
    for response in (server.get(at), server.client.delete(at), server.get(f"{path}/msg_1")):
        assert response.status_code == 404
        assert "is not kept" in error_of(response)["message"]
    followed = server.post(path, {"input": "x", "previous_response_id": first["id"]})
    assert followed.status_code == 400
    assert error_of(followed)["code"] == "previous_response_not_found"
    assert error_of(followed)["param"] == "previous_response_id"
    assert not server.service.items._num_bytes  # nothing is left of it


@pytest.mark.parametrize("stream", [False, True])
def test_nothing_is_kept_without_store(server, stream):
    first = made(server, input="Hi", stream=stream, store=False)
    assert first["store"] is False
    assert server.get(f"{PATH}/{first['id']}").status_code == 404


def test_each_client_has_its_own():
    one, two = ({"authorization": f"Bearer {name * 20}"} for name in "ab")
    with running(access=Access(key_digests=digests(["a" * 20, "b" * 20]))) as server:
        first = server.post(PATH, {"input": "Hi"}, headers=one).json()
        at = f"{PATH}/{first['id']}"
        body = {"input": "Hi", "previous_response_id": first["id"]}
        for headers, found, followed in ((two, 404, 400), (one, 200, 200)):
            assert server.client.get(at, headers=headers).status_code == found
            assert server.post(PATH, body, headers=headers).status_code == followed
        for headers, deleted in ((two, 404), (one, 200)):
            assert server.client.delete(at, headers=headers).status_code == deleted


def test_old_responses_make_place(server, monkeypatch):
    """In a conversation that goes on, the first one is used, too."""
    monkeypatch.setattr(server.service, "items", RecentTexts(30_000))
    first = made(server, input="x" * 7000)
    others = made(server, input="y" * 7000)
    second = made(server, input="Hi", previous_response_id=first["id"])
    made(server, input="z" * 10_000)
    made(server, input="Hi", previous_response_id=second["id"])
    assert server.get(f"{PATH}/{others['id']}").status_code == 404
    assert server.get(f"{PATH}/{first['id']}").status_code == 200


def test_one_that_is_too_long_leaves_others_alone(server, monkeypatch):
    monkeypatch.setattr(server.service, "items", RecentTexts(10_000))
    first, long = (made(server, input="x" * size) for size in (10, 20_000))
    made(server, input="Hi", previous_response_id=first["id"])
    body = {"input": "Hi", "previous_response_id": long["id"]}
    assert error_of(server.post(PATH, body))["code"] == "previous_response_not_found"


def test_counting(server, backend):
    """The scripted backend has a token a character."""
    backend.play(said("Done."))
    first = made(server, input="Hi")
    body = {"input": "And now?", "instructions": "Brief.", "previous_response_id": first["id"]}
    counted = server.post(PATH + "/input_tokens", body)
    assert counted.json() == {"object": "response.input_tokens", "input_tokens": 2 + 5 + 8 + 6}
