"""A hold that an interrupt leaves free, wherever in Python it comes."""

import contextlib
import threading
import time
import weakref
from collections.abc import Iterator

_LOOK_S = 0.005
"""Seconds between two tries to get it."""


class Hold:
    """Held by one block of code at a time.

    Python raises KeyboardInterrupt behind calls. Behind `Lock.acquire` the lock would be taken, and
    no block entered yet that releases it. So a block takes the hold with a mark of its own, which
    it made before, and no lock is involved. The hold is free when the last mark's block is over.
    """

    def __init__(self) -> None:
        self._last = _Mark(_Block())

    @property
    def held(self) -> bool:
        """Whether a block holds it."""
        return not self._last.over

    @property
    def is_mine(self) -> bool:
        """Whether a block of this thread holds it."""
        last = self._last
        return not last.over and last.thread is threading.current_thread()

    @contextlib.contextmanager
    def take(self, most_s: float) -> Iterator[bool]:
        """Hold it during a block, which is told whether that took no longer than `most_s`."""
        block = _Block()
        try:
            yield self._take(_Mark(block), most_s)
        finally:
            block.over = True

    def _take(self, mark: "_Mark", most_s: float) -> bool:
        until = time.monotonic() + most_s
        while True:
            last = self._last
            if last.over:
                # One step, so that one of several threads is the next, interrupted or not.
                self._last = vars(last).setdefault("next", mark)
                if self._last is mark:
                    return True
            elif time.monotonic() >= until:
                return False
            else:
                time.sleep(_LOOK_S)


class _Block:
    """A block of code; nothing but the block itself keeps this."""

    over = False


class _Mark:
    """Stands for a block that holds something, or tries to; `next` is the one behind it."""

    def __init__(self, block: _Block) -> None:
        self._block = weakref.ref(block)
        self.thread = threading.current_thread()

    @property
    def over(self) -> bool:
        """Whether the block has ended."""
        block = self._block()
        return block is None or block.over
