"""Models in MLX folders, through mlx-lm, which makes a class only of a checked config.json."""

import contextlib
import dataclasses
import importlib
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from akunu_py.gguf.architectures import encoder_error, is_encoder
from akunu_py.models import whole_mlx_lm
from akunu_py.models.device import has_kernels, on_cpu
from akunu_py.models.expansion import num_parameters, wants_dense
from akunu_py.models.folder_arguments import applied_context, check_applied, with_older_names
from akunu_py.models.folder_settings import ASSISTANTS, check_numbers, read_folder_config
from akunu_py.models.folder_tokenizer import FolderTokenizer
from akunu_py.models.library_errors import from_library
from akunu_py.models.load_steps import Steps, evaluate, largest_first, try_passes
from akunu_py.models.loaded_model import LoadedModel, ModelDescription, recommended_in_folder
from akunu_py.models.pooling import pooling_of_folder
from akunu_py.models.rank_split import Group, PlannedGroup, prepare
from akunu_py.models.sources.source import EmptyModel, FolderSource, ModelFigures, StoredModel
from akunu_py.models.tokenizer_files import check_tokenizer_files
from akunu_py.models.weight_files import (
    check_weight_files,
    folder_tensors,
    weight_files,
    without_strays,
)
from akunu_py.protocols import Tokenizer
from akunu_py.system.errors import UnsupportedArchitectureError, UnsupportedQuantizationError
from akunu_py.values.load_options import LoadOptions

_QUANTIZERS = ("awq", "bitnet", "compressed-tensors", "fp8", "modelopt", "mxfp4", "mxfp8")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers")


class MLXFolderSource(FolderSource):
    """A folder with config.json, model*.safetensors and the files of a tokenizer."""

    def open(
        self,
        options: LoadOptions,
        context: int | None,  # noqa: ARG002 - mlx-lm's classes rotate as their configs say
        group: Group | None,
    ) -> Steps[LoadedModel]:
        self.refuse_gguf_options(options)
        config = read_folder_config(self.path)
        # Before transformers sees the config, of which it would make a class of its own.
        _check_folder(self.path, config, check_weight_files(self.path))
        tokenizer = FolderTokenizer(self.path, read_whole_config(self.path))
        return self._load(config, tokenizer, options, group)

    def _load(
        self,
        config: dict[str, Any],
        tokenizer: Tokenizer,
        options: LoadOptions,
        group: Group | None,
    ) -> Steps[LoadedModel]:
        file_bytes = sum(path.stat().st_size for path in weight_files(self.path))
        quantized = _is_quantized(config)
        # Assumes codes of 4 bits, two weights a byte, if the folder is quantized, else 16 bits.
        assumed = file_bytes * 2 if quantized else file_bytes // 2
        dense = wants_dense(options, assumed, group)
        model, context = self._unread(config)
        with self.errors():
            try_passes(model)
            parameters = num_parameters(model)
        if group is not None:
            prepare(model, group, self.path.name).apply(model)
        for array in largest_first(model):
            # Not around the `yield`: what others print in between is theirs.
            with self.errors():
                mx.eval(array)
            yield
        if dense:
            model = whole_mlx_lm.dequantize_model(model)
        if on_cpu() and (dense or has_kernels()):
            # The CPU backend is many times slower in 16 bits than in 32.
            model.set_dtype(mx.float32)
        yield from evaluate(model)
        mx.clear_cache()
        description = ModelDescription.of(
            self.path,
            dense=dense or not quantized,
            **self._facts(config, parameters, context, file_bytes),
        )
        return LoadedModel(model, tokenizer, description)

    def _facts(
        self, config: dict[str, Any], parameters: int, context: int, file_bytes: int
    ) -> dict[str, Any]:
        """Return the fields of `ModelFacts`."""
        return {
            "architecture": config["model_type"],
            "parameters": parameters,
            "context": context,
            "file_bytes": file_bytes,
            "recommended": recommended_in_folder(self.path),
            "pooling": pooling_of_folder(self.path),
        }

    def _unread(self, config: dict[str, Any]) -> tuple[nn.Module, int]:
        """Return the model with its weights still on disk, and its context."""
        shapes = check_weight_files(self.path)
        model_class, arguments_class = _check_folder(self.path, config, shapes)
        make: Callable[[Any], nn.Module] = model_class
        known: dict[str, Any] = {}
        if {"embed_tokens.weight", "norm.weight"} <= shapes.keys():
            # The weights are those of the layers alone, as of most models of embeddings.
            make, known = _without_head(model_class), {"tie_word_embeddings": True}
        arguments = types.SimpleNamespace(
            from_dict=lambda found: arguments_class.from_dict(with_older_names(found) | known)
        )
        with self.errors(), _missing_entries(), without_strays(self.path) as place:
            model, _ = whole_mlx_lm.load_model(
                place, lazy=True, get_model_classes=lambda **_: (make, arguments)
            )
            check_applied(with_older_names(config), model)
            return model, applied_context(config, model)

    def empty_model(self, options: LoadOptions, group: PlannedGroup | None) -> EmptyModel:
        config = read_folder_config(self.path)
        model, context = self._unread(config)
        parameters = num_parameters(model)
        dense = wants_dense(options, parameters, group) or not _is_quantized(config)
        number_bytes = 4 if on_cpu() and (dense or has_kernels()) else 2
        # Files may hold what the model is loaded without, such as a head.
        size = (
            parameters * number_bytes
            if dense
            else sum(_loaded_bytes(array) for _, array in tree_flatten(model.parameters()))
        )
        figures = ModelFigures(
            **self._facts(config, parameters, context, self.file_bytes),
            dense=dense,
            weights_bytes=size,
            number_bytes=number_bytes,
        )
        return EmptyModel(model, figures)

    def describe(self) -> StoredModel:
        check_weight_files(self.path)
        config = read_folder_config(self.path)
        tokenizer = FolderTokenizer(self.path, config)
        return StoredModel(
            kind="MLX folder",
            tokenizer="tokenizer.json" if (self.path / "tokenizer.json").is_file() else "other",
            vocabulary=tokenizer.vocabulary_size,
            chat_template=tokenizer.has_chat_template,
            tensors=tuple(folder_tensors(self.path, config)),
        )


