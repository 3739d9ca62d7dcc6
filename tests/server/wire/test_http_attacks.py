"""What hostile or broken clients send. Each gets a typed error, and the server goes on."""

import json
import logging
import sys
import time

import pytest
from raw_http import head, raw
from scripted_server import Pause, running, said
from starlette.datastructures import Headers
from wire_formats import BODIES, CHAT, GENERATE, MESSAGES, OLLAMA, error_of, refused

from akunu_py.server.connection import TimedConnection
from akunu_py.server.errors import RequestError
from akunu_py.server.security import Access, digests, read_key_file
from akunu_py.system.errors import ConfigError

KEY = "sk-test-0123456789abcdef"


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"messages": [',
        b"not json",
        b"[]",
        b'"text"',
        b"null",
        b"17",
        b'{"a": "\xff\xfe"}',
        b'{"temperature": NaN}',
        b'{"temperature": Infinity}',
        b'{"temperature": 1e999}',
        b'{"model": ' + b"9" * 5000 + b"}",
    ],
)
def test_bodies_that_are_not_json_objects(server, path, content):
    if content.startswith((b'{"a"', b'{"temperature": 1e999')) and path in {OLLAMA, GENERATE}:
        pytest.skip("fields that it does not know, without the prompt that others miss")
    refused(server, path, content)


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (r"a\ud800b", "a\ufffdb"),
        (r"\uDC00", "\ufffd"),
        (r"\ud800\ud800\udc00", "\ufffd\U00010000"),
        (r"\ud83d\u0041", "\ufffdA"),
        (r"\uD83D\uDE00", "\U0001f600"),
        (r"\\ud800 \\\ud800", "\\ud800 \\\ufffd"),
        (r"cut \ud83d", "cut \ufffd"),
    ],
)
def test_half_a_character_is_replaced(server, escaped, text):
    """JavaScript's strings may be cut within one."""
    server.post(CHAT, f'{{"messages": [{{"role": "user", "content": "{escaped}"}}]}}'.encode())
    assert server.backend.request.messages[0].text == text


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("key", ["unknown", "messages", "input", "prompt", "tools", "system"])
def test_deep_nesting(server, path, key):
    depth = 200_000
    body = json.dumps(BODIES[path] | {"tools": []})[:-1].encode()
    nested = b"[" * depth + b"]" * depth
    content = body + b', "' + key.encode() + b'": ' + nested + b"}"
    # Python 3.14 reads any depth, and a field that a path does not know is ignored.
    allowed = {200, 400} if sys.version_info >= (3, 14) else {400}
    assert server.post(path, content).status_code in allowed


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "http://169.254.169.254/", "data:image/png,x"]
)
def test_image_addresses_are_not_opened(server, url):
    part = {"type": "image_url", "image_url": {"url": url}}
    error = refused(server, CHAT, {"messages": [{"role": "user", "content": [part]}]})
    assert "only text" in error["message"]
    assert url not in error["message"]


def test_large_numbers_of_tokens_are_taken(server, backend):
    """The context ends a reply anyway."""
    for path, name in ((CHAT, "max_tokens"), (MESSAGES, "max_tokens")):
        assert server.post(path, BODIES[path] | {name: 2**63}).status_code == 200


def test_names_of_ignored_fields_cannot_break_headers(server):
    names = ["a\r\nx-evil: 1", " ", "\x00", "ü 漢", "x" * 5000, "\t", ""]
    body = BODIES[MESSAGES] | dict.fromkeys(names, 1)
    response = server.post(MESSAGES, body)
    assert response.status_code == 200
    assert "x-evil" not in response.headers


def test_length_and_chunks_together_are_not_two_requests(server):
    """What a proxy may read as a second request is the body of the first, or nothing."""
    smuggled = head(server, "/v1/models", method="GET")
    lines = ["Content-Length: 4", "Transfer-Encoding: chunked"]
    answer = raw(server, head(server, CHAT, *lines) + b"0\r\n\r\n" + smuggled)
    assert b'"data"' not in answer.split(b"\r\n\r\n")[0]
    assert answer.count(b"HTTP/1.1 200") <= 1


def test_length_longer_than_the_body(server):
    """The client leaves before its body is complete: nothing is asked of the backend."""
    raw(server, head(server, CHAT, "Content-Length: 500") + b'{"messages": []')
    assert not server.backend.requests
    assert server.get("/health").status_code == 200


def test_chunked_body_is_read(server):
    def parts():
        yield b'{"messages": [{"role": "user", '
        yield b'"content": "Hi"}]}'

    assert server.client.post(CHAT, content=parts()).status_code == 200
    assert server.backend.request.messages[0].text == "Hi"


def test_body_over_the_limit_is_refused_unread(server, monkeypatch):
    request = head(server, CHAT, f"Content-Length: {2**30}", "Connection: close")
    answer = raw(server, request, finish=False)
    assert answer.split()[1] == b"413"
    assert b"MB" in answer


@pytest.mark.parametrize(("size", "status"), [(2**16 - 1000, 200), (2**16 + 1, 431)])
def test_headers_have_64_kb_however_they_come(server, size, status):
    """In one packet or in many."""
    assert server.get("/health", headers={"x-large": "x" * size}).status_code == status


