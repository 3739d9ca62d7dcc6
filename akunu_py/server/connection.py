"""HTTP connections whose headers must be short and come in time.

uvicorn limits the size of headers that are not complete, but neither those that come at once nor
the time to send them: a client that sends a byte now and then would keep a connection for good.
"""

import asyncio
from typing import Any

import h11
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

from akunu_py.server.errors import RequestError

HEADER_TIMEOUT_S = 15.0
"""Longest time from a connection, or a further request's first byte, to the end of headers."""

MOST_HEADER_BYTES = 64 * 2**10


def check_header_size(scope: Scope) -> None:
    """Refuse a request with more bytes of headers than `MOST_HEADER_BYTES`; raises RequestError."""
    lines = [(scope["raw_path"], scope["query_string"]), *scope["headers"]]
    # Behind each name and value there are ": " and the end of the line.
    if sum(len(name) + len(value) + 4 for name, value in lines) > MOST_HEADER_BYTES:
        raise RequestError(
            f"the headers have more than {MOST_HEADER_BYTES // 1024} KB; send fewer", status=431
        )


class TimedConnection(H11Protocol):
    """A connection that is closed if the headers of a request do not come in time."""

    header_timeout_s = HEADER_TIMEOUT_S

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Its line would have the query, in which some clients send keys. uvicorn's own switch acts
        # on a logger of the whole process, which other code may turn on again.
        self.access_log = False
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait_for_headers()

    def data_received(self, data: bytes) -> None:
        """Read; stop waiting when a request is complete up to its body."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self.conn.trailing_data[0]:
            self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_headers(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(self.header_timeout_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _give_up(self) -> None:
        self._header_timer = None
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()
