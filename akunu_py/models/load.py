"""Loads a model and its tokenizer from a path."""

import logging
from dataclasses import replace
from pathlib import Path

from akunu_py.gguf.architectures import read_plan
from akunu_py.gguf.reader import GGUFFile
from akunu_py.model_store.known_models import default_model_path
from akunu_py.models.adapter_files import Adapter, open_adapter
from akunu_py.models.device import disable_compile_with_kernels, may_choose_products
from akunu_py.models.library_errors import explain_errors
from akunu_py.models.load_steps import Steps, finish
from akunu_py.models.loaded_model import LoadedModel, ModelDescription
from akunu_py.models.rank_split import Group
from akunu_py.models.sources.gguf import build, is_exact
from akunu_py.models.sources.source import ModelSource, source_of
from akunu_py.system.errors import ConfigError
from akunu_py.tokenizers import from_gguf
from akunu_py.values.load_options import LoadOptions

__all__ = [
    "LoadOptions",
    "LoadedModel",
    "ModelDescription",
    "convert_model",
    "load_model",
    "open_model",
]

_log = logging.getLogger(__name__)


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
    with explain_errors(path):
        place = default_model_path() if path is None else Path(path).expanduser()
        if place.is_dir() or place.is_file():
            source = source_of(place)
            steps = source.open(options, context, group)
            if options.adapter is not None:
                steps = _adapted(source, options, open_adapter(options.adapter, group), steps)
            if may_choose_products() and group is None:
                steps = _with_products(steps)
            return _explained_steps(path, steps)
        exists = place.exists()
    if exists:
        raise ConfigError(f"{place} is neither a file nor a folder; give a GGUF file or a folder")
    raise ConfigError(
        f"{place} does not exist; give the path of a GGUF file or of an MLX model folder, or none "
        "for the default model"
    )


def _explained_steps(path: str | Path | None, steps: Steps[LoadedModel]) -> Steps[LoadedModel]:
    with explain_errors(path):
        return (yield from steps)


def _adapted(
    source: ModelSource, options: LoadOptions, adapter: Adapter, steps: Steps[LoadedModel]
) -> Steps[LoadedModel]:
    """Load a model and apply an adapter, of which another model's is refused first."""
    from akunu_py.models.adapters import adapt, check_adapter

    check_adapter(source.empty_model(options, None).model, adapter, source)
    loaded = yield from steps
    done = yield from adapt(loaded.model, adapter, source)
    name = f"{loaded.description.name} with {adapter.name}"
    _log.info("the adapter %s", done)
    return replace(loaded, description=replace(loaded.description, name=name, adapter=done))


def _with_products(steps: Steps[LoadedModel]) -> Steps[LoadedModel]:
    """Load a model and choose who computes few rows of its passes."""
    from akunu_py.models.metal.choice import choose_products  # for Metal alone

    loaded = yield from steps
    products = yield from choose_products(loaded.model)
    return replace(loaded, description=replace(loaded.description, products=products))


def convert_model(path: Path, folder: Path, options: LoadOptions | None = None) -> bool:
    """Write a GGUF model as a folder that opens without a re-layout; see `models.converted`.

    Returns whether mlx-lm loads the folder too. The scales determine the compute type; "auto" is
    float16 or bfloat16, as on a GPU. Without a GPU only the weights of a large model are checked
    against float16's range, not its activations: give the type of a model that needs bfloat16.

    Raises ConfigError for a folder that exists or a path that is not a GGUF file, and what
    `load_model` raises.
    """
    from akunu_py.models.converted import check_new, save_converted  # for this command

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
        model = finish(build(file, plan, options, dense=False, context=None, for_gpu=True))
        return save_converted(folder, metadata, plan, model, exact=is_exact(file, options))
