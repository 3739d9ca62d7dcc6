"""A hold that an interrupt leaves free, wherever in Python it comes."""

import io
import threading
import time
import weakref

_LOOK_S = 0.005
"""Seconds between two tries to get it."""


class HeldBlock(io.BytesIO):
    """A block of code, as in `with hold.take(1) as block`.

    Python raises KeyboardInterrupt behind calls, and also when a function begins, so a `with` whose
    two ends are Python can lose one of them. Those of `io.BytesIO` are C: this is closed as soon as
    the block has ended.
    """

    taken = False
    """Whether the block has the hold."""


class Hold:
    """Held by one block of code at a time.

    Behind `Lock.acquire` an interrupt would leave the lock taken, and no block entered yet that
    releases it. So a block takes the hold with a mark of its own, which it made before, and no lock
    is involved. The hold is free when the last mark's block is over.
    """

    def __init__(self) -> None:
        self._last = _Mark(HeldBlock())

    @property
    def held(self) -> bool:
        """Whether a block holds it."""
        return not self._last.over

    @property
    def is_mine(self) -> bool:
        """Whether a block of this thread holds it."""
        last = self._last
        return not last.over and last.thread is threading.current_thread()

    def take(self, most_s: float) -> HeldBlock:
        """Return a block to enter at once, which has the hold unless that took over `most_s`."""
        block = HeldBlock()
        try:
            block.taken = self._take(_Mark(block), most_s)
        except BaseException:
            # The traceback of an interrupt keeps the block for as long as it is handled.
            block.close()
            raise
        return block

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


class _Mark:
    """Stands for a block that holds something, or tries to; `next` is the one behind it."""

    def __init__(self, block: HeldBlock) -> None:
        # Weak: a block that an interrupt kept from being entered is gone, and over.
        self._block = weakref.ref(block)
        self.thread = threading.current_thread()

    @property
    def over(self) -> bool:
        """Whether the block has ended."""
        block = self._block()
        return block is None or block.closed
