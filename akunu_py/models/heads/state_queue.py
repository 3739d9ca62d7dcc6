"""Hidden states that wait until a head needs them."""

from collections import deque

import mlx.core as mx


class StateQueue:
    """Hidden states in order, as rows of the arrays in which they came."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[mx.array, int, int]] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, states: mx.array, start: int, end: int) -> None:
        """Add rows `start` to before `end` of states [1, rows, width]."""
        # Not cut yet: the array may still be computed, and may be read by another thread.
        self._pieces.append((states, start, end))
        self._count += end - start

    def first(self, count: int) -> mx.array:
        """Return the first `count` states, [1, count, width]."""
        found: list[mx.array] = []
        for states, start, end in self._pieces:
            if count <= 0:
                break
            taken = min(count, end - start)
            found.append(states[:, start : start + taken])
            count -= taken
        return mx.concatenate(found, axis=1)

    def drop(self, count: int) -> None:
        """Drop the first `count` states."""
        self._count -= count
        while count:
            states, start, end = self._pieces.popleft()
            taken = min(count, end - start)
            if start + taken < end:
                self._pieces.appendleft((states, start + taken, end))
            count -= taken

    def keep(self, count: int) -> None:
        """Drop all but the first `count` states."""
        while self._count > max(0, count):
            states, start, end = self._pieces.pop()
            taken = min(self._count - max(0, count), end - start)
            if start < end - taken:
                self._pieces.append((states, start, end - taken))
            self._count -= taken
