"""Loads a model and its tokenizer from a path."""

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import mlx.core as mx
from mlx import nn
from mlx_lm.models.switch_layers import SwitchLinear

from akunu_py.gguf.architectures import read_plan
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.quants.forms import SUPPORTED_TYPES, Q6KForm, form_of
from akunu_py.gguf.reader import GGUFFile
from akunu_py.model_store.default_model import default_model_path
from akunu_py.model_store.names import friendly_name
from akunu_py.models.cached_rows import MakePasses, Passes
from akunu_py.models.converted import check_new, load_converted, save_converted
from akunu_py.models.converted_plan import DESCRIPTION
from akunu_py.models.device import (
    disable_compile_with_kernels,
    has_kernels,
    on_cpu,
    physical_memory,
)  # fmt: skip
from akunu_py.models.expansion import expand, num_parameters
from akunu_py.models.folder_settings import folder_context, read_folder_config
from akunu_py.models.gguf_model import build_gguf_model, make_model, overflows
from akunu_py.models.load_steps import Steps, evaluate, finish
from akunu_py.models.ranks.split import Group, on_any_rank
from akunu_py.models.weights import Float16OverflowError, WeightReader
from akunu_py.protocols import Tokenizer
from akunu_py.system.errors import ConfigError, ModelFormatError
from akunu_py.tokenizers import from_gguf

_log = logging.getLogger(__name__)

Weights = Literal["auto", "quantized", "dense"]
ComputeType = Literal["auto", "float16", "bfloat16", "float32"]

_TYPES = {"float16": mx.float16, "bfloat16": mx.bfloat16, "float32": mx.float32}

_TRIED_ON_CPU = 50_000_000
"""Parameters of the largest model whose activations are checked on the CPU backend."""

_DENSE_SHARE_OF_MEMORY = 0.5
""""auto" chooses dense weights where they take at most this share of the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How to load a model; values are checked at construction, which raises ConfigError.

    Attributes:
        weights: "quantized" as in the file, "dense", or "auto": quantized, but dense float32 on
            a CPU without kernels if they fit, since MLX's own quantized products are very slow.
        compute_type: of activations, scales and dense weights of a GGUF file. "auto" is float32 on
            the CPU backend; elsewhere float16, or bfloat16 where the model does not fit float16.
        exact_weights: whether quantized weights of the IQ types are exactly the file's; False
            takes smaller forms close to them (docs/gguf.md). With None they are exact, unless
            `memory_check` finds that memory does not hold them.
        q6k: Q6_K as "planes" (exact, 8 bits a weight) or quantized anew to "8bit" (9 bits).
        pre_tokenizer: how a byte-level BPE of a GGUF file splits texts, in place of the file's
            `tokenizer.ggml.pre`.

    """

    weights: Weights = "auto"
    compute_type: ComputeType = "auto"
    exact_weights: bool | None = None
    q6k: Q6KForm = "planes"
    pre_tokenizer: str | None = None

    def __post_init__(self) -> None:
        for name, value, known in (
            ("weights", self.weights, get_args(Weights)),
            ("compute_type", self.compute_type, get_args(ComputeType)),
            ("q6k", self.q6k, get_args(Q6KForm)),
        ):
            if value not in known:
                raise ConfigError(f"{name} is {value!r}; choose from {', '.join(known)}")

    @property
    def fitted(self) -> bool:
        """Whether IQ types get smaller, fitted forms."""
        return self.exact_weights is False


