"""What an engine makes for one reader, piece by piece: read or closed, from any thread."""

import threading
from collections.abc import Callable, Generator, Iterator
from typing import Self, TypeVar

from akunu_py.engine.hold import HeldBlock, Hold
from akunu_py.system.errors import EngineStateError

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
