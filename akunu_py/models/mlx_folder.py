"""The models of MLX folders, through mlx-lm."""

from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import make_prompt_cache

from akunu_py.models.folder_config import check_arguments, from_library, model_classes
from akunu_py.models.weight_files import check_weight_files
from akunu_py.models.whole_mlx_lm import dequantize_model
from akunu_py.models.whole_mlx_lm import load_model as mlx_load_model


def open_folder_model(folder: Path, config: dict[str, Any]) -> tuple[nn.Module, dict[str, Any]]:
    """Return the model of a folder, nothing of which is in memory yet, and its whole config.

    That has generation_config.json in it, too. Raises UnsupportedArchitectureError for an unknown
    model_type, ModelFormatError for weights that are missing or do not fit.
    """
    shapes = check_weight_files(folder)
    with from_library(folder, "model"):
        classes = model_classes(config)
        check_arguments(config, classes[1], len(shapes))
        model, whole_config = mlx_load_model(
            folder, lazy=True, get_model_classes=lambda **_: classes
        )
    return model, whole_config


def load_folder_model(
    folder: Path, config: dict[str, Any], *, dense: bool
) -> tuple[nn.Module, dict[str, Any]]:
    """Load the model of a folder; with `dense`, expand what is quantized.

    Returns it with its whole config. Raises as `open_folder_model` does.
    """
    model, whole_config = open_folder_model(folder, config)
    with from_library(folder, "model"):
        # Nothing is computed: what does not go together in a config is found by the shapes.
        caches = make_prompt_cache(model)
        for rows in (1, 3):
            model(mx.zeros((1, rows), dtype=mx.int32), cache=caches)
        mx.eval(model.parameters())
    if dense:
        model = dequantize_model(model)
        if mx.default_device() == mx.Device(mx.cpu):
            # The CPU backend is many times slower in 16 bits than in 32.
            model.set_dtype(mx.float32)
        mx.eval(model.parameters())
        mx.clear_cache()
    return model, whole_config