def draft_options(path: str | Path, target: LoadOptions) -> LoadOptions:
    """Return how to load a draft model beside a model that is loaded with `target`."""
    exact_weights = target.exact_weights
    # `load_model` explains what is wrong with a path.
    with contextlib.suppress(OSError, RuntimeError, ValueError):
        if Path(path).expanduser().is_dir():
            # The forms of a folder's weights are fixed.
            exact_weights = None
    return LoadOptions(weights=target.weights, exact_weights=exact_weights)


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """Facts about a loaded model.

    Attributes:
        path: its file or folder.
        name: what people call it, by its file, folder or repository.
        architecture: `general.architecture`, or `model_type` of an MLX folder.
        parameters: number of parameters.
        weights: how they are kept; "fitted" is quantized, with some types not exactly the file's.
        context: tokens it was trained for.
        file_bytes: size on disk.
        fitted_types: the GGML types that are not exactly the file's.

    """

    path: Path
    name: str
    architecture: str
    parameters: int
    weights: Literal["quantized", "dense", "fitted"]
    context: int
    file_bytes: int
    fitted_types: tuple[str, ...] = ()

    @property
    def weights_text(self) -> str:
        """Return how weights are kept, in words."""
        if self.weights == "dense":
            return "dense weights"
        if self.weights == "quantized":
            return "exact quantized weights"
        return f"fitted quantized weights ({', '.join(self.fitted_types)})"


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model with its tokenizer.

    Attributes:
        model: the model, or this rank's part of it.
        tokenizer: its tokenizer.
        description: facts about the whole model.
        make_passes: how passes are run; on several ranks, all of them run each.

    """

    model: nn.Module
    tokenizer: Tokenizer
    description: ModelDescription
    make_passes: MakePasses = Passes


def load_model(
    path: str | Path | None,
    options: LoadOptions | None = None,
    *,
    context: int | None = None,
    group: Group | None = None,
) -> LoadedModel:
    """Load a GGUF file or an MLX model folder; without a path, the default model.

    `context` bounds the tokens the model will see; some models rotate positions differently in a
    long one. With a `group` of several ranks, this rank's part is loaded.

    Raises ConfigError for a path that is neither, or a model that cannot be split over the group,
    ModelFormatError for a damaged or malformed file.
    """
    return finish(open_model(path, options, context=context, group=group))


def open_model(
    path: str | Path | None,
    options: LoadOptions | None = None,
    *,
    context: int | None = None,
    group: Group | None = None,
) -> Steps[LoadedModel]:
    """Open the files of a model and read its tokenizer; return the steps that load it.

    Any thread may open a model, since only the steps use MLX. They raise as `load_model` does, and
    so does opening.
    """
    disable_compile_with_kernels()
    options = options or LoadOptions()
    if path is not None and not str(path):
        # As a path it would be the current folder.
        raise ConfigError(
            "the model's path is empty; give a GGUF file or an MLX model folder, or None for the "
            "default model"
        )
    with explained(path):
        place = default_model_path() if path is None else Path(path).expanduser()
        if place.is_dir() and (place / DESCRIPTION).is_file():
            _refuse_gguf_options(place, options)
            return _explained_steps(path, _load_converted(place, options, context, group))
        if place.is_dir():
            return _explained_steps(path, _open_folder(place, options, group))
        if place.is_file():
            return _explained_steps(path, _open_gguf(place, options, context, group))
        exists = place.exists()
    if exists:
        raise ConfigError(f"{place} is neither a file nor a folder; give a GGUF file or a folder")
    raise ConfigError(
        f"{place} does not exist; give the path of a GGUF file or of an MLX model folder, or none "
        "for the default model"
    )


@contextlib.contextmanager
def explained(path: str | Path | None) -> Iterator[None]:
    """Turn errors of the system and of MLX into a ConfigError that names the path.

    A ModelFormatError gets the path in front if it names no file, as those about metadata.
    """
    try:
        yield
    except ModelFormatError as error:
        named = path is None or os.sep in error.message or Path(path).name in error.message
        if named:
            raise
        raise type(error)(f"{path}: {error.message}") from error
    except PermissionError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be opened: {error.strerror or error}") from None
    except (RuntimeError, MemoryError) as error:
        # MLX's own errors, mostly for failed allocations, and an unknown "~user".
        raise ConfigError(
            f"{path} cannot be loaded: {error}; if memory is short, use a smaller model"
        ) from error


def _explained_steps(path: str | Path | None, steps: Steps[LoadedModel]) -> Steps[LoadedModel]:
    with explained(path):
        return (yield from steps)


def _open_gguf(
    path: Path, options: LoadOptions, context: int | None, group: Group | None
) -> Steps[LoadedModel]:
    file = GGUFFile.open(path)
    try:
        plan = read_plan(file.metadata, file.tensors)
        tokenizer = from_gguf(file.metadata, pre_tokenizer=options.pre_tokenizer)
    except BaseException:
        file.close()
        raise
    return _load_gguf(file, plan, tokenizer, options, context=context, group=group)


def _load_gguf(
    file: GGUFFile,
    plan: ModelPlan,
    tokenizer: Tokenizer,
    options: LoadOptions,
    *,
    context: int | None,
    group: Group | None,
) -> Steps[LoadedModel]:
    with file:
        parameters = file.num_weights
        dense = wants_dense(options.weights, held(parameters, group)) or not file.is_quantized
        model = yield from _build(file, plan, options, dense=dense, context=context, group=group)
        file_bytes = file.nbytes
        fitted_types = () if dense else fitted_types_of(file, options)
    description = ModelDescription(
        path=file.path,
        name=friendly_name(file.path),
        architecture=plan.architecture,
        parameters=parameters,
        weights="dense" if dense else "fitted" if fitted_types else "quantized",
        context=plan.context_length,
        file_bytes=file_bytes,
        fitted_types=fitted_types,
    )
    _log.info("%s: %s", description.name, description.weights_text)
    return LoadedModel(model, tokenizer, description)


def fitted_types_of(file: GGUFFile, options: LoadOptions) -> tuple[str, ...]:
    """Return the types of a file whose quantized weights would get an inexact form."""
    names = {info.type.name for info in file.tensors.values()} & set(SUPPORTED_TYPES)
    return tuple(
        sorted(
            name
            for name in names
            if not form_of(name, fitted=options.fitted, q6k=options.q6k).exact
        )
    )


def _build(
    file: GGUFFile,
    plan: ModelPlan,
    options: LoadOptions,
    *,
    dense: bool,
    context: int | None,
    group: Group | None = None,
    for_gpu: bool = False,
) -> Steps[nn.Module]:
    """Build the model in the first type that can hold its numbers."""
    on_gpu = not on_cpu()
    kinds = compute_types(file, plan, options, on_gpu=on_gpu or for_gpu)
    for kind in kinds:
        reader = WeightReader(file, kind, dense, options.fitted, options.q6k)
        model = None
        try:
            model = yield from build_gguf_model(plan, reader, context=context, group=group)
        except Float16OverflowError as error:
            if len(kinds) == 1:
                raise ConfigError(
                    f"{file.path} has numbers in {error} that float16 cannot hold; choose another "
                    "compute type"
                ) from None
            _log.info("%s does not fit float16", error)
        last = kind is kinds[-1]
        # Each rank has read its own part alone, and all need the same type.
        if (not last and on_any_rank(group, model is None)) or model is None:
            continue
        if not (on_gpu or for_gpu) and kind != mx.float32 and _has_dense_experts(model):
            raise ConfigError(
                "MLX's CPU backend multiplies the experts of a mixture only in float32; leave "
                "compute_type out"
            )
        # On the CPU backend a pass in 16 bits takes minutes, so only small models are tried there.
        tried = on_gpu or num_parameters(model) <= _TRIED_ON_CPU
        if last or not tried:
            return model
        if not on_any_rank(group, overflows(model, plan.vocabulary_size, plan.context_length)):
            return model
        _log.info("the model's activations do not fit %s", kind)
        del model
        mx.clear_cache()
    raise AssertionError("the last type is taken as it is")


def _has_dense_experts(model: nn.Module) -> bool:
    return any(isinstance(module, SwitchLinear) for _, module in model.named_modules())


def compute_types(
    file: GGUFFile, plan: ModelPlan, options: LoadOptions, *, on_gpu: bool
) -> list[mx.Dtype]:
    """Return the types to compute in, the first to try at the beginning.

    The CPU backend is many times slower in 16 bits than in 32. On a GPU float16 suits GGUF's
    scales, which are float16; bfloat16 would round them.
    """
    if options.compute_type != "auto":
        return [_TYPES[options.compute_type]]
    if not on_gpu:
        return [mx.float32]
    kinds = {info.type.name for info in file.tensors.values() if len(info.shape) > 1}
    if kinds == {"F32"}:
        return [mx.float32]
    if plan.wide_range or kinds <= {"F32", "BF16"}:
        return [mx.bfloat16]
    return [mx.float16, mx.bfloat16]


def convert_model(path: Path, folder: Path, options: LoadOptions | None = None) -> bool:
    """Write a GGUF model as a folder that opens without a re-layout; see `models.converted`.

    Returns whether mlx-lm loads the folder too. The scales determine the compute type; "auto" is
    float16 or bfloat16, as on a GPU. Without a GPU only the weights of a large model are checked
    against float16's range, not its activations: give the type of a model that needs bfloat16.

    Raises ConfigError for a folder that exists or a path that is not a GGUF file, and what
    `load_model` raises.
    """
    options = options or LoadOptions()
    folder = folder.expanduser()
    with GGUFFile.open(path.expanduser()) as file:
        # Checked before minutes of work; MLX's forms are about as large as the file's.
        check_new(folder, file.nbytes)
        plan = read_plan(file.metadata, file.tensors)
        metadata = dict(file.metadata)
        # Finds a damaged tokenizer before minutes of work.
        from_gguf(metadata, pre_tokenizer=options.pre_tokenizer)
        if options.pre_tokenizer is not None:
            metadata["tokenizer.ggml.pre"] = options.pre_tokenizer
        model = finish(_build(file, plan, options, dense=False, context=None, for_gpu=True))
        return save_converted(
            folder, metadata, plan, model, fitted_types=fitted_types_of(file, options)
        )


def _refuse_gguf_options(folder: Path, options: LoadOptions) -> None:
    """Raise ConfigError for options that do not apply to a folder, whose forms are fixed."""
    for name in ("compute_type", "exact_weights", "q6k", "pre_tokenizer"):
        if getattr(options, name) != getattr(LoadOptions(), name):
            raise ConfigError(
                f"{name} is for GGUF files, and {folder} is a folder; leave it out, or give it "
                "when the file is converted"
            )


def held(parameters: int, group: Group | None) -> int:
    """Return about how many of a model's parameters this process holds."""
    return parameters if group is None else parameters // group.size()