def _without_head(model_class: type[nn.Module]) -> Callable[[Any], nn.Module]:
    """Return a maker of models for weights whose names begin inside of the class's `model`."""

    def make(arguments: Any) -> nn.Module:
        model = model_class(arguments)
        own = getattr(model, "sanitize", dict)
        model.sanitize = lambda weights: own({f"model.{name}": weights[name] for name in weights})
        return model

    return make


def read_whole_config(folder: Path) -> dict[str, Any]:
    """Return a folder's config with what generation_config.json adds; no code or weights are read.

    Raises ModelFormatError for malformed files.
    """
    with from_library(folder, "config"):
        config: dict[str, Any] = whole_mlx_lm.load_config(folder)
    return config


@contextlib.contextmanager
def _missing_entries() -> Iterator[None]:
    """Raise UnsupportedArchitectureError, with their names, for arguments that a class misses."""
    try:
        yield
    except TypeError as error:
        if not re.search(r"__init__\(\) missing \d+ required positional", str(error)):
            raise
        names = ", ".join(re.findall(r"'(\w+)'", str(error)))
        raise UnsupportedArchitectureError(
            f"config.json has no {names}, which mlx-lm's class of this model reads; use a folder "
            "or a GGUF file that was converted from the model's original files"
        ) from error


def _model_classes(config: Mapping[str, Any]) -> tuple[type[nn.Module], type[Any]]:
    """Return mlx-lm's classes of a model and its arguments.

    Raises UnsupportedArchitectureError for a model_type without a model in the installed mlx-lm.
    """
    kind = config["model_type"]
    named = config.get("architectures")
    for architecture in named if isinstance(named, list) else [named]:
        if isinstance(architecture, str):
            kind = whole_mlx_lm.MODEL_ARCHITECTURE_REMAPPING.get((kind, architecture), kind)
    kind = whole_mlx_lm.MODEL_REMAPPING.get(kind, kind)
    if kind in whole_mlx_lm.submodules("models"):
        with contextlib.suppress(ImportError, AttributeError, SystemExit):
            # A module may need a package that is absent; one of them then exits the program.
            module = importlib.import_module(f"mlx_lm.models.{kind}")
            return module.Model, module.ModelArgs
    if kind in ASSISTANTS:
        raise UnsupportedArchitectureError(
            "this is an assistant for Gemma 4, which cannot run alone; load the Gemma 4 that it is "
            "made for, and give the assistant as its head (--heads)"
        )
    if is_encoder(config["model_type"]):
        raise encoder_error(config["model_type"])
    raise UnsupportedArchitectureError(
        f"the model is of the type {config['model_type'][:80]!r}, which the installed mlx-lm does "
        "not run; update mlx-lm or use another model"
    )


def _check_arguments(config: Mapping[str, Any], arguments: type, num_tensors: int) -> None:
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


def _check_folder(
    folder: Path, config: dict[str, Any], shapes: Collection[str]
) -> tuple[type[nn.Module], type[Any]]:
    """Check a folder's JSON files against its weights; return its model's classes.

    Raises UnsupportedArchitectureError for an unknown model_type, ModelFormatError for files that
    are missing or malformed, and numbers out of range.
    """
    with from_library(folder, "model"):
        classes = _model_classes(config)
        _check_arguments(with_older_names(config), classes[1], len(shapes))
        _check_quantization(config, shapes)
    check_tokenizer_files(folder)
    return classes


def _check_quantization(config: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raise UnsupportedQuantizationError for weights of a quantizer that mlx-lm does not read."""
    given = config.get("quantization_config")
    method = given.get("quant_method") if isinstance(given, dict) else None
    if "quantization" in config or not isinstance(given, dict) or not isinstance(method, str):
        return
    awq = given.get("bits", 4) == 4 and str(given.get("version", "gemm")).lower() == "gemm"
    if method == "awq" and not (awq and any(name.endswith(".qweight") for name in names)):
        method = "awq without 4-bit codes in the form gemm"
    elif method in _QUANTIZERS:
        return
    raise UnsupportedQuantizationError(
        f"the weights cannot be loaded: config.json says that they were quantized by {method[:80]},"
        " which mlx-lm does not read; use an MLX folder or a GGUF file of the model"
    )


def _is_quantized(config: Mapping[str, Any]) -> bool:
    return "quantization" in config or "quantization_config" in config


def _loaded_bytes(array: mx.array) -> int:
    """Return the bytes of an array in memory: kernels compute in float32."""
    widened = on_cpu() and has_kernels() and mx.issubdtype(array.dtype, mx.floating)
    return 4 * array.size if widened else array.nbytes
