"""Loading in steps, so that the thread that owns MLX can do other things in between.

A server's replies go on while another model is loaded. A step takes in one tensor, or does what
cannot be divided.
"""

from collections.abc import Generator, Iterable
from typing import TypeVar

import mlx.core as mx

_Result = TypeVar("_Result")

Steps = Generator[None, None, _Result]
"""Work that pauses after each step, and returns its result at the end."""


def finish(steps: Steps[_Result]) -> _Result:
    """Make all steps at once; return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result


def evaluate(arrays: Iterable[tuple[str, mx.array]]) -> Steps[None]:
    """Evaluate named arrays one by one, such as weights that are still on disk."""
    for _, array in arrays:
        mx.eval(array)
        yield
