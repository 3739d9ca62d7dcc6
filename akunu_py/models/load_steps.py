"""Work on all of a model's weights in steps, between which the thread that owns MLX is free.

A server's replies go on while another model is loaded. A step takes in one tensor, or does what
cannot be divided.
"""

import hashlib
from collections.abc import Generator
from importlib.metadata import version
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


def class_and_arguments(model: nn.Module) -> tuple[str, object]:
    """Return a model's configuration, which mlx-lm's classes keep as `args` or `config`."""
    return type(model).__module__, getattr(model, "args", None) or getattr(model, "config", None)


def model_digest(model: nn.Module, **settings: object) -> Steps[str]:
    """Return 32 hexadecimal digits that depend on weights, arguments, settings and versions of MLX.

    Reads all weights once, an array a step. Two sums of each array, one of them weighted by place,
    tell models apart; they do not protect against someone who wants two models to look alike.
    """
    digest = hashlib.sha256()
    digest.update(repr((class_and_arguments(model), version("mlx"), version("mlx-lm"))).encode())
    digest.update(repr(sorted(settings.items())).encode())
    for name, array in sorted(tree_flatten(model.parameters())):
        unit = mx.uint8 if array.nbytes % 4 else mx.uint32
        numbers = array.flatten().view(unit).astype(mx.uint32)
        places = mx.arange(numbers.size, dtype=mx.uint32) * 2 + 1
        sums = (mx.sum(numbers).item(), mx.sum(numbers * places).item())
        digest.update(repr((name, array.shape, str(array.dtype), sums)).encode())
        yield
    return digest.hexdigest()[:32]
