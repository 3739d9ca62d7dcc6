"""Access to an engine: one reply at a time, none after a close or a fork, read from any thread."""

import json
import os
import threading
import time
import uuid
import weakref
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from akunu_py.engine.hold import HeldBlock, HeldIterator, Hold
from akunu_py.engine.reply import Reply, Request
from akunu_py.system.errors import ConfigError, EngineStateError
from akunu_py.system.files import open_to_append
from akunu_py.values.decode_stats import StepStats
from akunu_py.values.generation_config import SamplingConfig
from akunu_py.values.option_fields import options_of
from akunu_py.values.types import GenerationConfig, GenerationResult, StreamEvent


def append_line(path: Path, record: Mapping[str, object]) -> None:
    """Append a record to a trace file as a line of JSON, in one write.

    A new file is readable only for its owner. Lines of several processes do not mix. Raises
    ConfigError if the file cannot be written.
    """
    data = json.dumps(record, ensure_ascii=False).encode() + b"\n"
    try:
        handle = open_to_append(path)
        try:
            if os.write(handle, data) != len(data):
                # The rest could follow another process's line, so the next line starts anew.
                os.write(handle, b"\n")
                raise ConfigError(f"{path}: the disk is full; its last line is cut off")
        finally:
            os.close(handle)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


def describe_decoding(config: GenerationConfig, seed: int) -> str:
    """Return the sampling in words, as in "temperature 0.7, top_p 0.9, seed 5"."""
    said = []
    for declared in options_of(SamplingConfig):
        if declared.name == "temperature" or declared.is_changed(config):
            value = getattr(config, declared.name)
            said.append(
                declared.name if isinstance(value, Mapping) else f"{declared.name} {value:g}"
            )
    rules = config.verifier.among(config.draft_options)
    said += [f"{name} {config.draft_options[name]}" for name in rules]
    if config.temperature:
        said.append(f"seed {seed}")
    if config.exactness == "none":
        said.append("not exact")
    return ", ".join(said)


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

    def trace_record(
        self, model: str, category: str, session: str | None, turn: int | None, vocabulary: str
    ) -> dict[str, object]:
        """Return the reply as a line of a trace; raises ConfigError if it has no result.

        `session` and `turn` belong to a conversation; they are None for a single reply.
        `vocabulary` is the fingerprint of the tokenizer of all ids
        (`akunu_py.drafting.memory.vocabulary_fingerprint`).
        """
        result = self.result
        if result is None:
            raise ConfigError("the reply has no result: read it to its end before it is traced")
        record: dict[str, object] = {
            "id": uuid.uuid4().hex,
            "category": category,
            "prompt": self._tokenizer.decode(self.prompt, with_control=True),
            "output": result.text,
            "model": model,
            "decoding": describe_decoding(self.config, result.seed),
        }
        if session is not None:
            record |= {"session": session, "turn": turn or 0}
        if result.token_ids:
            details = (detail for step in self._steps if (detail := step.detail) is not None)
            record |= {
                "prompt_ids": list(self.prompt),
                "token_ids": list(result.token_ids),
                "steps": [detail.to_dict() for detail in details],
                "vocabulary": vocabulary,
            }
        return record


_LOOK_S = 0.005
"""Seconds between two looks whether it is this call's turn."""

_UNREAD_S = 30.0
"""How long another thread's reply may lie unread before a call that waits for it gives up."""


class Admission:
    """Keeps the current reply of an engine, and the lock for calls that must not overlap."""

    def __init__(self) -> None:
        self.closed = False
        # Weak, so that a stream that its reader dropped is over.
        self._reply: weakref.ref[HeldIterator[Any]] | None = None
        self._hold = Hold()
        self._pid = os.getpid()

    def check(self) -> None:
        """Raise EngineStateError after a close or a fork."""
        if self.closed:
            raise EngineStateError("the engine is closed; load it again")
        if os.getpid() != self._pid:
            raise EngineStateError(
                "the engine was loaded before a fork and cannot be used after it; load the model "
                "in the child process"
            )

    def exclusive(self) -> HeldBlock:
        """Hold the engine in the block, once calls and replies of other threads are over.

        Raises EngineStateError within such a call of this thread, after a close, and where another
        thread's reply is neither read nor closed for `_UNREAD_S`.
        """
        while True:
            self.check()
            if self._hold.is_mine:
                raise EngineStateError("the engine is busy with a call around this one")
            self._wait_for_reply()
            block = self._hold.take(_LOOK_S)
            try:
                if block.taken and self._reply_elsewhere() is None:
                    return block
            except BaseException:
                # The traceback of an interrupt keeps the block for as long as it is handled.
                block.close()
                raise
            block.close()

    def _wait_for_reply(self) -> None:
        """Wait for the end of another thread's reply."""
        idle_since = time.monotonic()
        while (reply := self._reply_elsewhere()) is not None:
            executing = reply.executing
            del reply  # a stream that its reader drops is over
            if executing:
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since > _UNREAD_S:
                raise EngineStateError(
                    "another thread has begun a reply and does not read on; read it to its end, "
                    "close it, or load one engine for each thread"
                )
            time.sleep(_LOOK_S)
            self.check()

    def _reply_elsewhere(self) -> HeldIterator[Any] | None:
        """Return the unfinished reply of another thread that is alive, unless it is cancelled."""
        reply = self._reply() if self._reply else None
        if reply is None or reply.finished or (isinstance(reply, ReplyStream) and reply.cancelled):
            return None
        mine = reply.thread is threading.current_thread() or not reply.thread.is_alive()
        return None if mine else reply

    def admit(self, reply: HeldIterator[Any]) -> None:
        """Make a reply, or several together, the current one."""
        self._reply = weakref.ref(reply)

    def end_reply(self, reason: str) -> None:
        """End an unfinished stream; raises EngineStateError if another thread is using it."""
        reply = self.unfinished_reply()
        if reply is not None:
            reply.close(reason)
            self._reply = None

    def unfinished_reply(self) -> HeldIterator[Any] | None:
        """Return the unfinished stream, if there is one.

        A cancelled stream is ended here, whichever thread it belongs to. Raises EngineStateError in
        a callback of the stream, and if another thread is using it.
        """
        self.check()
        reply = self._reply() if self._reply else None
        if reply is None or reply.finished:
            return None
        if isinstance(reply, ReplyStream) and reply.cancelled:
            reply.end_cancelled()
            return None
        mine = reply.thread is threading.current_thread() or not reply.thread.is_alive()
        if reply.executing or not mine:
            raise EngineStateError(
                "the engine is making a reply, in another thread or around this callback; wait "
                "for it, cancel it, or load one engine for each thread"
            )
        return reply
