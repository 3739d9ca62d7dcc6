"""A short name for a model's weights, for files that belong to these weights alone."""

import hashlib
from importlib.metadata import version

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from akunu_py.models.load_steps import Steps


def class_and_arguments(model: nn.Module) -> tuple[str, object]:
    """Return what a model is beside its weights; mlx-lm's classes keep it as `args` or `config`."""
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
