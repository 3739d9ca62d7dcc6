"""Events of a reply, from the backend to a wire format.

A reply is `Accepted`, any number of additions to its message (`values.reply_deltas`), `Logprobs`
before a text if they were asked for, and `Finished`; `Loading`, `Prefilled` and `Decoded` tell of
progress. Where a reply has several choices, `NextChoice` says whose events follow, and `ChoiceEnd`
ends one (`choices`). Reasoning, text and calls come in the order in which the model wrote them, one
call after the other. A call without `CallEnd` was cut and must not be carried out.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from akunu_py.values.reply_deltas import ReplyDelta
from akunu_py.values.types import DecodeStats, FinishReason, StreamEvent

_LOOP = (
    "the reply repeated itself and was ended; leave out stop_loops, or send false, to let it go on"
)

Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Loading:
    """The model of this name is not in memory; the prompt is read when it is. Only comes first."""

    model: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """The prompt is tokenized and fits."""

    num_prompt_tokens: int
    num_cached_tokens: int = 0
    """Tokens of the prompt that need no prefill, as far as is known yet."""
    cache_note: str = ""
    """Why the others need one, in a few words."""


@dataclass(frozen=True, slots=True)
class Prefilled:
    """So many of the prompt's tokens are in the cache."""

    num_tokens: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """A pass that generated tokens; the additions that it makes follow."""

    num_tokens: int
    num_passes: int


@dataclass(frozen=True, slots=True)
class Logprob:
    """A token of an answer, and how likely it was."""

    text: str
    """Its text; bytes that are only a part of a character are U+FFFD."""
    data: bytes
    """Bytes that the token adds to the shown text; none for a mark, or if added to a prompt."""
    logprob: float | None
    """None for the first token of a prompt, which follows nothing."""
    top: tuple["Logprob", ...] = ()
    """The likeliest tokens at its place, the likeliest first."""


@dataclass(frozen=True, slots=True)
class Logprobs:
    """How likely the tokens of the text were that comes next."""

    tokens: tuple[Logprob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Counts and times of a reply; times in seconds."""

    prompt_tokens: int
    completion_tokens: int
    """Generated tokens, reasoning included."""
    cached_tokens: int = 0
    """Tokens of the prompt that were reused from a cache."""
    reasoning_tokens: int = 0
    accepted_predictions: int = 0
    """Generated tokens that were drafted from the client's prediction, or its earlier replies."""
    rejected_predictions: int = 0
    """Tokens drafted from there that the model did not choose."""
    prefill_s: float = 0.0
    decode_s: float = 0.0
    cache_note: str = ""
    """Why the rest of the prompt was prefilled, in a few words."""
    stats: DecodeStats = field(default_factory=DecodeStats)

    @property
    def prefilled_tokens(self) -> int:
        """Tokens of the prompt that no cache had."""
        return self.prompt_tokens - self.cached_tokens


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a reply."""

    reason: FinishReason
    usage: Usage
    stop_text: str | None = None
    """The stop text before which it ended, if one did; None also if it is unknown."""
    vectors: Vectors | None = None
    """Embeddings [texts, width], where these were asked for in place of a reply."""

    @property
    def own_fields(self) -> dict[str, Any]:
        """What an answer says besides, of an end for which the formats have no word."""
        return {} if self.reason != "loop" else {"akunu": {"ended": "loop", "note": _LOOP}}


@dataclass(frozen=True, slots=True)
class NextChoice:
    """The events that follow are those of this choice, until the next one of this kind."""

    index: int


@dataclass(frozen=True, slots=True)
class ChoiceEnd:
    """The end of a choice, while others may still go on."""

    finished: Finished


Progress = Loading | Accepted | Prefilled | Decoded | NextChoice | ChoiceEnd
"""Events that add nothing to the message."""

Addition = ReplyDelta | Logprobs

Event = Progress | Addition | Finished


WorkerEvent = Loading | Accepted | Prefilled | StreamEvent | Finished
"""An event of the server's own, a step of the engine, or the end of embeddings."""


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
