"""Events of a reply, handed from the worker's thread to one reader."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, Self

from akunu_py.server.events import Accepted, Loading, Prefilled
from akunu_py.values.types import StreamEvent

WorkerEvent = Loading | Accepted | Prefilled | StreamEvent
"""An event of the server's own, or a step of the engine."""


class ReplyEvents(Iterator[WorkerEvent], AsyncIterator[WorkerEvent]):
    """Events in order, for a reader that waits for them in a thread or on an event loop.

    They are not bounded: a reply has at most one event per token. An error of the reply is raised
    after the events before it, and again at every later read.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._events: deque[WorkerEvent] = deque()
        self._over = False
        self._error: Exception | None = None
        self._wake: Callable[[], Any] | None = None

    def put(self, event: WorkerEvent) -> None:
        """Add an event."""
        with self._changed:
            self._events.append(event)
            self._tell()

    def end(self, error: BaseException | None = None) -> None:
        """End the events; only the first call counts. Readers get a RuntimeError for a panic."""
        if error is not None and not isinstance(error, Exception):
            error = RuntimeError(f"{type(error).__name__}: {error}")
        with self._changed:
            if not self._over:
                self._over, self._error = True, error
                self._tell()

    def _tell(self) -> None:
        self._changed.notify_all()
        wake, self._wake = self._wake, None
        if wake is not None:
            # The reader's loop may be closed by now.
            with contextlib.suppress(RuntimeError):
                wake()

    def _next(self) -> WorkerEvent | None:
        """Return the next event, or None if there is none yet; raise what ends the events."""
        if self._events:
            return self._events.popleft()
        if self._error is not None:
            raise self._error
        return None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> WorkerEvent:
        with self._changed:
            while (event := self._next()) is None:
                if self._over:
                    raise StopIteration
                self._changed.wait()
            return event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WorkerEvent:
        loop = asyncio.get_running_loop()
        while True:
            arrived = asyncio.Event()
            with self._changed:
                if (event := self._next()) is not None:
                    return event
                if self._over:
                    raise StopAsyncIteration
                self._wake = partial(loop.call_soon_threadsafe, arrived.set)
            await arrived.wait()
