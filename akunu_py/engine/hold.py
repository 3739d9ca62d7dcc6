"""A hold that an interrupt leaves free, and an iterator that one reader holds at a time."""

import io
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Self, TypeVar

from akunu_py.system.errors import EngineStateError

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


T = TypeVar("T")


class HeldIterator(Iterator[T]):
    """Iterator over what a generator makes with an engine; one thread at a time is inside a step.

    `admit` is called before each step, and may raise. Closing ends the generator and leaves the
    engine ready for the next call, in any thread, and so does dropping the iterator.
    """

    def __init__(self, made: Generator[T, None, None], admit: Callable[[], None]) -> None:
        # The thread that made the iterator or read it last.
        self.thread = threading.current_thread()
        # Held during a step and while this is ended; a callback inside must not wait for it.
        self._hold = Hold()
        self._admit = admit
        self._made: Generator[T, None, None] | None = made
        self._ended_by = ""

    @property
    def finished(self) -> bool:
        """Whether nothing further will come."""
        return self._made is None

    @property
    def executing(self) -> bool:
        """Whether a step is under way."""
        return self._hold.held

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        with self._held():
            return self._read()

    def _read(self) -> T:
        if self._made is not None:
            self._admit()
            self.thread = threading.current_thread()
            return self._next_of(self._made)
        if self._ended_by:
            raise EngineStateError(self._ended_by)
        raise StopIteration

    def _next_of(self, made: Generator[T, None, None]) -> T:
        try:
            return next(made)
        except BaseException:
            # Exhausted, interrupted or failed: the generator has ended in each case.
            self._made = None
            raise

    def _held(self, most_s: float = 0) -> HeldBlock:
        """Hold this in the block; raises EngineStateError while a step takes longer than that."""
        block = self._hold.take(most_s)
        if not block.taken:
            raise EngineStateError(
                "a step of this reply is under way, in another thread or around this callback; "
                "wait for its end, or use cancel()"
            )
        return block

    def close(self, reason: str = "") -> None:
        """End this now; a reason is the message of the EngineStateError of later reads.

        Raises EngineStateError while a step is under way.
        """
        with self._held():
            made, self._made = self._made, None
            if made is not None:
                self._ended_by = reason
                made.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
