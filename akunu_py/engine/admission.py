"""Access to an engine: one reply at a time, and none after a close or a fork."""

import os
import threading
import weakref
from typing import Any

from akunu_py.engine.held_iterator import HeldIterator
from akunu_py.engine.hold import HeldBlock, Hold
from akunu_py.engine.reply_stream import ReplyStream
from akunu_py.system.errors import EngineStateError

_LOCK_TIMEOUT_S = 1.0


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
        """Hold the engine in the block; raises EngineStateError if another call takes too long."""
        self.check()
        block = self._hold.take(_LOCK_TIMEOUT_S)
        if not block.taken:
            raise EngineStateError("the engine is busy in another thread; load one for each thread")
        return block

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

        A cancelled stream is ended here, whichever thread it belongs to. Raises EngineStateError if
        another thread is using the stream.
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
