"""Bytes that no client library sends: smuggled requests, endless bodies, floods, forged log lines."""

import hmac
import json
import logging

import pytest
from raw_http import SILENT_S, head, raw
from scripted_server import running, said
from wire_formats import BODIES, CHAT, MESSAGES

from akunu_py.server import security
from akunu_py.server.json_body import Bodies
from akunu_py.server.security import Access, digests

BODY = json.dumps(BODIES[CHAT]).encode()


def statuses(answer):
    return [int(part.split()[0]) for part in answer.split(b"HTTP/1.1 ")[1:]]


def still_serves(server):
    assert server.get("/health").status_code == 200


SMUGGLING = {
    "space before the colon": [f"Content-Length : {len(BODY)}"],
    "two encodings": ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
    "list of encodings": ["Transfer-Encoding: chunked, identity"],
    "encoding with a vertical tab": ["Transfer-Encoding: \x0bchunked"],
    "length with a sign": [f"Content-Length: +{len(BODY)}"],
    "length in hexadecimal": ["Content-Length: 0x20"],
    "two lengths in one": [f"Content-Length: {len(BODY)}, {len(BODY) + 1}"],
    "folded length": ["X-Folded: a", " Content-Length: 3", "Content-Length: x"],
    "negative length": ["Content-Length: -1"],
    "two lengths": ["Content-Length: 5", "Content-Length: 6"],
    "endless length": ["Content-Length: 99999999999999999999999999"],
    "encoding that is unknown": ["Transfer-Encoding: gzip"],
    "no length": [],
    "null in a header": ["X-Null: a\0b"],
    "return in a header": ["X-Return: a\rContent-Length: 5"],
}


@pytest.mark.parametrize("lines", SMUGGLING.values(), ids=SMUGGLING.keys())
def test_ambiguous_lengths_ask_nothing_of_the_backend(server, lines):
    """A proxy might read another length: such a request must not have a reply."""
    hidden = head(server, "/v1/models", method="GET")
    answer = raw(server, head(server, CHAT, *lines) + BODY + hidden)
    assert statuses(answer)[0] in {400, 408, 411, 413, 501}
    assert 200 not in statuses(answer)
    assert not server.backend.requests
    still_serves(server)


BROKEN = {
    "negative": b"-1\r\n{}\r\n", "prefix": b"0x2\r\n{}\r\n", "overflow": b"FFFFFFFFFFFFFFFFFF\r\n{",
    "two numbers": b"2 2\r\n{}\r\n", "letter": b"x\r\n", "no border": b"2\r\n{}XX0\r\n\r\n",
    "extension": b"2;" + b"e" * 200_000 + b"\r\n{}\r\n0\r\n\r\n",
}  # fmt: skip
BOMBS = {
    "many": [f"X-{number}: {'x' * 20}" for number in range(5000)],
    "long name": ["X" * 100_000 + ": 1"],
    "cookies": [f"Cookie: {'a=b; ' * 20_000}"],
}
CHUNKED = ["Transfer-Encoding: chunked"]


@pytest.mark.parametrize(
    ("lines", "body"),
    [*((CHUNKED, chunk) for chunk in BROKEN.values()), *((bomb, BODY) for bomb in BOMBS.values())],
    ids=[*BROKEN, *BOMBS],
)
def test_broken_chunks_and_bombs_of_headers(server, lines, body):
    assert 200 not in statuses(raw(server, head(server, CHAT, *lines) + body))
    assert not server.backend.requests
    still_serves(server)


@pytest.fixture
def impatient(server, monkeypatch):
    """Bodies of 1,000 bytes at most, which must arrive within 0.3 s."""
    monkeypatch.setattr(server.service, "bodies", Bodies(most_each=1000, timeout_s=0.3))


def trickled(server, lines, piece):
    """What a server answers while a body comes in pieces, without an end."""
    with server.socket() as connection:
        connection.settimeout(SILENT_S)
        connection.sendall(head(server, CHAT, *lines, "Connection: close"))
        connection.settimeout(0.02)
        answer = b""
        for _ in range(100 * SILENT_S):
            try:
                connection.sendall(piece)
                part = connection.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                return answer
            if not part:
                return answer
            answer += part
    raise AssertionError("the server read on and on")


@pytest.mark.parametrize(
    ("lines", "piece"),
    [(["Content-Length: 900"], b" "), (["Transfer-Encoding: chunked"], b"1\r\n \r\n")],
    ids=["length", "chunks"],
)
def test_a_body_that_trickles_is_ended(server, impatient, lines, piece):
    """The limit is on the whole body, not on the time between its pieces."""
    assert statuses(trickled(server, lines, piece)) == [408]
    assert not server.backend.requests


def test_chunks_without_an_end_are_ended(server, monkeypatch):
    # The time is not what ends them.
    monkeypatch.setattr(server.service, "bodies", Bodies(most_each=1000, timeout_s=300))
    piece = b"200\r\n" + b" " * 0x200 + b"\r\n"
    assert statuses(trickled(server, ["Transfer-Encoding: chunked"], piece)) == [413]


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 500,
        b"GET /\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0" * 1000,
        b"GET " + b"/" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"\r\n" * 1000,
        b"SSH-2.0-x\r\n",
    ],
    ids=["TLS", "HTTP 0.9", "HTTP 2", "nulls", "long path", "no host", "lines", "SSH"],
)
def test_what_is_not_http(server, data):
    assert 200 not in statuses(raw(server, data))
    still_serves(server)