def _load_converted(
    folder: Path, options: LoadOptions, context: int | None, group: Group | None
) -> Steps[LoadedModel]:
    model, plan, fitted_types, file = load_converted(folder, context, group)
    with file:
        tokenizer = from_gguf(file.metadata)
    yield from evaluate(model)
    parameters = num_parameters(model if group is None else make_model(plan))
    dense = wants_dense(options.weights, held(parameters, group))
    if dense:
        yield from expand(model)
    elif on_cpu():
        # As with GGUF files: 16 bits are far slower than 32 there.
        model.set_dtype(mx.float32)
    yield from evaluate(model)
    mx.clear_cache()
    description = ModelDescription(
        path=folder,
        name=friendly_name(folder),
        architecture=plan.architecture,
        parameters=parameters,
        weights="dense" if dense else "fitted" if fitted_types else "quantized",
        context=plan.context_length,
        file_bytes=sum(
            place.stat().st_size for place in folder.glob("*.safetensors") if place.is_file()
        ),
        fitted_types=fitted_types,
    )
    return LoadedModel(model, tokenizer, description)


def _open_folder(folder: Path, options: LoadOptions, group: Group | None) -> Steps[LoadedModel]:
    # These import transformers, which GGUF files do without.
    from akunu_py.models import mlx_folder
    from akunu_py.models.folder_tokenizer import FolderTokenizer

    _refuse_gguf_options(folder, options)
    config = read_folder_config(folder)
    # Before transformers sees the config, of which it would make a class of its own.
    mlx_folder.check_folder(folder, config)
    tokenizer = FolderTokenizer(folder, mlx_folder.read_whole_config(folder))
    return _load_folder(folder, config, tokenizer, options.weights, group)


