"""What holds for replies of all APIs: disconnects, errors in time and late, a full queue."""

import json
import logging
import socket
import time

import pytest
from scripted_server import ACCEPTED, USAGE, Pause, call, events_of, read_until, running, said
from wire_formats import BODIES, CHAT, COMPLETIONS, GENERATE, MESSAGES, OLLAMA, RESPONSES, error_of

from akunu_py.server.events import Accepted, Finished, Prefilled
from akunu_py.server.reply_response import Patience
from akunu_py.system.errors import (
    ConfigError,
    ContextOverflowError,
    EngineStateError,
    MemoryLimitError,
    ModelFormatError,
    ServerBusyError,
)
from akunu_py.values.reply_deltas import ContentDelta, ReasoningDelta

PHASES = {
    "before the prompt is known": [Pause()],
    "prefill": [ACCEPTED, Prefilled(3), Pause()],
    "thoughts": [ACCEPTED, ReasoningDelta("So"), Pause()],
    "text": [ACCEPTED, ContentDelta("Hello"), Pause()],
    "a call": [ACCEPTED, *call(0, "read", {"path": "abcdefgh"})[:2], Pause()],
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("phase", PHASES.values(), ids=PHASES.keys())
@pytest.mark.parametrize("path", BODIES)
def test_disconnect_cancels_at_once(server, backend, path, phase, stream):
    backend.play(phase, said("next"))
    content = json.dumps(BODIES[path] | {"stream": stream}).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(content)}", "", ""]
    with server.socket() as connection:
        connection.sendall("\r\n".join(lines).encode() + content)
        assert backend.paused.wait(300)
        assert not backend.cancelled.is_set()
        # A reset, as of a process that was killed, and not only the end of what it sends.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert backend.cancelled.wait(300)
    assert server.post(path, BODIES[path]).status_code == 200


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES, OLLAMA])
def test_a_prompt_that_is_counted_for_long_and_does_not_fit_is_no_stream(backend, path):
    """Its status is that of a whole reply."""
    backend.play([Pause(0.6), ContextOverflowError("long", num_tokens=5000, context=4096)])
    with running(backend, patience=Patience()) as server:
        response = server.post(path, BODIES[path] | {"stream": True})
    assert response.status_code == 400
    error_of(response, path)


def test_client_that_does_not_read_is_dropped():
    text = ContentDelta("x" * 100_000)
    with running(patience=Patience(send_s=0.2)) as server:
        server.backend.play([ACCEPTED, *[text] * 400, Finished("stop", USAGE)], said("next"))
        content = json.dumps(BODIES[COMPLETIONS] | {"stream": True}).encode()
        begin = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        with server.socket() as connection:
            connection.sendall(f"{begin}Content-Length: {len(content)}\r\n\r\n".encode() + content)
            assert server.backend.cancelled.wait(300)
        assert server.post(COMPLETIONS, BODIES[COMPLETIONS]).status_code == 200


ERRORS = [
    (ConfigError("temperature is 5; give less"), 400, "temperature is 5; give less"),
    (ModelFormatError("the weights are broken"), 500, "the weights are broken"),
    (EngineStateError("the worker has ended"), 503, "the worker has ended"),
    (MemoryLimitError("too large for this machine"), 503, "too large for this machine"),
    (ServerBusyError("32 requests wait", retry_after_s=7), 503, "32 requests wait"),
    (ContextOverflowError("no room"), 400, "no room"),
    (ContextOverflowError("300 tokens", num_tokens=300, context=200), 400, "300 tokens"),
    (KeyError("secret detail"), 500, "akunu failed"),
]


def check_error(response, path, status, message):
    body = response.json()
    assert response.status_code == status
    assert message in error_of(response, path)["message"]
    assert "secret" not in response.text
    if path == MESSAGES:
        assert body["type"] == "error"
        kinds = {400: "invalid_request_error", 500: "api_error", 503: "overloaded_error"}
        assert body["error"]["type"] == kinds[status]
        assert body["request_id"] == response.headers["request-id"]
    elif path not in {OLLAMA, GENERATE}:
        kind = "invalid_request_error" if status < 500 else "server_error"
        assert body["error"]["type"] == kind
        fields = {COMPLETIONS: "prompt", RESPONSES: "input"}
        too_long = body["error"]["code"] == "context_length_exceeded"
        assert body["error"]["param"] == (fields.get(path, "messages") if too_long else None)
    assert ("retry-after" in response.headers) == (status == 503)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("error", "status", "message"), ERRORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("path", BODIES)