@pytest.mark.parametrize(
    ("target", "host"),
    [
        ("http://evil.example/v1/models", "evil.example"),
        ("http://localhost/v1/models", "evil.example"),
        ("evil.example:443", "evil.example:443"),
    ],
)
def test_the_host_counts_in_whatever_form_the_target_is(server, target, host):
    method = "CONNECT" if target.endswith("443") else "GET"
    answer = raw(server, f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert statuses(answer) == [403]


def test_other_protocols_are_not_begun(server):
    for lines in (
        ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"],
        ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: eA==",
         "Sec-WebSocket-Version: 13"],
    ):  # fmt: skip
        assert 101 not in statuses(raw(server, head(server, "/", *lines, method="GET")))


def test_a_flood_on_one_connection(server):
    """Each request is answered, in order, and others are served meanwhile."""
    assert statuses(raw(server, head(server, "/health", method="GET") * 500)) == [200] * 500
    broken = head(server, CHAT, "Content-Length: 2", method="POST") + b"[]"
    assert statuses(raw(server, broken * 200)) == [400] * 200
    still_serves(server)


def test_a_body_is_asked_for_only_where_it_may_come(server):
    """Who says that a body of 1 GB follows, and waits for a sign, is refused without one."""
    lines = [f"Content-Length: {2**30}", "Expect: 100-continue", "Connection: close"]
    assert statuses(raw(server, head(server, CHAT, *lines), finish=False)) == [413]


NAMES = [
    "../../etc/passwd", "/etc/passwd", "..\\..\\x", "C:\\x.gguf", "file:///etc/passwd",
    "https://example.com/m.gguf", "hf.co/a/b", "tiny/../tiny", "tiny\0", "tiny\nINFO forged",
    "tiny\r\nx-evil: 1", "x" * 20_000, "%2e%2e%2f", "~", ".", "claude-akunu-../x",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name)[:30])
def test_names_of_models_are_only_compared(server, caplog, name):
    """Neither a path nor an address; and nothing of them breaks a line of the log or a header."""
    caplog.set_level(logging.DEBUG, "akunu_py")
    for path, body in BODIES.items():
        if path == MESSAGES and name.startswith(("claude", "anthropic")):
            continue  # stands for the default model
        response = server.post(path, body | {"model": name})
        assert response.status_code == 404
        assert "x-evil" not in response.headers
        assert len(response.content) < 2000
    assert server.get("/props", params={"model": name}).status_code == 404
    assert not server.backend.requests
    assert not any("\n" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    "path",
    ["/v1/models/..%2f..%2fetc%2fpasswd", "/v1/models/%2e%2e", "/v1/models/tiny%00", "//v1/models",
     "/v1/models/tiny%0d%0ax-evil:%201", "/v1//models", "/v1/models/%ff%fe", "/../../etc/passwd",
     "/v1/%2e%2e/v1/models", "/%0aINFO%20forged", "/v1/messages/x"],
)  # fmt: skip
def test_paths_lead_nowhere(server, caplog, path):
    caplog.set_level(logging.DEBUG, "akunu_py")
    answer = raw(server, head(server, path, "Connection: close", method="GET"))
    assert statuses(answer) == [404]
    assert b"\nx-evil" not in answer.lower()
    assert b"root:" not in answer
    assert not any("\n" in record.getMessage() for record in caplog.records)


def test_headers_and_fields_do_not_forge_lines_of_the_log(server, caplog):
    caplog.set_level(logging.DEBUG, "akunu_py")
    forged = "a\nINFO forged\x1b[31m"
    body = BODIES[MESSAGES] | {forged: 1, "tools": [{"type": forged, "name": "x"}]}
    server.post(MESSAGES, body, headers={"anthropic-beta": "x\tINFO", "user-agent": "\x1b[31m"})
    server.backend.play(said("x"))
    server.post(CHAT, BODIES[CHAT], headers={"x-request-id": "forged", "x-forwarded-for": "1.2"})
    written = [record.getMessage() for record in caplog.records]
    assert written
    assert not any("\n" in line or "\x1b" in line for line in written)
    assert not any("1.2" in line for line in written)


def test_keys_are_compared_in_constant_time(monkeypatch):
    """All of them, whichever fits: the time does not tell which one was near."""
    compared, genuine = [], hmac.compare_digest

    def compare(one, other):
        compared.append((one, other))
        return genuine(one, other)

    monkeypatch.setattr(security.hmac, "compare_digest", compare, raising=True)
    keys = [f"sk-test-{number:020}" for number in range(5)]
    with running(access=Access(key_digests=digests(keys))) as server:
        for key in (keys[0], keys[4], "sk-test-wrong", ""):
            compared.clear()
            server.get("/v1/models", headers={"x-api-key": key})
            assert len(compared) == len(keys)
            # Digests of equal length: the length of a key tells nothing either.
            assert {len(value) for pair in compared for value in pair} == {32}
