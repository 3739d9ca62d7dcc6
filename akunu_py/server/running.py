"""Runs the application with uvicorn."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from akunu_py.constraints import end_trials
from akunu_py.server.connection import MOST_HEADER_BYTES, TimedConnection
from akunu_py.system.errors import ConfigError

_DRAIN_S = 5
"""Seconds that replies under way have when the server ends."""

_LAST_WORDS_S = 20
"""Most seconds that errors of replies then have to reach the clients, on a busy machine, too."""

_THREADS = 64
"""Requests that are laid out at once, or wait for their constraints to be compiled."""

_BACKLOG = 512


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; with port 0 on any free one.

    Raises ConfigError for an address that cannot be used.
    """
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"another program listens on port {port} of {host}; give another --port, or 0 for "
                "any free one"
            ) from None
        reason = error.strerror or str(error)
        raise ConfigError(f"port {port} of {host} cannot be used: {reason}") from None
    # Connections inherit it; asyncio sets it only where a socket was made with its protocol's
    # number. Without it the body of each answer waits for the ACK of its head, 40 ms on Linux.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


class _Server(uvicorn.Server):
    """A server that leaves signals to `ending_by_signals`, and ends replies with an error."""

    def __init__(self, config: uvicorn.Config, end_replies: Callable[[], None]) -> None:
        super().__init__(config)
        self._end_replies = end_replies

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Make more threads than there are processors: most of them wait."""
        threads = ThreadPoolExecutor(_THREADS, "akunu requests")
        asyncio.get_running_loop().set_default_executor(threads)
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let replies end, first by themselves; a stream that were cut would just end.

        Those whose constraints are being compiled have not begun.
        """
        await asyncio.to_thread(end_trials)
        asyncio.get_running_loop().call_later(_DRAIN_S, self._end_replies)
        await super().shutdown(sockets)


@contextlib.contextmanager
def ending_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """Let the first Ctrl-C or kill end the server in order, and the second the process at once.

    What belongs to the end, such as writing KV entries to disk, is done within this context. After
    a signal the process then ends with 128 more than the signal's number, as other commands do.
    """
    received: list[int] = []

    def end(number: int, _frame: FrameType | None) -> None:
        if received:
            # Files are replaced whole, so none is left half written.
            os._exit(128 + number)
        received.append(number)
        server.should_exit = True

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        sys.stderr.flush()
        # Not by SystemExit: threads of MLX that are left abort the process ("terminate called
        # without an active exception") while Python tears itself down.
        os._exit(128 + received[0])


def server_of(app: ASGIApp, *, end_replies: Callable[[], None] = lambda: None) -> uvicorn.Server:
    """Return a server for an application, not yet running: `run(sockets=[listen(...)])` does that.

    `end_replies` is called if replies are still under way a few seconds after the server was told
    to end.

    uvicorn's own log of requests is off: the service writes one line a reply, without headers or
    queries, in which secrets may be.
    """
    config = uvicorn.Config(
        app,
        http=TimedConnection,
        ws="none",
        lifespan="off",
        loop="asyncio",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        log_config=None,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        timeout_graceful_shutdown=_DRAIN_S + _LAST_WORDS_S,
    )
    return _Server(config, end_replies)
