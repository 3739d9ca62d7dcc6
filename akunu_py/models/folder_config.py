"""config.json of an MLX folder: read, and checked before a class of mlx-lm is made from it."""

import contextlib
import dataclasses
import importlib
import io
import json
import logging
import pkgutil
import re
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import mlx_lm
from mlx import nn

from akunu_py.errors import AkunuError, ConfigError, ModelFormatError, UnsupportedArchitectureError
from akunu_py.models.number_limits import check_numbers
from akunu_py.models.whole_mlx_lm import MODEL_ARCHITECTURE_REMAPPING, MODEL_REMAPPING

_log = logging.getLogger(__name__)

DEFAULT_CONTEXT = 4096
"""For a config that does not say what the model was trained for."""

_CONTEXTS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers")

_MAX_SETTINGS_BYTES = 16 * 2**20
_MAX_VOCABULARY_BYTES = 512 * 2**20
_VOCABULARIES = re.compile(r"(tokenizer\.json|vocab.*|merges.*|.*\.(model|tiktoken))")


def read_folder_config(folder: Path) -> dict[str, Any]:
    """Return a folder's config.json.

    Raises ModelFormatError for a missing or malformed one, or a file beside it that is far too
    large; ConfigError for one that asks to run code.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise ModelFormatError(
            f"{folder} has no config.json: it is no MLX model folder; give a GGUF file or a folder "
            "with config.json, *.safetensors and tokenizer files"
        )
    _check_sizes(folder)
    config = read_json(path)
    if not isinstance(config.get("model_type"), str):
        raise ModelFormatError(f"{path} names no model_type; download the model again")
    if "model_file" in config:
        raise ConfigError(
            f"{path} asks to run the Python file {config['model_file']!r}; akunu runs no code from "
            "model folders: use a model of a known architecture"
        )
    return config


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; raise ModelFormatError where there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"{path} is not JSON ({error}); download it again") from None
    if not isinstance(content, dict):
        raise ModelFormatError(f"{path} does not hold a JSON object; download it again")
    return content


def _check_sizes(folder: Path) -> None:
    """Refuse what transformers and mlx-lm would read whole, or wait for."""
    for pattern in ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "*/*.jinja"):
        for path in folder.glob(pattern):
            if not path.is_file():
                raise ModelFormatError(f"{path} is not a file; download the model again")
            vocabulary = _VOCABULARIES.fullmatch(path.name)
            if path.stat().st_size > (_MAX_VOCABULARY_BYTES if vocabulary else _MAX_SETTINGS_BYTES):
                raise ModelFormatError(f"{path} is far too large for what it is; download it again")


def folder_context(config: Mapping[str, Any]) -> int:
    """Return the context the model was trained for, or DEFAULT_CONTEXT where it does not say."""
    text = config.get("text_config")
    for place in (config, text if isinstance(text, dict) else {}):
        for name in _CONTEXTS:
            value = place.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and 2 <= value < 2**40:
                return value
    return DEFAULT_CONTEXT


def end_ids(config: Mapping[str, Any]) -> list[int] | None:
    """Return the ids that a config ends replies with, None where it names none.

    Raises ModelFormatError where these are not token ids.
    """
    value = config.get("eos_token_id")
    if value is None:
        return None
    ids = value if isinstance(value, list) else [value]
    if not all(type(token) is int and 0 <= token < 2**31 for token in ids):
        raise ModelFormatError(
            f"the model's eos_token_id is {str(value)[:80]}, not a token id or a list of them; "
            "download the model again"
        )
    return ids


def model_classes(config: Mapping[str, Any]) -> tuple[type[nn.Module], type]:
    """Return mlx-lm's classes of a model and its arguments.

    Raises UnsupportedArchitectureError for a model_type that the installed mlx-lm has no model of.
    """
    kind = config["model_type"]
    named = config.get("architectures")
    for architecture in named if isinstance(named, list) else [named]:
        if isinstance(architecture, str):
            kind = MODEL_ARCHITECTURE_REMAPPING.get((kind, architecture), kind)
    kind = MODEL_REMAPPING.get(kind, kind)
    if kind in submodules("models"):
        with contextlib.suppress(ImportError, AttributeError, SystemExit):
            # A model may need a package that is not there; one of them ends the program then.
            module = importlib.import_module(f"mlx_lm.models.{kind}")
            return module.Model, module.ModelArgs
    raise UnsupportedArchitectureError(
        f"the model is of the type {config['model_type'][:80]!r}, which the installed mlx-lm does "
        "not run; update mlx-lm or use another model"
    )


def submodules(package: str) -> frozenset[str]:
    """Return the names of the modules in one of mlx-lm's packages."""
    parent = importlib.import_module(f"{mlx_lm.__name__}.{package}")
    return frozenset(module.name for module in pkgutil.iter_modules(parent.__path__))


def check_arguments(config: Mapping[str, Any], arguments: type, num_tensors: int) -> None:
    """Check the entries of a config that a model's arguments are made from.

    Raises ValueError, naming the entry, for a number that is out of range, for another value where
    a number belongs, and for more layers than the weights have tensors.
    """
    fields = {field.name for field in dataclasses.fields(arguments)}
    hints = typing.get_type_hints(arguments)
    used = {name: value for name, value in config.items() if name in fields}
    for name, value in used.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not number and _is_number(hints.get(name)):
            raise ValueError(f"{name} is {str(value)[:40]!r}, not a number")
    check_numbers(used)
    text = used.get("text_config")
    for place in (used, text if isinstance(text, dict) else {}):
        for name in _LAYERS:
            layers = place.get(name)
            if isinstance(layers, int) and layers > num_tensors:
                raise ValueError(f"{name} is {layers}, and the weights have {num_tensors} tensors")


def _is_number(hint: Any) -> bool:
    """Return whether a type hint allows numbers alone, or None."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    parts = set(typing.get_args(hint)) if union else {hint}
    return bool(parts & {int, float}) and parts <= {int, float, type(None)}


@contextlib.contextmanager
def from_library(folder: Path, what: str) -> Iterator[None]:
    """Frame calls of mlx-lm and transformers that are made from a folder's files.

    They raise anything of files they do not expect: it becomes a ModelFormatError. What they print
    is kept away from the user's output, and logged.
    """
    printed = io.StringIO()
    library = logging.getLogger("transformers")
    level = library.level
    try:
        # Its notices quote the folder's files, and go past what is redirected here.
        library.setLevel(logging.CRITICAL)
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            yield
    except (AkunuError, MemoryError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:500]
        if not reason or not isinstance(error, ValueError | RuntimeError | OSError):
            reason = f"{type(error).__name__} {reason}"
        raise ModelFormatError(
            f"the {what} in {folder} cannot be loaded: {reason}; download it again"
        ) from error
    finally:
        library.setLevel(level)
        if text := printed.getvalue().strip():
            _log.info("%s", text)