def test_headers_that_do_not_come(server, monkeypatch):
    """A connection is closed, whether nothing came or a byte now and then."""
    monkeypatch.setattr(TimedConnection, "header_timeout_s", 0.2)
    half = head(server)[:-2]
    for first in (b"", half):
        assert raw(server, first, finish=False) == b""
    # The same on a connection that has served a request, for which there is time.
    monkeypatch.setattr(TimedConnection, "header_timeout_s", 60)
    with server.socket() as connection:
        connection.sendall(head(server, "/health", method="GET"))
        assert b"200 OK" in connection.recv(65536)
        monkeypatch.setattr(TimedConnection, "header_timeout_s", 0.2)
        connection.sendall(half)
        while connection.recv(65536):
            pass


@pytest.mark.slow
def test_a_slow_reply_is_not_a_slow_request(server, monkeypatch):
    monkeypatch.setattr(TimedConnection, "header_timeout_s", 2)
    server.backend.play([Pause(2.5), *said("late")])
    assert "late" in server.post(CHAT, BODIES[CHAT]).text


def test_half_open_sockets_do_not_stop_others(server):
    opened = [server.socket() for _ in range(200)]
    for connection in opened:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x")
    assert server.get("/health").status_code == 200
    assert server.post(CHAT, BODIES[CHAT]).status_code == 200
    for connection in opened:
        connection.close()


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil", "8.8.8.8", "[::2]", "a@localhost", "", "localhost/x", "10.0.0.1"]
)  # fmt: skip
def test_foreign_hosts_are_refused(server, host):
    for path, body in BODIES.items():
        response = server.post(path, body, headers={"host": host})
        assert response.status_code in {400, 403}
        error_of(response, path)
    assert not server.backend.requests


@pytest.mark.parametrize(
    "host",
    ["localhost", "LocalHost:1", "127.0.0.1", "[::1]:80", "localhost.", "0.0.0.0:8080", "[::]"],
)
def test_own_hosts_are_taken(server, host):
    assert server.get("/v1/models", headers={"host": host}).status_code == 200


def test_two_hosts_are_refused(server):
    answer = raw(server, head(server, "/v1/models", "Host: evil.example", method="GET"))
    assert answer.split()[1] == b"400"


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example", "null", "http://localhost.evil.example", "http://evil.example:3000",
        "http://127.0.0.1.evil.example", "http://localhost@evil.example", "", "http://localhost:",
        "http://localhost:80:80", "http://localhost/x", "http://evil-localhost", "https://10.0.0.1",
        "http://[::2]", "http://127.0.0.1\\.evil.example", "ftp://localhost", "xapp://a", "app:evil",
        "chrome-extension://abc", "http://0.0.0.0.evil.example", "http://localhost http://evil",
        "tauri://localhost@evil.example", "http://.localhost", "http://evil.example/.localhost",
    ],
)  # fmt: skip
def test_foreign_origins_are_refused(server, origin):
    """Also with the body of a form, for which a browser asks no permission first."""
    for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded"):
        headers = {"origin": origin, "content-type": kind}
        response = server.post(CHAT, BODIES[CHAT], headers=headers)
        assert response.status_code == 403
        assert "access-control-allow-origin" not in response.headers
    asked = {"origin": origin, "access-control-request-method": "POST"}
    assert server.client.options(CHAT, headers=asked).status_code == 403
    assert not server.backend.requests


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost", "https://localhost:8443", "http://127.0.0.1:3000", "http://[::1]:5173",
        "http://0.0.0.0:8080", "app://obsidian.md", "tauri://localhost", "http://tauri.localhost",
        "https://tauri.localhost", "vscode-webview://0b1c2d-3e", "vscode-file://vscode-app",
        "file://",
    ],
)  # fmt: skip
def test_pages_of_this_machine_may_use_it(server, origin):
    """Those that Ollama lets in, with what browsers ask before."""
    response = server.post(CHAT, BODIES[CHAT], headers={"origin": origin})
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == origin
    check_permission(server, origin)
    # Whose page it is changes nothing about whose name it may call the server by.
    rebound = {"origin": origin, "host": "evil.example"}
    assert server.post(CHAT, BODIES[CHAT], headers=rebound).status_code == 403


def check_permission(server, origin):
    """It is given to a browser that asks before it sends a request of a page."""
    asked = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type",
    }
    permitted = server.client.options(CHAT, headers=asked)
    assert permitted.status_code == 200
    assert permitted.headers["access-control-allow-origin"] == origin


def test_own_and_allowed_origins_are_taken():
    allowed = "https://studio.example"
    with running(access=Access(origins=(allowed,), hosts=("studio.local",))) as server:
        own = {"origin": server.url}
        assert server.post(CHAT, BODIES[CHAT], headers=own).status_code == 200
        response = server.post(CHAT, BODIES[CHAT], headers={"origin": allowed})
        assert response.headers["access-control-allow-origin"] == allowed
        check_permission(server, allowed)
        assert server.get("/health", headers={"host": "studio.local:80"}).status_code == 200
        evil = {"origin": allowed + ".evil.example"}
        assert server.post(CHAT, BODIES[CHAT], headers=evil).status_code == 403


