"""Several replies to one request, which OpenAI's APIs call choices: of one prompt, or of several.

Each choice is a reply of its own. Choice i has the request's seed plus i, as in vLLM and llama.cpp,
so a request with that seed alone gets the same reply. A long prompt is read once: the worker lets
the other choices wait for the one that reads it. The worker's line holds at most as many of them as
it has places, so that a long list of prompts keeps nobody out.
"""

import asyncio
import secrets
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from akunu_py.server.backend import Backend, EmbeddingRequest, Request, ServedReply
from akunu_py.server.errors import Api, Problem, RequestError
from akunu_py.server.events import (
    Accepted,
    Addition,
    ChoiceEnd,
    Event,
    Finished,
    Loading,
    NextChoice,
    Prefilled,
    Progress,
    Usage,
)
from akunu_py.server.reply_response import ReplyForm
from akunu_py.system.errors import ServerBusyError
from akunu_py.values.decode_stats import DecodeStats

_SEEDS = 2**64


def choice_count(n: int | None, places: int) -> int:
    """Return how many choices a request asks for; at most as many as there are places.

    Raises RequestError for another number.
    """
    if n is None or 1 <= n <= places:
        return 1 if n is None else n
    raise RequestError(
        f"n is {n}; give 1 to {places}: that many replies are made at once (--parallel)",
        param="n",
    )