def test_error_before_the_first_byte_has_a_status(
    server, backend, path, error, status, message, stream
):
    backend.play([error])
    check_error(server.post(path, BODIES[path] | {"stream": stream}), path, status, message)
    if not stream:
        backend.play([ACCEPTED, ContentDelta("x"), error])
        check_error(server.post(path, BODIES[path]), path, status, message)


@pytest.mark.parametrize("path", BODIES)
def test_full_queue(server, backend, path):
    backend.refusal = ServerBusyError("32 requests wait", retry_after_s=7)
    response = server.post(path, BODIES[path] | {"stream": True})
    check_error(response, path, 503, "32 requests wait")
    assert response.headers["retry-after"] == "7"


ENDS = {
    "an error": RuntimeError("secret detail"),
    "a known error": ModelFormatError("broken logits"),
    "a bare end": StopAsyncIteration(),
    "a cancel by the server": Finished("cancelled", USAGE),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
@pytest.mark.parametrize("path", BODIES)
def test_stream_never_just_ends(server, backend, path, end):
    backend.play([ACCEPTED, ContentDelta("Hello"), end])
    response = server.post(path, BODIES[path] | {"stream": True})
    assert response.status_code == 200
    assert "Hello" in response.text
    assert "secret" not in response.text
    events = events_of(response)
    match path:
        case "/v1/messages":
            assert events[-1][0] == "error"
            assert events[-1][1]["error"]["message"]
            assert events[-1][1]["request_id"] == response.headers["request-id"]
        case "/v1/responses":
            name, value = events[-1]
            assert name == "response.failed"
            assert value["response"]["status"] == "failed"
            assert value["response"]["error"]["message"]
        case "/api/chat" | "/api/generate":
            assert events[-1][1].keys() == {"error"}
        case _:
            assert events[-1] == (None, "[DONE]")
            assert events[-2][1]["error"]["message"]
    assert server.post(path, BODIES[path]).status_code in {500, 503}


def test_one_line_a_reply_in_the_log(server, caplog):
    caplog.set_level(logging.INFO, "akunu_py.server")
    # By this answer the line of an earlier test's reply is written.
    server.get("/health")
    caplog.clear()
    server.post(COMPLETIONS, BODIES[COMPLETIONS])
    deadline = time.monotonic() + 120
    while not (lines := [r.getMessage() for r in caplog.records if "reused" in r.getMessage()]):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    [line] = lines
    assert "prompt 30 = 20 reused + 10 prefilled (new text)" in line
    assert "drafts 7 of 9 accepted" in line


def test_ignored_fields_are_logged_once(caplog):
    with running() as server:
        caplog.set_level(logging.INFO, "akunu_py.server")
        for _ in range(3):
            server.post(MESSAGES, BODIES[MESSAGES] | {"novel": 1})
    assert len([r for r in caplog.records if "novel" in r.getMessage()]) == 1


KEEP_ALIVE = {
    CHAT: '"delta":{},"logprobs":null,"finish_reason":null',
    COMPLETIONS: '"text":""',
    MESSAGES: "event: ping",
    RESPONSES: "event: response.in_progress",
    OLLAMA: '"content":""',
    GENERATE: '"response":""',
}


@pytest.mark.parametrize("path", BODIES)
def test_stream_is_kept_alive_while_nothing_comes(path):
    with running(patience=Patience(keep_alive_s=0.05)) as server:
        server.backend.play([ACCEPTED, Pause(), ContentDelta("x"), Finished("stop", USAGE)])
        events = read_until(server, path, BODIES[path], KEEP_ALIVE[path], count=3)
    assert '"x"' in str(events).replace("'", '"')


@pytest.mark.parametrize("path", BODIES)
def test_stream_tells_what_was_cached(server, path):
    response = server.post(path, BODIES[path] | {"stream": True})
    assert response.headers["x-akunu-cache"] == "reused=20; prefilled=10; note=new text"
    kind = "application/x-ndjson" if path in {OLLAMA, GENERATE} else "text/event-stream"
    assert response.headers["content-type"].startswith(kind)


def test_accepted_late_is_no_addition(server, backend):
    backend.play([Prefilled(1), Accepted(30), ContentDelta("x"), Finished("stop", USAGE)])
    response = server.post(MESSAGES, BODIES[MESSAGES] | {"stream": True})
    block = [f"content_block_{part}" for part in ("start", "delta", "stop")]
    names = [name for name, _ in events_of(response)]
    assert names == ["message_start", *block, "message_delta", "message_stop"]
