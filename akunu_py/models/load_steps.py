"""Loading in steps, so that the thread that owns MLX can do other things in between.

A server's replies go on while another model is loaded. A step takes in one tensor, or does what
cannot be divided.
"""

from collections.abc import Generator
from typing import TypeVar

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

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


def try_passes(model: nn.Module) -> None:
    """Pass rows through a model without computing anything: shapes show contradictions.

    Raises whatever the model's class raises.
    """
    caches = make_prompt_cache(model)
    for rows in (1, 3):
        model(mx.zeros((1, rows), dtype=mx.int32), cache=caches)


def largest_first(model: nn.Module) -> list[mx.array]:
    """Return the parameters of a model; a rank reads each whole for a moment, the largest first."""
    arrays: list[mx.array] = [array for _, array in tree_flatten(model.parameters())]
    return sorted(arrays, key=lambda array: -array.nbytes)


def evaluate(model: nn.Module) -> Steps[None]:
    """Evaluate parameters one by one, such as weights that are still on disk."""
    for array in largest_first(model):
        mx.eval(array)
        yield