@pytest.fixture(scope="module")
def shared_locked():
    with running(access=Access(key_digests=digests([KEY, "another-key-0123456789"]))) as server:
        yield server


@pytest.fixture
def locked(shared_locked):
    """A server that asks for a key."""
    shared_locked.backend.__init__()
    return shared_locked


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Basic {KEY}"},
        {"authorization": f"Bearer {KEY}x"},
        {"x-api-key": ""},
        {"x-api-key": KEY[:-1]},
        {"authorization": "Bearer wrong", "x-api-key": "wrong"},
    ],
)
def test_wrong_keys(locked, headers):
    for path, body in BODIES.items():
        response = locked.post(path, body, headers=headers)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert KEY[:-1] not in response.text
        error_of(response, path)
    for path in ("/v1/models", "/metrics", "/props", "/nothing"):
        assert locked.get(path, headers=headers).status_code == 401
    assert not locked.backend.requests


def test_right_keys_name_the_client(locked):
    for headers in (
        {"authorization": f"Bearer {KEY}"},
        {"x-api-key": KEY},
        {"authorization": f"bearer  {KEY}"},
        {"authorization": "Bearer of-another-service", "x-api-key": KEY},
    ):
        assert locked.post(CHAT, BODIES[CHAT], headers=headers).status_code == 200
    locked.post(CHAT, BODIES[CHAT], headers={"x-api-key": "another-key-0123456789"})
    assert locked.backend.clients == ["key 1"] * 4 + ["key 2"]


def test_life_is_asked_without_a_key(locked):
    assert locked.get("/health").status_code == 200
    assert locked.client.head("/").status_code == 200


def test_another_host_needs_a_key():
    for host in ("192.168.1.5", "::", "0.0.0.0", "studio.local"):  # noqa: S104
        with pytest.raises(ConfigError, match="--api-key-file"):
            Access(host=host)
        Access(host=host, key_digests=digests([KEY]))
    for host in ("127.0.0.1", "::1", "localhost", "127.1.2.3"):
        assert Access(host=host).is_local


def test_addresses_are_hosts_of_a_server_for_others():
    access = Access(host="192.168.1.5", key_digests=digests([KEY]))
    access.check_host(Headers({"host": "192.168.1.6:8080"}))
    with pytest.raises(RequestError, match="not a name of this server"):
        access.check_host(Headers({"host": "evil.example"}))


@pytest.mark.parametrize("origin", ["*", "localhost", "http://a/b", "http://*", "http://a b"])
def test_origins_are_checked(origin):
    with pytest.raises(ConfigError, match="origin"):
        Access(origins=(origin,))


def test_key_file(tmp_path):
    path = tmp_path / "keys"
    path.write_text(f"# mine\n\n{KEY}\n another-key-0123456789 \n")
    path.chmod(0o600)
    assert read_key_file(path) == digests([KEY, "another-key-0123456789"])


@pytest.mark.parametrize(
    ("text", "mode", "said_of_it"),
    [
        (KEY, 0o644, "chmod 600"),
        (KEY, 0o640, "chmod 600"),
        ("", 0o600, "no API key"),
        ("# only\n", 0o600, "no API key"),
        ("short", 0o600, "line 1"),
        (f"{KEY}\nwith space in the key", 0o600, "line 2"),
        (f"{KEY}ü", 0o600, "line 1"),
    ],
)
def test_bad_key_files(tmp_path, text, mode, said_of_it):
    path = tmp_path / "keys"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=said_of_it) as caught:
        read_key_file(path)
    assert KEY not in str(caught.value)
    assert "with space" not in str(caught.value)


def test_missing_key_file(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_key_file(tmp_path / "none")


def test_no_secrets_in_logs_or_memory(locked, caplog):
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "akunu_py")
    locked.post(CHAT + f"?api_key={KEY}", BODIES[CHAT], headers={"authorization": f"Bearer {KEY}"})
    locked.post(CHAT, BODIES[CHAT], headers={"authorization": "Bearer wrong-secret-value"})

    def own():
        theirs = ("httpx", "httpcore")
        return [record for record in caplog.records if not record.name.startswith(theirs)]

    # The server writes its line behind the answer, in a thread of its own.
    for _ in range(6000):
        if any("/v1/chat/completions 200" in record.getMessage() for record in own()):
            break
        time.sleep(0.05)
    assert any("/v1/chat/completions 200" in record.getMessage() for record in own())
    written = "\n".join(record.getMessage() for record in own())
    assert KEY not in written
    assert "wrong-secret-value" not in written
    assert KEY not in repr(locked.service)


@pytest.mark.parametrize(
    "method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "TRACE", "OPTIONS", "FROB"]
)
def test_methods(server, method):
    response = server.client.request(method, CHAT)
    assert response.status_code == 405
    if method != "HEAD":
        error_of(response)
    assert server.client.request(method, MESSAGES).status_code == 405
