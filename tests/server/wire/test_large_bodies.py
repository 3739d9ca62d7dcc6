"""Bodies that are large, packed, or of many parts: what they may take of memory and of the loop."""

import asyncio
import gzip
import json
import sys
import threading
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from raw_http import head, raw
from scripted_server import PATIENCE_S
from wire_formats import BODIES, CHAT, COMPLETIONS, GENERATE, MESSAGES, OLLAMA, RESPONSES, refused

from akunu_py.server import incoming, json_body
from akunu_py.server.json_body import Bodies
from akunu_py.system.errors import ServerBusyError

LARGE = 2**17
"""Bytes of a body that is read beside the event loop."""

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BODY = json.dumps(BODIES[CHAT]).encode()


def deflated(data, bits=zlib.MAX_WBITS):
    packing = zlib.compressobj(wbits=bits)
    return packing.compress(data) + packing.flush()


PACKED = {
    "gzip": gzip.compress,
    "GZIP": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": deflated,
    "Deflate": lambda data: deflated(data, -zlib.MAX_WBITS),
    "zstd": zstd.compress,
    "identity": lambda data: data,
}


@pytest.mark.parametrize(("coding", "pack"), PACKED.items(), ids=PACKED)
class TestPacked:
    def test_bodies_are_read(self, server, coding, pack):
        packed = pack(BODY.replace(b"Hi", rb"Hi \ud800"))
        response = server.post(CHAT, packed, headers={"content-encoding": coding})
        assert response.status_code == 200
        assert server.backend.request.messages[0].text == "Hi \ufffd"

    def test_bombs_are_not(self, server, coding, pack, monkeypatch):
        bodies = Bodies(most_each=100_000, timeout_s=PATIENCE_S)
        monkeypatch.setattr(server.service, "bodies", bodies)
        packed = pack(BODY + b" " * 100_000)
        response = server.post(CHAT, packed, headers={"content-encoding": coding})
        assert response.status_code == 413
        assert not server.backend.requests

    def test_what_is_cut_or_more_than_one_stream(self, server, coding, pack):
        packed = pack(BODY)
        for wrong in (packed[:-5], packed + packed, b"", b"x", BODY[1:]):
            response = server.post(CHAT, wrong, headers={"content-encoding": coding})
            assert response.status_code == 400
        assert not server.backend.requests


def test_unknown_codings_are_named(server):
    for coding in ("br", "gzip, zstd", "x"):
        response = server.post(CHAT, BODY, headers={"content-encoding": coding})
        assert response.status_code == 415
        assert f"{coding!r}; send gzip, deflate, zstd" in response.json()["error"]["message"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.sampled_from(["\\\\", "\\n", "\\ud83d", "\\uDE00", "\\uD800", "\\u0041", "ab", "uDE00"])
    )
)
def test_surrogates_are_those_of_python(server, pieces):  # fmt: skip
    text = '"' + "".join(pieces) + '"'
    # Python's reader keeps halves of characters, and UTF-16 has a place for them.
    expected = json.loads(text).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    prompt = f'{{"messages": [{{"role": "user", "content": {text}}}]}}'
    assert server.post(CHAT, prompt.encode()).status_code == 200
    assert server.backend.request.messages[0].text == expected


MANY = {
    "parts": (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}] * 9}]}),
    "calls": (OLLAMA, {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}] * 9}]}),
    "items": (RESPONSES, {"input": [{"role": "user", "content": "a"}] * 9}),
    "system": (MESSAGES, BODIES[MESSAGES] | {"system": [{"type": "text", "text": "a"}] * 9}),
    "fields": (CHAT, BODIES[CHAT] | {f"u{number}": 1 for number in range(30)}),
    "options": (GENERATE, BODIES[GENERATE] | {"options": {f"u{number}": 1 for number in range(30)}}),
    "logit_bias": (CHAT, BODIES[CHAT] | {"logit_bias": {str(number): 1 for number in range(30)}}),
    "ids": (COMPLETIONS, {"prompt": [1] * 60}),
    "texts": (CHAT, BODIES[CHAT] | {"stop": ["a"] * 30}),
    "brackets": (CHAT, BODIES[CHAT] | {"tools": [[[[]] * 20] * 2]}),
}  # fmt: skip