def _load_folder(
    folder: Path,
    config: dict[str, Any],
    tokenizer: Tokenizer,
    weights: Weights,
    group: Group | None,
) -> Steps[LoadedModel]:
    from akunu_py.models import mlx_folder

    file_bytes = sum(path.stat().st_size for path in folder.glob("model*.safetensors"))
    quantized = "quantization" in config or "quantization_config" in config
    # Assumes codes of 4 bits, two weights a byte, if the folder is quantized, else 16 bits.
    assumed = file_bytes * 2 if quantized else file_bytes // 2
    dense = wants_dense(weights, held(assumed, group))
    model, parameters = yield from mlx_folder.load_folder_model(
        folder, config, dense=dense, group=group
    )
    description = ModelDescription(
        path=folder,
        name=friendly_name(folder),
        architecture=config["model_type"],
        parameters=parameters,
        weights="dense" if dense or not quantized else "quantized",
        context=folder_context(config),
        file_bytes=file_bytes,
    )
    return LoadedModel(model, tokenizer, description)


def wants_dense(weights: Weights, parameters: int) -> bool:
    """Decide between the file's quantized weights and dense ones."""
    if weights != "auto":
        return weights == "dense"
    if not on_cpu() or has_kernels():
        return False
    needed = 4 * parameters
    fits = needed <= _DENSE_SHARE_OF_MEMORY * physical_memory()
    _log.info(
        "CPU backend: float32 dense weights need %.1f GB and %s; weights are %s",
        needed / 1e9,
        "fit" if fits else "do not fit",
        "dense" if fits else "quantized",
    )
    return fits
