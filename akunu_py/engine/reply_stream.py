"""A reply as its reader holds it: read, cancelled or closed, from any thread."""

import threading
from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Self

from akunu_py.engine.hold import HeldBlock, Hold
from akunu_py.engine.reply import Reply, Request
from akunu_py.engine.trace_file import TraceLine, describe_decoding
from akunu_py.system.errors import ConfigError, EngineStateError
from akunu_py.values.decode_stats import StepStats
from akunu_py.values.types import GenerationResult, StreamEvent

_STEP_TIMEOUT_S = 1.0
"""Longest wait, when a cancelled reply is ended, for the step under way."""


class ReplyStream(Iterator[StreamEvent]):
    """Iterator over events, one per decoding step; the last one carries the result.

    `cancel` may be called from any thread: the reply ends after the step under way, with the
    finish reason "cancelled". `close` ends it without a result. Both leave the engine ready for
    the next call, in any thread, and so does dropping the stream.

    A cancelled reply is ended by its reader or by the engine's next call, whichever comes first;
    the engine leaves the last event for the reader. Only one thread at a time is inside a step.
    """

    def __init__(self, request: Request) -> None:
        # The thread that made the stream or read it last.
        self.thread = threading.current_thread()
        # Held during a step and while the reply is ended; a callback inside must not wait for it.
        self._hold = Hold()
        self._admit = request.admit
        self._tokenizer = request.tokenizer
        self._cancelled = threading.Event()
        self._ended_by = ""
        self._events: Generator[StreamEvent, None, None] | None = Reply(
            request, self._cancelled
        ).events()
        # Token ids that the model was given.
        self.prompt = request.prompt
        self.config = request.config
        # Set when the reply is over; None before, and for a reply that was closed.
        self.result: GenerationResult | None = None
        # Last event of a cancelled reply that the engine's next call ended.
        self._last_event: StreamEvent | None = None
        self._steps: list[StepStats] = []

    @property
    def finished(self) -> bool:
        """Whether no further event will come."""
        return self._events is None and self._last_event is None

    @property
    def executing(self) -> bool:
        """Whether a step is under way."""
        return self._hold.held

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled.is_set()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StreamEvent:
        with self._held():
            if self._events is not None:
                self._admit()
                self.thread = threading.current_thread()
                return self._next_of(self._events)
            if self._last_event is not None:
                event, self._last_event = self._last_event, None
                return event
        if self._ended_by:
            raise EngineStateError(self._ended_by)
        raise StopIteration

    def _held(self) -> HeldBlock:
        """Hold the reply in the block.

        Raises EngineStateError while a step is under way. For a cancelled reply it first waits up
        to `_STEP_TIMEOUT_S`, unless called from a callback inside that step.
        """
        waits = self.cancelled and not self._hold.is_mine
        block = self._hold.take(_STEP_TIMEOUT_S if waits else 0)
        if not block.taken:
            raise EngineStateError(
                "a step of this reply is under way, in another thread or around this callback; "
                "wait for its end, or use cancel()"
            )
        return block

    def _next_of(self, events: Generator[StreamEvent, None, None]) -> StreamEvent:
        try:
            event = next(events)
        except BaseException:
            # Exhausted, interrupted or failed: the generator has ended in each case.
            self._events = None
            raise
        if event.step is not None:
            self._steps.append(event.step)
        if event.result is not None:
            self.result = event.result
            self._events = None
            events.close()
        return event

    def read_to_end(self) -> GenerationResult:
        """Read all events and return the result; the stream is closed, also after an error."""
        with self:
            for _ in self:
                pass
        if self.result is None:
            raise EngineStateError("this reply was closed before its end and has no result")
        return self.result

    def cancel(self) -> None:
        """Ask the reply to end after the step under way; safe from any thread."""
        self._cancelled.set()

    def end_cancelled(self) -> None:
        """End a cancelled reply and keep its last event for its reader.

        Raises EngineStateError if the step under way takes longer than a second.
        """
        with self._held():
            if self._events is not None:
                # The generator makes no further step after a cancel; it yields the result.
                self._ended_by = "this reply was cancelled, and its end was interrupted"
                self._last_event = self._next_of(self._events)
                self._ended_by = ""

    def close(self, reason: str = "") -> None:
        """End the reply now; a reason is the message of the EngineStateError of later reads.

        Raises EngineStateError while a step is under way.
        """
        with self._held():
            self._last_event = None
            events, self._events = self._events, None
            if events is not None:
                self._ended_by = reason
                events.close()

    def trace_line(
        self,
        model: str,
        category: str,
        session: str | None = None,
        turn: int | None = None,
        *,
        vocabulary: str = "",
    ) -> TraceLine:
        """Return the reply as one line of a trace; raises ConfigError if it has no result."""
        if self.result is None:
            raise ConfigError("the reply has no result: read it to its end before it is traced")
        return TraceLine(
            category=category,
            prompt=self._tokenizer.decode(self.prompt, with_control=True),
            output=self.result.text,
            model=model,
            decoding=describe_decoding(self.config, self.result.seed),
            session=session,
            turn=turn,
            prompt_ids=self.prompt,
            token_ids=self.result.token_ids,
            steps=tuple(detail for step in self._steps if (detail := step.detail) is not None),
            vocabulary=vocabulary,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