@pytest.mark.parametrize(("path", "body"), MANY.values(), ids=MANY)
def test_many_parts_fields_or_entries(server, monkeypatch, path, body):
    monkeypatch.setattr(json_body, "_MOST_MARKS", 50)
    assert "more than 50 texts" in refused(server, path, body, 413)["message"]


def test_marks_within_texts_do_not_count(server, monkeypatch):
    monkeypatch.setattr(json_body, "_MOST_MARKS", 50)
    text = '{[:,"\\' * 100
    response = server.post(CHAT, {"messages": [{"role": "user", "content": text}]})
    assert response.status_code == 200
    assert server.backend.request.messages[0].text == text


@pytest.mark.parametrize("path", BODIES)
def test_large_bodies_are_read_beside_the_loop(server, monkeypatch, path):
    """And what they say is laid out there."""
    seen = []
    told = incoming.config_with

    def config_with(*given):
        seen.append(threading.current_thread().name)
        return told(*given)

    monkeypatch.setattr(incoming, "config_with", config_with)
    for text in ("a", "a" * LARGE):
        body = json.loads(json.dumps(BODIES[path]).replace("Hi", text))
        assert server.post(path, body).status_code == 200
    small, large = seen
    assert not small.startswith("akunu requests")
    assert large.startswith("akunu requests")


class CountedBodies(Bodies):
    """It knows which requests hold some."""

    def __init__(self, most):
        super().__init__(most)
        self.holders = set()

    def hold(self, request_id, num_bytes):
        self.holders.add(request_id)
        super().hold(request_id, num_bytes)

    def let_go(self, request_id):
        super().let_go(request_id)
        self.holders.discard(request_id)


class TestMemory:
    def test_small_bodies_find_some_whatever_large_ones_hold(self):
        bodies, held = Bodies(1000), []
        for number in range(20):
            size = 400
            while size:
                try:
                    bodies.hold(str(number), size)
                    break
                except ServerBusyError:
                    bodies.let_go(str(number))
                    size //= 2
            held.append(size)
        assert sum(held) < 1000
        assert held[:4] == [400, 200, 200, 100]
        bodies.let_go("0")
        bodies.hold("late", 200)

    def test_half_sent_bodies_share_it(self, server, monkeypatch):
        bodies = CountedBodies(1000)
        monkeypatch.setattr(server.service, "bodies", bodies)
        part = head(server, CHAT, "Content-Length: 900") + b" " * 300
        with server.socket() as one, server.socket() as other:
            for number, connection in enumerate((one, other)):
                connection.sendall(part)
                while len(bodies.holders) == number:
                    threading.Event().wait(0.01)
            third = head(server, CHAT, "Content-Length: 900", "Connection: close") + b" " * 300
            refusal = raw(server, third, finish=False)
            assert refusal.startswith(b"HTTP/1.1 503")
            assert b"retry-after: " in refusal
            assert server.post(CHAT, BODY).status_code == 200
        while bodies.holders:
            threading.Event().wait(0.01)

    def test_what_was_unpacked_counts(self, server, monkeypatch):
        monkeypatch.setattr(server.service, "bodies", Bodies(1000))
        packed = gzip.compress(BODY + b" " * 1000)
        response = server.post(CHAT, packed, headers={"content-encoding": "gzip"})
        assert response.status_code == 503


def test_large_ones_are_read_one_after_another():
    under_way, most = [], []

    def work():
        under_way.append(1)
        most.append(len(under_way))
        threading.Event().wait(0.02)
        under_way.pop()

    async def read_all():
        bodies = Bodies()
        await asyncio.gather(*(bodies.read(LARGE, work) for _ in range(3)))

    asyncio.run(read_all())
    assert most == [1, 1, 1]
