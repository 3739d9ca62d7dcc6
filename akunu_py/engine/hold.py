"""A lock that an interrupt leaves free, wherever in Python it comes."""

import contextlib
import threading
import time
from collections.abc import Iterator

_LOOK_S = 0.005
"""Seconds between two tries to get it."""


class Hold:
    """Held by one block of code at a time.

    Python raises KeyboardInterrupt behind calls. Behind `Lock.acquire` the lock would be taken, and
    no block entered yet that releases it. So a block takes the hold with a mark of its own, which
    it made before, and gives it back by that mark, without a call.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._holder: _Mark | None = None

    @property
    def held(self) -> bool:
        """Whether a block holds it."""
        return self._holder is not None

    @property
    def is_mine(self) -> bool:
        """Whether a block of this thread holds it."""
        holder = self._holder
        return holder is not None and holder.thread is threading.current_thread()

    @contextlib.contextmanager
    def take(self, most_s: float) -> Iterator[bool]:
        """Hold it during a block, which is told whether that took no longer than `most_s`."""
        mark = _Mark()
        try:
            yield self._take(mark, most_s)
        finally:
            if self._holder is mark:
                self._holder = None

    def _take(self, mark: "_Mark", most_s: float) -> bool:
        until = time.monotonic() + most_s
        while True:
            with self._guard:
                if self._holder is None:
                    self._holder = mark
                    return True
            if time.monotonic() >= until:
                return False
            time.sleep(_LOOK_S)


class _Mark:
    """Stands for a block."""

    def __init__(self) -> None:
        self.thread = threading.current_thread()
