"""One reply as an HTTP response, streamed or whole, in the form of an API.

The same rules hold for all APIs. An error before the first byte has a status of its own, and a
later one is an event of the stream: a stream never just ends. Keep-alive events are sent while
nothing else comes. A client that goes away, or does not read, ends its reply at once.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec
import numpy as np
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from akunu_py.server import sse
from akunu_py.server.backend import ServedReply
from akunu_py.server.errors import Api, Problem, error_body, error_headers, problem_of
from akunu_py.server.events import Accepted, Addition, Event, Finished, Loading, Progress, Usage
from akunu_py.system.errors import ModelLoadingError, ServerBusyError

_LOAD_RETRY_S = 30

_Result = TypeVar("_Result")


class ReplyForm(ABC):
    """The form of one reply in one API, streamed or whole; it keeps what it was given."""

    api: Api
    """Whose errors its clients read."""
    prompt_field: str
    """The field of a request that has the prompt."""
    stream_headers: Mapping[str, str] = sse.HEADERS

    @abstractmethod
    def opening(self, accepted: Accepted | None) -> bytes:
        """Return the first bytes of a stream; the prompt's size may not be known yet."""

    @abstractmethod
    def addition(self, delta: Addition) -> bytes:
        """Return the bytes of an addition; none if nothing is to be said yet."""

    @abstractmethod
    def keep_alive(self) -> bytes:
        """Return the keep-alive message of the API."""

    def progress(self, event: Progress) -> bytes:
        """Return the bytes that tell of progress; none where the client did not ask for them."""
        del event
        return b""

    @abstractmethod
    def closing(self, finished: Finished) -> bytes:
        """Return the last bytes of a stream."""

    @abstractmethod
    def failing(self, problem: Problem, request_id: str) -> bytes:
        """Return the last bytes of a stream that ends with an error."""

    @abstractmethod
    def whole(self, finished: Finished) -> dict[str, Any]:
        """Return the reply, made of its additions, as one object."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the response waits, in seconds."""

    first_s: float = 8.0
    """For the prompt's size, which takes seconds, or an error, before a stream begins without."""
    keep_alive_s: float = 8.0
    """For the next event, before a keep-alive. Clients give up after 15 seconds."""
    send_s: float = 60.0
    """For the client to read."""
    load_s: float = 120.0
    """For a model that is loaded or waits for memory, where no keep-alive can be sent. The load
    goes on."""


@dataclass(frozen=True, slots=True)
class ResponseOutcome:
    """How a response went, for metrics and the log.

    `usage` is None unless the reply finished; `first_s` is the time to the first addition, None
    without one. Times in seconds.
    """

    status: int
    usage: Usage | None
    first_s: float | None
    total_s: float
    disconnected: bool = False


