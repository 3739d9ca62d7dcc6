"""A reply as its reader holds it: read, cancelled or closed, from any thread."""

import threading
from collections.abc import Generator

from akunu_py.engine.held_iterator import HeldIterator
from akunu_py.engine.hold import HeldBlock
from akunu_py.engine.reply import Reply, Request
from akunu_py.engine.trace_file import TraceLine, describe_decoding
from akunu_py.system.errors import ConfigError, EngineStateError
from akunu_py.values.decode_stats import StepStats
from akunu_py.values.types import GenerationResult, StreamEvent

_STEP_TIMEOUT_S = 1.0
"""Longest wait, when a cancelled reply is ended, for the step under way."""


class ReplyStream(HeldIterator[StreamEvent]):
    """Iterator over events, one per decoding step; the last one carries the result.

    `cancel` may be called from any thread: the reply ends after the step under way, with the
    finish reason "cancelled". `close` ends it without a result. Both leave the engine ready for
    the next call, in any thread, and so does dropping the stream.

    A cancelled reply is ended by its reader or by the engine's next call, whichever comes first;
    the engine leaves the last event for the reader. Only one thread at a time is inside a step.
    """

    def __init__(self, request: Request) -> None:
        self._cancelled = threading.Event()
        super().__init__(Reply(request, self._cancelled).events(), request.admit)
        self._tokenizer = request.tokenizer
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
        return super().finished and self._last_event is None

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled.is_set()

    def _read(self) -> StreamEvent:
        event, self._last_event = self._last_event, None
        return super()._read() if event is None else event

    def _held(self, most_s: float = 0) -> HeldBlock:
        """Hold the reply as any iterator; for a cancelled one first wait up to `_STEP_TIMEOUT_S`.

        Not if called from a callback inside that step.
        """
        waits = self.cancelled and not self._hold.is_mine
        return super()._held(_STEP_TIMEOUT_S if waits else most_s)

    def _next_of(self, made: Generator[StreamEvent, None, None]) -> StreamEvent:
        event = super()._next_of(made)
        if event.step is not None:
            self._steps.append(event.step)
        if event.result is not None:
            self.result = event.result
            self._made = None
            made.close()
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
            if self._made is not None:
                # The generator makes no further step after a cancel; it yields the result.
                self._ended_by = "this reply was cancelled, and its end was interrupted"
                self._last_event = self._next_of(self._made)
                self._ended_by = ""

    def close(self, reason: str = "") -> None:
        super().close(reason)
        self._last_event = None

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
