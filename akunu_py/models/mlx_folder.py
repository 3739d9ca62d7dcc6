"""The models of MLX folders, through mlx-lm, which makes a class only of a checked config.json."""

import contextlib
import dataclasses
import importlib
import pkgutil
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
from mlx import nn

from akunu_py.models.device import has_kernels, on_cpu
from akunu_py.models.expansion import num_parameters
from akunu_py.models.folder_settings import ASSISTANTS
from akunu_py.models.library_errors import from_library
from akunu_py.models.load_steps import Steps, evaluate, largest_first, try_passes
from akunu_py.models.number_limits import check_numbers
from akunu_py.models.ranks.split import Group, prepare
from akunu_py.models.tokenizer_files import check_tokenizer_files
from akunu_py.models.weight_files import check_weight_files
from akunu_py.models.whole_mlx_lm import (
    MODEL_ARCHITECTURE_REMAPPING,
    MODEL_REMAPPING,
    dequantize_model,
)
from akunu_py.models.whole_mlx_lm import load_config as mlx_load_config
from akunu_py.models.whole_mlx_lm import load_model as mlx_load_model
from akunu_py.system.errors import UnsupportedArchitectureError

_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers")


def model_classes(config: Mapping[str, Any]) -> tuple[type[nn.Module], type]:
    """Return mlx-lm's classes of a model and its arguments.

    Raises UnsupportedArchitectureError for a model_type without a model in the installed mlx-lm.
    """
    kind = config["model_type"]
    named = config.get("architectures")
    for architecture in named if isinstance(named, list) else [named]:
        if isinstance(architecture, str):
            kind = MODEL_ARCHITECTURE_REMAPPING.get((kind, architecture), kind)
    kind = MODEL_REMAPPING.get(kind, kind)
    if kind in submodules("models"):
        with contextlib.suppress(ImportError, AttributeError, SystemExit):
            # A module may need a package that is absent; one of them then exits the program.
            module = importlib.import_module(f"mlx_lm.models.{kind}")
            return module.Model, module.ModelArgs
    if kind in ASSISTANTS:
        raise UnsupportedArchitectureError(
            "this is an assistant for Gemma 4, which cannot run alone; load the Gemma 4 that it is "
            "made for, and give the assistant as its head (--heads)"
        )
    raise UnsupportedArchitectureError(
        f"the model is of the type {config['model_type'][:80]!r}, which the installed mlx-lm does "
        "not run; update mlx-lm or use another model"
    )


def submodules(package: str) -> frozenset[str]:
    """Return the names of the modules in one of mlx-lm's packages."""
    parent = importlib.import_module(f"{mlx_lm.__name__}.{package}")
    return frozenset(module.name for module in pkgutil.iter_modules(parent.__path__))


def check_arguments(config: Mapping[str, Any], arguments: type, num_tensors: int) -> None:
    """Check the entries of a config that become a model's arguments.

    Raises ValueError, naming the entry, for a number out of range, for another value in place of a
    number, and for more layers than the weights have tensors.
    """
    fields = {field.name for field in dataclasses.fields(arguments)}
    hints = typing.get_type_hints(arguments)
    used = {name: value for name, value in config.items() if name in fields}
    for name, value in used.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not number and _is_number(hints.get(name)):
            raise ValueError(f"{name} is {str(value)[:40]!r}, not a number")
    check_numbers(used)
    for place in (used, used.get("text_config") or {}):
        for name in _LAYERS:
            layers = place.get(name)
            if isinstance(layers, int) and layers > num_tensors:
                raise ValueError(f"{name} is {layers}, and the weights have {num_tensors} tensors")


def _is_number(hint: Any) -> bool:
    """Return whether a type hint allows only numbers and None."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    parts = set(typing.get_args(hint)) if union else {hint}
    return bool(parts & {int, float}) and parts <= {int, float, type(None)}


def check_folder(folder: Path, config: dict[str, Any]) -> tuple[type[nn.Module], type]:
    """Check the headers of a folder's weights, and its JSON files; return its model's classes.

    Raises UnsupportedArchitectureError for an unknown model_type, ModelFormatError for files that
    are missing or malformed, and numbers out of range.
    """
    shapes = check_weight_files(folder)
    with from_library(folder, "model"):
        classes = model_classes(config)
        check_arguments(config, classes[1], len(shapes))
    check_tokenizer_files(folder)
    return classes


def open_folder_model(folder: Path, config: dict[str, Any]) -> nn.Module:
    """Return the model of a folder with its weights still on disk.

    Raises as `check_folder` does, and ModelFormatError for weights that do not fit.
    """
    classes = check_folder(folder, config)
    with from_library(folder, "model"):
        model, _ = mlx_load_model(folder, lazy=True, get_model_classes=lambda **_: classes)
    return model


def read_whole_config(folder: Path) -> dict[str, Any]:
    """Return a folder's config with what generation_config.json adds; no code or weights are read.

    Raises ModelFormatError for malformed files.
    """
    with from_library(folder, "config"):
        config: dict[str, Any] = mlx_load_config(folder)
    return config


def load_folder_model(
    folder: Path, config: dict[str, Any], *, dense: bool, group: Group | None = None
) -> Steps[tuple[nn.Module, int]]:
    """Return the loaded model of a folder and its number of parameters.

    `dense` expands quantized weights. With a `group` of several ranks, the model is the part of
    this rank. Raises as `open_folder_model` does, and ConfigError for a model that cannot be split.
    """
    model = open_folder_model(folder, config)
    with from_library(folder, "model"):
        try_passes(model)
        parameters = num_parameters(model)
    if group is not None:
        prepare(model, group, folder.name).apply(model)
    for array in largest_first(model):
        # Not around the `yield`: what others print in between is theirs.
        with from_library(folder, "model"):
            mx.eval(array)
        yield
    if dense:
        model = dequantize_model(model)
    if on_cpu() and (dense or has_kernels()):
        # The CPU backend is many times slower in 16 bits than in 32.
        model.set_dtype(mx.float32)
    yield from evaluate(model)
    mx.clear_cache()
    return model, parameters
