"""The available models: akunu's own, the hub's cache, the user's folders, and aliases."""

import contextlib
import fnmatch
import json
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from akunu_py.model_store.aliases import load_aliases
from akunu_py.model_store.hub_cache import cached_repositories
from akunu_py.model_store.known_models import SMOLLM2, TOY_NAME, fetched_model_path, toy_model_path
from akunu_py.model_store.names import HubName, own_names, resolve_model
from akunu_py.model_store.repository_files import ModelFiles, models_of, quantization_of
from akunu_py.system.errors import AkunuError
from akunu_py.system.files import open_to_read
from akunu_py.system.settings import Settings

_DEEPEST = 3
_MOST_CONFIG_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model to choose from."""

    name: str
    place: str  # "akunu", "hub", "folder" or "alias".
    path: Path | None  # None if the model is not completely here.
    num_bytes: int | None  # None for an alias.
    quantization: str  # From file names or the config; "" if unknown.
    target: str = ""  # Of an alias.


def inventory(settings: Settings) -> list[ListedModel]:
    """Return all models: akunu's own, the hub's cache, the settings' folders, and aliases.

    Raises ConfigError if the cache or the aliases cannot be read. Unreadable folders are left out.
    """
    return [
        *_own_models(),
        *_cached_models(),
        *_folder_models(settings),
        *_aliased_models(settings),
    ]


def _own_models() -> Iterator[ListedModel]:
    path = fetched_model_path()
    quantization = quantization_of(SMOLLM2.file_name)
    yield ListedModel(SMOLLM2.name, "akunu", path, SMOLLM2.num_bytes, quantization)
    with contextlib.suppress(AkunuError):
        toy = toy_model_path()
        yield ListedModel(TOY_NAME, "akunu", toy, toy.stat().st_size, quantization_of(toy.name))


def _cached_models() -> Iterator[ListedModel]:
    for repository in cached_repositories():
        snapshot = repository.snapshot
        if not repository.snapshots and repository.unfinished_bytes:
            whole = str(HubName(repository.name))
            yield ListedModel(whole, "hub", None, repository.unfinished_bytes, "")
        if snapshot is None:
            continue
        models = models_of(snapshot.sizes)
        for name, model in zip(own_names(repository.name, models), models, strict=True):
            yield _list_model(str(name), "hub", snapshot.folder, model)


def _folder_models(settings: Settings) -> Iterator[ListedModel]:
    for folder in settings.model_folders:
        for here, model in models_below(folder):
            if model.missing and not model.num_bytes:
                continue  # nothing of it is here
            found = here if model.main is None else here / model.main
            name = found.relative_to(folder).as_posix()
            yield _list_model(name if found != folder else str(found), "folder", here, model)


def models_below(
    folder: Path, unreadable: Callable[[OSError], object] | None = None
) -> Iterator[tuple[Path, ModelFiles]]:
    """Yield the models in a folder and a few levels below, each with the folder of its files.

    A pipe, a link that leads nowhere and the like are missing parts, and so is what a folder lacks
    that has an MLX model's config or weights alone. `unreadable` is told of folders that cannot be
    read.
    """
    # Links to folders are not followed, since they may form loops.
    for place, below, files in os.walk(folder, onerror=unreadable):
        here = Path(place)
        if len(here.relative_to(folder).parts) >= _DEEPEST:
            below.clear()
        below.sort()
        sizes = {name: _file_size(here / name) for name in files}
        found = models_of({name: size or 0 for name, size in sizes.items()})
        if not found and (lacks := _missing_half(here, files)):
            found = [ModelFiles("", (), None, 0, (lacks,))]
        for model in found:
            odd = tuple(name for name in model.files if sizes[name] is None)
            yield here, replace(model, missing=(*model.missing, *odd))


def _missing_half(folder: Path, files: Collection[str]) -> str:
    """Return the reason why a folder is half an MLX model, "" for any other folder."""
    if fnmatch.filter(files, "model*.safetensors"):
        return "config.json"
    is_model = "tokenizer_config.json" in files or "model_type" in _config(folder)
    return "model.safetensors" if "config.json" in files and is_model else ""


def _aliased_models(settings: Settings) -> Iterator[ListedModel]:
    for name, target in sorted(load_aliases().items()):
        path = None
        with contextlib.suppress(AkunuError):
            path = resolve_model(name, settings, download=False)
        yield ListedModel(name, "alias", path, None, "", target)


def _list_model(name: str, place: str, folder: Path, model: ModelFiles) -> ListedModel:
    path = folder if model.main is None else folder / model.main
    # A file's folder below `folder` may have the quantization for its name.
    quantization = quantization_of(model.main) if model.main else quantization_at(folder)
    return ListedModel(name, place, None if model.missing else path, model.num_bytes, quantization)


def quantization_at(path: Path) -> str:
    """Return how a model stores its weights, by its file's name or its folder's config, or ""."""
    if not path.is_dir():
        return quantization_of(path.name)
    config = _config(path)
    found = config.get("quantization") or config.get("quantization_config") or {}
    bits = found.get("bits") if isinstance(found, dict) else None
    return f"{bits} bit" if isinstance(bits, int) else str(config.get("torch_dtype") or "")


def _config(folder: Path) -> dict[str, Any]:
    """Return a folder's config; an empty one where it cannot be read."""
    try:
        with open_to_read(folder / "config.json") as stream:
            config = json.loads(stream.read(_MOST_CONFIG_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def _file_size(path: Path) -> int | None:
    """Return the size of a regular file; None for pipes, broken links and the like."""
    try:
        return path.stat().st_size if path.is_file() else None
    except OSError:
        return None
