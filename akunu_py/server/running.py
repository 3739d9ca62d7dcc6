"""Runs the application with uvicorn."""

import uvicorn
from starlette.types import ASGIApp

from akunu_py.server.connection import MOST_HEADER_BYTES, TimedConnection

_SHUTDOWN_S = 5
_BACKLOG = 512


def server_of(app: ASGIApp, *, host: str, port: int) -> uvicorn.Server:
    """Return a server, not yet running, for an application.

    uvicorn's own log of requests is off: the service writes one line a reply, without headers or
    queries, in which secrets may be.
    """
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=TimedConnection,
        ws="none",
        lifespan="off",
        loop="asyncio",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        log_config=None,
        backlog=_BACKLOG,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )
    return uvicorn.Server(config)
