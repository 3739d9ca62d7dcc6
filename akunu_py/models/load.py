"""A path to a model, its tokenizer, and what is known about both."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import mlx.core as mx
from mlx import nn
from mlx_lm.utils import get_total_parameters

from akunu_py.errors import ConfigError
from akunu_py.gguf.reader import GGUFFile
from akunu_py.models.gguf_model import build_gguf_model, read_gguf_config
from akunu_py.models.mlx_folder import (
    FolderTokenizer,
    folder_context,
    load_folder_model,
    read_folder_config,
)
from akunu_py.tokenizers import from_gguf
from akunu_py.types import Tokenizer

_log = logging.getLogger(__name__)

Weights = Literal["auto", "quantized", "dense"]

DEFAULT_MODEL = "akunu-tiny.gguf"
_PACKAGE = Path(__file__).resolve().parents[1]
# In a checkout the model lies in models/, in an installed package beside the code.
_DEFAULT_MODEL_FOLDERS = (_PACKAGE / "default_models", _PACKAGE.parent / "models")

_DENSE_SHARE_OF_MEMORY = 0.5
"""Dense weights are chosen by "auto" where they take at most this share of the memory."""


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """What is known of a loaded model; `context` in tokens, `file_bytes` on disk."""

    path: Path
    name: str
    architecture: str
    parameters: int
    weights: Literal["quantized", "dense"]
    context: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model with its tokenizer."""

    model: nn.Module
    tokenizer: Tokenizer
    description: ModelDescription


def default_model_path() -> Path:
    """Return the path of the model that ships with akunu.

    Raises ConfigError where it was not installed.
    """
    for folder in _DEFAULT_MODEL_FOLDERS:
        if (folder / DEFAULT_MODEL).is_file():
            return folder / DEFAULT_MODEL
    raise ConfigError(
        f"the default model {DEFAULT_MODEL} is not installed; give the path of a GGUF file or of "
        "an MLX model folder"
    )


def load_model(path: str | Path | None, *, weights: Weights = "auto") -> LoadedModel:
    """Load a GGUF file or an MLX model folder; without a path, the default model.

    Raises ConfigError for a path that is neither or an unknown value of `weights`,
    ModelFormatError for a file that is not what it claims to be.
    """
    if weights not in get_args(Weights):
        raise ConfigError(f"weights is {weights!r}; choose from {', '.join(get_args(Weights))}")
    try:
        place = default_model_path() if path is None else Path(path).expanduser()
        if place.is_dir():
            return _load_folder(place, weights)
        if place.is_file():
            return _load_gguf(place, weights)
        exists = place.exists()
    except PermissionError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be opened: {error.strerror or error}") from None
    except (RuntimeError, MemoryError) as error:
        # MLX's own errors, of an allocation that fails above all, and an unknown "~user".
        raise ConfigError(
            f"{path} cannot be loaded: {error}; if memory is short, use a smaller model"
        ) from error
    if exists:
        raise ConfigError(f"{place} is neither a file nor a folder; give a GGUF file or a folder")
    raise ConfigError(
        f"there is no {place}; give the path of a GGUF file or of an MLX model folder, or none for "
        "the default model"
    )


def _load_gguf(path: Path, weights: Weights) -> LoadedModel:
    with GGUFFile.open(path) as file:
        config = read_gguf_config(file)
        tokenizer = from_gguf(file.metadata)
        parameters = sum(info.rows * info.cols for info in file.tensors.values())
        quantized = any(info.type.block_elements > 1 for info in file.tensors.values())
        dense = _wants_dense(weights, parameters) or not quantized
        model = build_gguf_model(file, config, dense=dense)
        name = file.metadata.get("general.name")
    description = ModelDescription(
        path=path,
        name=name if isinstance(name, str) and name else path.stem,
        architecture=config.architecture,
        parameters=parameters,
        weights="dense" if dense else "quantized",
        context=config.context_length,
        file_bytes=path.stat().st_size,
    )
    return LoadedModel(model, tokenizer, description)


def _load_folder(folder: Path, weights: Weights) -> LoadedModel:
    config = read_folder_config(folder)
    file_bytes = sum(path.stat().st_size for path in folder.glob("model*.safetensors"))
    quantized = "quantization" in config or "quantization_config" in config
    # Codes of 4 bits are the usual case: two weights a byte, if the file is quantized.
    dense = _wants_dense(weights, file_bytes * 2 if quantized else file_bytes // 2)
    model, whole_config = load_folder_model(folder, config, dense=dense)
    description = ModelDescription(
        path=folder,
        name=folder.resolve().name,
        architecture=config["model_type"],
        parameters=get_total_parameters(model),
        weights="dense" if dense or not quantized else "quantized",
        context=folder_context(config),
        file_bytes=file_bytes,
    )
    return LoadedModel(model, FolderTokenizer(folder, whole_config), description)


def _wants_dense(weights: Weights, parameters: int) -> bool:
    """Decide between the file's quantized weights and dense ones."""
    if weights != "auto":
        return weights == "dense"
    if mx.default_device() != mx.Device(mx.cpu):
        return False
    needed = 4 * parameters
    fits = needed <= _DENSE_SHARE_OF_MEMORY * _memory_bytes()
    _log.info(
        "CPU backend: float32 dense weights need %.1f GB and %s; weights are %s",
        needed / 1e9,
        "fit" if fits else "do not fit",
        "dense" if fits else "quantized",
    )
    return fits


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
