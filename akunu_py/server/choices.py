"""Several replies to one request, which OpenAI's APIs call choices.

Each choice is a reply of its own. Choice i has the request's seed plus i, as in vLLM and llama.cpp,
so a request with that seed alone gets the same reply. A long prompt is read once: the worker lets
the other choices wait for the one that reads it.
"""

import asyncio
import secrets
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from akunu_py.server.backend import Backend, ServedReply
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
from akunu_py.server.requests import Request
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


def submit_choices(backend: Backend, request: Request, client: str, count: int) -> ServedReply:
    """Queue a request, or as many as it has choices; raises as `Backend.submit` does."""
    if count == 1:
        return backend.submit(request, client)
    replies: list[ServedReply] = []
    try:
        replies.extend(backend.submit(_with_seed(request, index), client) for index in range(count))
    except Exception:
        for reply in replies:
            reply.cancel()
        raise
    return Choices(replies)


def _with_seed(request: Request, index: int) -> Request:
    seed = request.config.seed
    if seed is None:
        return request  # each reply draws one
    return replace(request, config=replace(request.config, seed=(seed + index) % _SEEDS))


class Choices:
    """The events of several replies as those of one; used from one event loop.

    `NextChoice` comes before events of another choice, `ChoiceEnd` at the end of each, and
    `Finished` with the sum of their usage at the end of all. Progress of the prompt is that of the
    reply that reads it. The first error ends all of them.
    """

    def __init__(self, replies: Sequence[ServedReply]) -> None:
        self._replies = replies
        self._arrived: asyncio.Queue[tuple[int, Event | Exception]] = asyncio.Queue()
        self._readers = [
            asyncio.ensure_future(self._read(index, reply)) for index, reply in enumerate(replies)
        ]
        self._ready: list[Event] = []
        self._choice = -1
        self._loading = False
        self._first: int | None = None  # the reply that reads the prompt
        self._ended: dict[int, Finished] = {}

    async def _read(self, index: int, reply: ServedReply) -> None:
        """Pass the events of a reply on, with its error as the last one."""
        try:
            event = None
            while not isinstance(event, Finished):
                event = await anext(reply)
                self._arrived.put_nowait((index, event))
        except Exception as error:  # noqa: BLE001 - the reader of all choices raises it
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
            if len(self._ended) == len(self._replies):
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
        if len(self._ended) == len(self._replies):
            self._ready.append(_together([self._ended[place] for place in sorted(self._ended)]))


def _together(ended: Sequence[Finished]) -> Finished:
    """Return the end of all choices: the prompt counts once, and the replies add up."""
    cancelled = next((end for end in ended if end.reason == "cancelled"), None)
    usages = [end.usage for end in ended]
    reader = min(usages, key=lambda usage: usage.cached_tokens)
    usage = Usage(
        prompt_tokens=reader.prompt_tokens,
        cached_tokens=reader.cached_tokens,
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        reasoning_tokens=sum(usage.reasoning_tokens for usage in usages),
        accepted_predictions=sum(usage.accepted_predictions for usage in usages),
        rejected_predictions=sum(usage.rejected_predictions for usage in usages),
        prefill_s=reader.prefill_s,
        # They are made at the same time, in turns.
        decode_s=max(usage.decode_s for usage in usages),
        cache_note=reader.cache_note,
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
        """Return what follows the last chunks of all choices."""

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
