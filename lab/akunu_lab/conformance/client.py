"""HTTP requests to the server that is examined, from the standard library."""

import contextlib
import http.client
import json
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from akunu_py.api import AkunuError, ConfigError

_WAIT_S = 300.0
"""Longest time without a byte. A prompt may take minutes on a slow machine."""

_MOST_BYTES = 2**24


class FailedError(AkunuError):
    """The server breaks a rule; the message says how."""


class SkippedError(AkunuError):
    """A rule cannot be checked here; the message says why."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer: `value` is the body as JSON, None if it is not JSON."""

    status: int
    body: bytes
    value: Any


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a stream: when it came, in seconds since the request, its name and its value.

    The value is None for an event that is not JSON, such as [DONE], and for a comment, with which
    some servers keep a connection alive.
    """

    seconds: float
    name: str
    value: Any


class Client:
    """Sends requests to one server.

    Args:
        url: the server's address; a path /v1 at its end is left out.
        key: its API key; "" for none.

    Raises ConfigError for what is not an address.

    """

    def __init__(self, url: str, key: str = "") -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if parts.scheme not in {"http", "https"} or not host:
            raise ConfigError(f"{url!r:.100} is not an address; give one as http://127.0.0.1:8080")
        self._secure = parts.scheme == "https"
        self._host, self._port = host, port
        self._prefix = parts.path.rstrip("/").removesuffix("/v1")
        self._headers = {"content-type": "application/json"}
        if key:
            self._headers |= {"authorization": f"Bearer {key}", "x-api-key": key}
        self.url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{self._prefix}"

    def call(self, method: str, path: str, body: object = None) -> HttpAnswer:
        """Send a request and return its answer; a body that is not bytes is sent as JSON.

        Raises FailedError if there is none.
        """
        with self._exchange(method, path, body) as response:
            data = self._read(path, response)
        try:
            value = json.loads(data) if data else None
        except ValueError:
            value = None
        return HttpAnswer(response.status, data, value)

    def post(self, path: str, body: object) -> HttpAnswer:
        """Send a body; return the answer."""
        return self.call("POST", path, body)

    def events(self, path: str, body: object) -> Generator[Event, None, None]:
        """Yield the events of a stream as they come; closing the generator leaves the server.

        Raises FailedError for another status than 200, and for a stream that breaks off.
        """
        started = time.perf_counter()
        with self._exchange("POST", path, body) as response:
            if response.status != 200:
                said = self._read(path, response).decode(errors="replace")
                raise FailedError(f"POST {path}, streamed: {response.status} {said:.200}")
            name, data = "", ""
            while line := self._line(path, response):
                text = line.decode(errors="replace").rstrip("\r\n")
                field, _, value = text.partition(":")
                if text.startswith(":"):
                    yield Event(time.perf_counter() - started, "", None)
                elif field == "event":
                    name = value.strip()
                elif field == "data":
                    data += value.strip()
                elif not text and data:
                    yield Event(time.perf_counter() - started, name, _json(data))
                    name, data = "", ""

    def leave(self, path: str, body: object) -> None:
        """Send a request and go away without waiting for its answer."""
        connection = self._connection()
        with contextlib.suppress(OSError):
            self._send(connection, "POST", path, body)
        connection.close()

    @contextlib.contextmanager
    def _exchange(self, method: str, path: str, body: object) -> Iterator[http.client.HTTPResponse]:
        connection = self._connection()
        try:
            try:
                self._send(connection, method, path, body)
                response = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                raise FailedError(f"{method} {path}: {_reason(error)}") from None
            with response:
                yield response
        finally:
            connection.close()

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: object
    ) -> None:
        headers = dict(self._headers)
        if path.startswith("/v1/messages"):
            headers["anthropic-version"] = "2023-06-01"
        if method == "HEAD":  # its answer has no body to unpack, and some pages are only packed
            headers["accept-encoding"] = "gzip"
        connection.request(method, self._prefix + path, _bytes(body), headers)

    def _connection(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        return kind(self._host, self._port, timeout=_WAIT_S)

    @staticmethod
    def _read(path: str, response: http.client.HTTPResponse) -> bytes:
        try:
            return response.read(_MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise FailedError(f"{path}: the answer breaks off: {_reason(error)}") from None

    @staticmethod
    def _line(path: str, response: http.client.HTTPResponse) -> bytes:
        try:
            return response.readline(_MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise FailedError(f"{path}: the stream breaks off: {_reason(error)}") from None


def _bytes(body: object) -> bytes | None:
    if body is None or isinstance(body, bytes):
        return body
    return json.dumps(body).encode()


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no byte for {_WAIT_S:.0f} s"
    return str(error) or type(error).__name__
