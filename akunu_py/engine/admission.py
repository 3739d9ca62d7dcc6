"""Access to an engine: one reply at a time, and none after a close or a fork."""

import os
import threading
import time
import weakref
from typing import Any

from akunu_py.engine.held_iterator import HeldIterator
from akunu_py.engine.hold import HeldBlock, Hold
from akunu_py.engine.reply_stream import ReplyStream
from akunu_py.system.errors import EngineStateError

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