class ReplyResponse(Response):
    """Answers one request; an ASGI application.

    Args:
        reply: the events.
        form: the form of the API.
        stream: whether the client asked for a stream.
        headers: makes the headers of the answer, if it is not an error, when it begins.
        request_id: named in errors.
        record: called once, at the end.
        patience: how long to wait for what.

    """

    def __init__(
        self,
        reply: ServedReply,
        form: ReplyForm,
        *,
        stream: bool,
        headers: Callable[[], Mapping[str, str]],
        request_id: str,
        record: Callable[[ResponseOutcome], None] = lambda _: None,
        patience: Patience = Patience(),
    ) -> None:
        self._reply = reply
        self._form = form
        self._stream = stream
        self._own_headers = headers
        self._request_id = request_id
        self._record = record
        self._patience = patience
        self._status = 200
        self._usage: Usage | None = None
        self._started = time.perf_counter()
        self._first_s: float | None = None
        self.background = None

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or stop at once when the client goes away."""
        answering = self._answer_streamed if self._stream else self._answer_whole
        error: Exception | None = None
        try:
            await unless_client_leaves(receive, answering(send))
        except Exception as raised:  # noqa: BLE001 - recorded first
            error = raised
        finally:
            self._reply.cancel()
        total_s = time.perf_counter() - self._started
        disconnected = isinstance(error, ClientDisconnect)
        if disconnected:
            # Nobody reads its words; but what the client has of the reply may come back.
            self._form.failing(Problem(499, "the client left"), self._request_id)
        self._record(
            ResponseOutcome(self._status, self._usage, self._first_s, total_s, disconnected)
        )
        if error is not None and not disconnected:
            raise error

    async def _answer_whole(self, send: Send) -> None:
        note = ""
        try:
            event: Event = await self._read()
            if isinstance(event, Loading):
                event = await self._loaded(event)
            while not isinstance(event, Finished):
                if isinstance(event, Accepted):
                    note = event.cache_note
                # As in a stream, so that both say the same; the bytes are not needed.
                if isinstance(event, Progress):
                    self._form.progress(event)
                else:
                    self._notice(event)
                    self._form.addition(event)
                event = await self._read()
            body = self._form.whole(_check_end(event))
            encode = partial(msgspec.json.encode, body, enc_hook=np.ndarray.tolist)
            # Vectors may be so many that they would block the event loop.
            content = encode() if event.vectors is None else await asyncio.to_thread(encode)
        except Exception as error:  # noqa: BLE001 - each becomes an answer
            await self._refuse(error, send)
            return
        self._usage = usage = event.usage
        headers = _cache_headers(usage.cached_tokens, usage.prefilled_tokens, note)
        await self._send_json(send, 200, content, {**self._own_headers(), **headers})

    async def _loaded(self, loading: Loading) -> Event:
        """Return the first event after a model was loaded; raises ModelLoadingError if it is late.

        The client may have no patience either, and it sees nothing until the reply is complete.
        """
        event = await self._next(self._patience.load_s)
        if event is None:
            raise ModelLoadingError(
                f"the model {loading.model} is being loaded, or waits for replies of another to "
                f"end; try again in {_LOAD_RETRY_S} s, or ask for a stream",
                retry_after_s=_LOAD_RETRY_S,
            )
        return event

    async def _answer_streamed(self, send: Send) -> None:
        try:
            event = await self._next(self._patience.first_s)
            if isinstance(event, Loading):
                event = await self._next(self._patience.first_s)
        except Exception as error:  # noqa: BLE001 - each becomes an answer
            await self._refuse(error, send)
            return
        accepted = event if isinstance(event, Accepted) else None
        headers = {**self._form.stream_headers, **self._own_headers()}
        if accepted is not None:
            cached = accepted.num_cached_tokens
            prefilled = accepted.num_prompt_tokens - cached
            headers |= _cache_headers(cached, prefilled, accepted.cache_note)
        await self._send(
            send, {"type": "http.response.start", "status": 200, "headers": _raw(headers)}
        )
        await self._write(send, self._form.opening(accepted))
        try:
            if event is None or isinstance(event, Progress):
                event = await self._next_with_keep_alive(send)
            while not isinstance(event, Finished):
                self._notice(event)
                await self._write(send, self._form.addition(event))
                event = await self._next_with_keep_alive(send)
            last = self._form.closing(_check_end(event))
            self._usage = event.usage
        except ClientDisconnect:
            raise
        except Exception as error:  # noqa: BLE001 - each becomes the stream's last event
            problem = problem_of(error, prompt_field=self._form.prompt_field)
            self._status = problem.status
            last = self._form.failing(problem, self._request_id)
        await self._write(send, last)
        await self._send(send, {"type": "http.response.body", "body": b"", "more_body": False})

    async def _read(self) -> Event:
        try:
            return await anext(self._reply)
        except StopAsyncIteration:
            raise RuntimeError("a reply ended without its last event") from None

    async def _next(self, timeout_s: float) -> Event | None:
        """Return the next event, or None when the time is over.

        In this task, not in one for each event: events come as fast as tokens.
        """
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                return await self._read()
        except TimeoutError:
            if not limit.expired():
                raise
            return None

    async def _next_with_keep_alive(self, send: Send) -> Addition | Finished:
        """Return the next event that is more than progress; keep the client waiting until then."""
        until = time.perf_counter() + self._patience.keep_alive_s
        while True:
            event = await self._next(max(0.0, until - time.perf_counter()))
            if event is not None and not isinstance(event, Progress):
                return event
            kept = b"" if event is None else self._form.progress(event)
            if not kept and time.perf_counter() >= until:
                kept = self._form.keep_alive()
            if kept:
                await self._write(send, kept)
                until = time.perf_counter() + self._patience.keep_alive_s

    def _notice(self, event: Event) -> None:
        if self._first_s is None and not isinstance(event, Progress | Finished):
            self._first_s = time.perf_counter() - self._started

    async def _refuse(self, error: Exception, send: Send) -> None:
        problem = problem_of(error, prompt_field=self._form.prompt_field)
        body = error_body(problem, self._form.api, self._request_id)
        content = msgspec.json.encode(body)
        await self._send_json(send, problem.status, content, error_headers(problem))

    async def _send_json(
        self, send: Send, status: int, content: bytes, headers: Mapping[str, str]
    ) -> None:
        self._status = status
        own = {"content-type": "application/json", "content-length": str(len(content))}
        fields = _raw(own | dict(headers))
        await self._send(send, {"type": "http.response.start", "status": status, "headers": fields})
        await self._send(send, {"type": "http.response.body", "body": content, "more_body": False})

    async def _write(self, send: Send, body: bytes) -> None:
        if body:
            await self._send(send, {"type": "http.response.body", "body": body, "more_body": True})

    async def _send(self, send: Send, message: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(self._patience.send_s):
                await send(message)
        except TimeoutError:
            # A client that does not read is as good as gone.
            raise ClientDisconnect from None


def _check_end(finished: Finished) -> Finished:
    """Refuse the end of a reply that the server cancelled while its client waited."""
    if finished.reason == "cancelled":
        raise ServerBusyError(
            "the server ended this reply before it was complete; ask again", retry_after_s=1
        )
    return finished


async def unless_client_leaves(receive: Receive, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Return the result; a client that leaves ends the work, which raises ClientDisconnect."""
    working = asyncio.create_task(work)
    gone = asyncio.create_task(_disconnect(receive))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()
        gone.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)
    if working.cancelled():
        raise ClientDisconnect
    return working.result()


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _cache_headers(cached: int, prefilled: int, note: str) -> dict[str, str]:
    value = f"reused={cached}; prefilled={prefilled}"
    return {"x-akunu-cache": f"{value}; note={note}" if note else value}


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Return headers as ASGI has them; characters outside of Latin-1 become question marks."""
    return [
        (name.encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in headers.items()
    ]
