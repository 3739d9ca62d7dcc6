"""Arrays in memory that is used again: of one chunk and thread, or of one tensor's results.

Fresh arrays of some hundred kilobytes come from the operating system page by page, which takes as
long as a whole re-layout.
"""

import math
import threading
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_CAPACITY = 1 << 23
_ALIGNMENT = 64


class _Arena(threading.local):
    def __init__(self) -> None:
        self.memory = np.empty(_CAPACITY, np.uint8)
        self.used = 0


_arena = _Arena()


def begin_chunk() -> None:
    """Give all arrays of this thread's last chunk back; they must not be used any more."""
    _arena.used = 0


def empty(shape: tuple[int, ...] | int, kind: DTypeLike = np.uint8) -> NDArray[Any]:
    """Return an array that is valid until the thread begins its next chunk, not initialized."""
    dtype = np.dtype(kind)
    nbytes = math.prod((shape,) if isinstance(shape, int) else shape) * dtype.itemsize
    start = _arena.used
    if start + nbytes > _CAPACITY:
        return np.empty(shape, dtype)
    _arena.used = start + -(-nbytes // _ALIGNMENT) * _ALIGNMENT
    return _arena.memory[start : start + nbytes].view(dtype).reshape(shape)


class ResultMemory:
    """Memory for the results of one re-layout after another, each copied away before the next.

    Args:
        capacity: bytes of it; larger results get memory of their own.

    """

    def __init__(self, capacity: int = 1 << 26) -> None:
        self._capacity = capacity
        self._memory = np.empty(0, np.uint8)
        self._used = 0

    def begin(self) -> None:
        """Give all arrays back; they must not be used any more."""
        self._used = 0

    def empty(self, shape: tuple[int, ...], kind: DTypeLike) -> NDArray[Any]:
        """Return an array that is valid until `begin`, not initialized."""
        dtype = np.dtype(kind)
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes > self._capacity:
            return np.empty(shape, dtype)
        if self._used + nbytes > len(self._memory):
            # Arrays that are still used keep the memory they lie in.
            size = min(self._capacity, max(2 * len(self._memory), nbytes))
            self._memory, self._used = np.empty(size, np.uint8), 0
        start = self._used
        self._used = start + -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        return self._memory[start : start + nbytes].view(dtype).reshape(shape)
