"""Arrays in reused memory, for one chunk of a thread or for the results of one tensor.

The operating system provides new arrays of some hundred kilobytes page by page, which takes as long
as a whole re-layout.
"""

import math
import threading
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_ALIGNMENT = 64


class ReusedMemory:
    """Memory for successive arrays, all of which are released at once.

    Args:
        capacity: its largest size in bytes; larger arrays get separate memory.

    """

    def __init__(self, capacity: int = 1 << 26) -> None:
        self._capacity = capacity
        self._memory = np.empty(0, np.uint8)
        self._used = 0

    def begin(self) -> None:
        """Release all arrays; they must no longer be used."""
        self._used = 0

    def empty(self, shape: tuple[int, ...] | int, kind: DTypeLike = np.uint8) -> NDArray[Any]:
        """Return an uninitialized array that is valid until `begin`."""
        dtype = np.dtype(kind)
        nbytes = math.prod((shape,) if isinstance(shape, int) else shape) * dtype.itemsize
        if nbytes > self._capacity:
            return np.empty(shape, dtype)
        if self._used + nbytes > len(self._memory):
            # Arrays in use keep their memory alive.
            size = min(self._capacity, max(2 * len(self._memory), nbytes))
            self._memory, self._used = np.empty(size, np.uint8), 0
        start = self._used
        self._used = start + -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        return self._memory[start : start + nbytes].view(dtype).reshape(shape)


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.memory = ReusedMemory(1 << 24)


_of_thread = _OfThread()


def begin_chunk() -> None:
    """Release all arrays of this thread's last chunk; they must no longer be used."""
    _of_thread.memory.begin()


def empty(shape: tuple[int, ...] | int, kind: DTypeLike = np.uint8) -> NDArray[Any]:
    """Return an uninitialized array that is valid until the thread begins its next chunk."""
    return _of_thread.memory.empty(shape, kind)