def submit_choices(
    backend: Backend, requests: Sequence[Request], client: str, each: int
) -> ServedReply:
    """Queue requests that are answered together, `each` times; raises as `Backend.submit` does."""
    if len(requests) == each == 1:
        return backend.submit(requests[0], client)

    def submit(place: int) -> ServedReply:
        return backend.submit(_with_seed(requests[place // each], place % each), client)

    return Choices(submit, len(requests) * each, each=each, at_once=backend.health().places)


def _with_seed(request: Request, index: int) -> Request:
    if isinstance(request, EmbeddingRequest) or (seed := request.config.seed) is None:
        return request  # each reply draws one
    return replace(request, config=replace(request.config, seed=(seed + index) % _SEEDS))


class Choices:
    """The events of several replies as those of one; used from one event loop.

    `NextChoice` comes before events of another choice, `ChoiceEnd` at the end of each, and
    `Finished` with the sum of their usage at the end of all. Progress of the prompt is that of the
    reply that reads it. The first error ends all of them.

    Args:
        submit: begins the reply of a place, from 0 to `count`; its errors are raised.
        count: how many replies there are.
        each: how many of them, in order, have the same prompt.
        at_once: how many are made at once.

    """

    def __init__(
        self, submit: Callable[[int], ServedReply], count: int, *, each: int, at_once: int
    ) -> None:
        self._submit = submit
        self._count, self._each = count, each
        self._coming = deque(range(count))
        self._replies: list[ServedReply] = []
        self._arrived: asyncio.Queue[tuple[int, Event | Exception]] = asyncio.Queue()
        self._readers: list[asyncio.Future[None]] = []
        self._under_way = 0
        self._ready: list[Event] = []
        self._choice = -1
        self._loading = False
        self._first: int | None = None  # the reply that reads the prompt
        self._ended: dict[int, Finished] = {}
        for _ in range(max(each, at_once)):
            self._begin_next()

    def _begin_next(self) -> None:
        """Begin the next reply, if there is one."""
        if not self._coming:
            return
        place = self._coming.popleft()
        try:
            reply = self._submit(place)
        except Exception:
            self.cancel()
            raise
        self._under_way += 1
        self._replies.append(reply)
        self._readers.append(asyncio.ensure_future(self._read(place, reply)))

    async def _read(self, index: int, reply: ServedReply) -> None:
        """Pass the events of a reply on, with its error as the last one."""
        event = None
        try:
            while not isinstance(event, Finished):
                event = await anext(reply)
                self._arrived.put_nowait((index, event))
            self._under_way -= 1
            self._begin_next()
        except Exception as error:  # noqa: BLE001 - the reader of all choices raises it
            self._under_way -= 1
            if isinstance(error, ServerBusyError) and event is None and self._under_way:
                self._coming.appendleft(index)  # until one of the others ends
                return
            self._arrived.put_nowait((index, error))

    def cancel(self) -> None:
        """End all replies."""
        for reply in self._replies:
            reply.cancel()
        for reader in self._readers:
            reader.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._ready:
            if len(self._ended) == self._count:
                raise StopAsyncIteration
            index, event = await self._arrived.get()
            if isinstance(event, Exception):
                self.cancel()
                raise event
            self._add(index, event)
        return self._ready.pop(0)

    def _add(self, index: int, event: Event) -> None:
        match event:
            case Loading():
                if not self._loading:
                    self._loading = True
                    self._ready.append(event)
                return
            case Accepted() if self._first is None:
                self._first = index
                self._ready.append(event)
                return
            case Accepted():
                return
            case Prefilled():
                if index == self._first:
                    self._ready.append(event)
                return
        if index != self._choice:
            self._choice = index
            self._ready.append(NextChoice(index))
        if not isinstance(event, Finished):
            self._ready.append(event)
            return
        self._ready.append(ChoiceEnd(event))
        self._ended[index] = event
        if len(self._ended) == self._count:
            ended = [self._ended[place] for place in range(self._count)]
            self._ready.append(_together(ended, self._each))


def _together(ended: Sequence[Finished], each: int) -> Finished:
    """Return the end of all choices: each prompt counts once, and the replies add up."""
    cancelled = next((end for end in ended if end.reason == "cancelled"), None)
    usages = [end.usage for end in ended]
    readers = [
        min(usages[start : start + each], key=lambda usage: usage.cached_tokens)
        for start in range(0, len(usages), each)
    ]
    usage = Usage(
        prompt_tokens=sum(reader.prompt_tokens for reader in readers),
        cached_tokens=sum(reader.cached_tokens for reader in readers),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        reasoning_tokens=sum(usage.reasoning_tokens for usage in usages),
        accepted_predictions=sum(usage.accepted_predictions for usage in usages),
        rejected_predictions=sum(usage.rejected_predictions for usage in usages),
        prefill_s=sum(reader.prefill_s for reader in readers),
        # They are made at the same time, in turns.
        decode_s=max(usage.decode_s for usage in usages),
        cache_note=readers[0].cache_note,
        stats=sum((usage.stats for usage in usages), DecodeStats()),
    )
    return replace(cancelled or ended[0], usage=usage)


@dataclass(frozen=True, slots=True)
class ChoicePlace:
    """The place of a choice: its response, when that was begun in seconds since 1970, its index."""

    response: str
    created: int
    index: int


class ChoiceForm(ReplyForm):
    """The form of one choice of a response."""

    @abstractmethod
    def last_chunk(self, finished: Finished) -> bytes:
        """Return the last chunk of the choice in a stream."""

    @abstractmethod
    def ending(self, finished: Finished) -> bytes:
        """Return the events after the last chunks of all choices."""

    def closing(self, finished: Finished) -> bytes:
        return self.last_chunk(finished) + self.ending(finished)


def in_choices(prefix: str, form: Callable[[ChoicePlace], ChoiceForm], count: int) -> ReplyForm:
    """Return the form of a response with `count` choices; its id begins with `prefix`."""
    response, created = prefix + secrets.token_hex(12), int(time.time())
    forms = [form(ChoicePlace(response, created, index)) for index in range(count)]
    return forms[0] if count == 1 else _ChoicesForm(forms)


class _ChoicesForm(ReplyForm):
    """Several replies as the choices of one response."""

    def __init__(self, forms: Sequence[ChoiceForm]) -> None:
        self.api: Api = forms[0].api
        self.prompt_field = forms[0].prompt_field
        self._forms = forms
        self._choice = forms[0]
        self._ended: dict[int, Finished] = {}

    def opening(self, accepted: Accepted | None) -> bytes:
        first, *others = self._forms
        return first.opening(accepted) + b"".join(form.opening(None) for form in others)

    def addition(self, delta: Addition) -> bytes:
        return self._choice.addition(delta)

    def keep_alive(self) -> bytes:
        return self._choice.keep_alive()

    def progress(self, event: Progress) -> bytes:
        match event:
            case NextChoice(index):
                self._choice = self._forms[index]
                return b""
            case ChoiceEnd(finished):
                self._ended[self._forms.index(self._choice)] = finished
                return self._choice.last_chunk(finished)
        return self._choice.progress(event)

    def closing(self, finished: Finished) -> bytes:
        return self._forms[0].ending(finished)

    def failing(self, problem: Problem, request_id: str) -> bytes:
        return self._forms[0].failing(problem, request_id)

    def whole(self, finished: Finished) -> dict[str, Any]:
        # The end of all has the usage of all, and the reason of the first.
        self._ended[0] = finished
        whole, *others = [form.whole(self._ended[at]) for at, form in enumerate(self._forms)]
        whole["choices"] += [choice for other in others for choice in other["choices"]]
        return whole
