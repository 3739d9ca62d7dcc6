"""Runs the application with uvicorn."""

import errno
import socket

import uvicorn
from starlette.types import ASGIApp

from akunu_py.errors import ConfigError
from akunu_py.server.connection import MOST_HEADER_BYTES, TimedConnection

_SHUTDOWN_S = 5
_BACKLOG = 512


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; with port 0 on any free one.

    Raises ConfigError for an address that cannot be used.
    """
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"another program listens on port {port} of {host}; give another --port, or 0 for "
                "any free one"
            ) from None
        reason = error.strerror or str(error)
        raise ConfigError(f"port {port} of {host} cannot be used: {reason}") from None


def server_of(app: ASGIApp) -> uvicorn.Server:
    """Return a server for an application, not yet running: `run(sockets=[listen(...)])` does that.

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
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )
    return uvicorn.Server(config)
