"""Items of earlier replies that a client refers to by id, as the Vercel AI SDK does by default."""

import pytest
from scripted_server import (
    ACCEPTED,
    USAGE,
    call,
    events_of,
    running,
    said,
)

from akunu_py.server.events import Finished, Logprob, Logprobs
from akunu_py.server.security import Access, digests
from akunu_py.values.reply_deltas import ContentDelta, ReasoningDelta

PATH = "/v1/responses"
ASK = {"type": "message", "role": "user", "content": "Hi"}
NEXT = {"type": "message", "role": "user", "content": "And now?"}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = [
    {"type": "function", "name": "read", "parameters": SCHEMA},
    {"type": "namespace", "name": "web", "tools": [{"type": "function", "name": "get"}]},
    {"type": "custom", "name": "patch"},
]


def reference(item):
    return {"type": "item_reference", "id": item["id"]}


def replied(server, *, stream, **fields):
    """The output of a reply; of a stream, the items as they were announced."""
    response = server.post(PATH, {"input": [ASK], "tools": TOOLS, "stream": stream, **fields})
    assert response.status_code == 200, response.text
    if not stream:
        return response.json()["output"]
    events = [value for _, value in events_of(response)]
    return [value["item"] for value in events if value["type"] == "response.output_item.added"]


def asked(server, *items, **fields):
    """The messages that a backend gets."""
    response = server.post(PATH, {"input": [ASK, *items], "tools": TOOLS, **fields})
    assert response.status_code == 200, response.text
    return server.backend.request.messages


CUTS = {
    "within a text": [ContentDelta("Hello wor")],
    "within thoughts": [ReasoningDelta("Let me")],
    "within a call": call(0, "read", {"path": "abcdefgh"})[:-2],
    "within a patch": call(0, "patch", {"input": "abcdefgh"})[:-2],
    "after a text": [ContentDelta("Hello"), *call(0, "read", {"path": "abc"})[:1]],
}
ENDS = {"limit": Finished("length", USAGE), "error": RuntimeError("x")}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("deltas", CUTS.values(), ids=CUTS)
def test_items_of_cut_replies(server, backend, deltas, end):
    backend.play([ACCEPTED, *deltas, end])
    items = replied(server, stream=True)
    backend.play(said("Yes."))
    _, said_, _ = asked(server, *map(reference, items), NEXT)
    assert said_.role == "assistant"
    whole = "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta))
    thoughts = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
    assert (said_.text, said_.reasoning) == (whole, thoughts)
    assert len(said_.tool_calls) == sum(item["type"].endswith("call") for item in items)


@pytest.mark.parametrize("stream", [False, True])
def test_nothing_is_kept_without_store(server, backend, stream):
    [item] = replied(server, stream=stream, store=False)
    response = server.post(PATH, {"input": [ASK, reference(item), NEXT]})
    assert response.status_code == 400
    assert not server.service.items.get(("local", item["id"]))


@pytest.mark.parametrize(
    "item",
    [
        {"type": "item_reference", "id": "msg_x"},
        {"type": "item_reference"},
        {"type": "item_reference", "id": None},
        {"type": "item_reference", "id": ["msg_x"]},
        {"id": "msg_x"},
    ],
)
def test_an_item_that_is_not_kept_is_refused(server, backend, item):
    response = server.post(PATH, {"input": [ASK, item, NEXT]})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == "input[1].id"
    assert "store: false" in error["message"]
    assert not backend.requests


def test_items_of_another_client_are_not_found():
    keys = [{"authorization": f"Bearer {name * 20}"} for name in "ab"]
    with running(access=Access(key_digests=digests(["a" * 20, "b" * 20]))) as server:
        [item] = server.post(PATH, {"input": "Hi"}, headers=keys[0]).json()["output"]
        body = {"input": [ASK, reference(item)]}
        statuses = [server.post(PATH, body, headers=key).status_code for key in keys]
    assert statuses == [200, 400]


def test_references_bring_no_more_than_a_body_has(server, backend):
    backend.play([ACCEPTED, ContentDelta("x" * 2**20), Finished("stop", USAGE)])
    [item] = replied(server, stream=False)
    for count, status in ((31, 200), (32, 413)):
        response = server.post(PATH, {"input": [ASK, *[reference(item)] * count]})
        assert response.status_code == status


def test_log_probabilities_are_not_kept(server, backend):
    logprobs = Logprobs((Logprob("x", b"x", -1.0),))
    backend.play([ACCEPTED, logprobs, ContentDelta("x"), Finished("stop", USAGE)])
    body = {"input": "Hi", "include": ["message.output_text.logprobs"]}
    [item] = server.post(PATH, body).json()["output"]
    assert item["content"][0]["logprobs"]
    assert b'"logprobs":[]' in server.service.items.get(("local", item["id"]))
