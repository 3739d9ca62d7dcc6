"""A head that a user has for a model: in its file or folder, beside it, or in the hub's cache."""

from collections.abc import Callable, Iterator
from pathlib import Path

from akunu_py.gguf.architectures import HEADS
from akunu_py.gguf.reader import GGUFFile
from akunu_py.model_store.hub_cache import repository_of
from akunu_py.model_store.known_models import KNOWN_MODELS
from akunu_py.model_store.names import HubName, find_cached, friendly_name
from akunu_py.model_store.repository_files import quantization_of
from akunu_py.models.head_places import OWN, own_place
from akunu_py.models.heads.loading import has_own_head
from akunu_py.models.requirements import requirements
from akunu_py.system.errors import AkunuError, ModelFormatError


def find_nearby_head(model: Path, tell: Callable[[str], None]) -> str | Path | None:
    """Return the first head that goes with a model, as `Engine.load` takes it; None without one.

    `tell` is told which it is, and which heads akunu cannot run with the model. No weights are
    read. Raises ModelFormatError for a damaged model.
    """
    for heads, place in _candidates(model):
        try:
            found = requirements(model, heads=heads).head
        except AkunuError as error:
            tell(f"not drafting with the head in {place}: {error.message}")
            continue
        if found is not None:
            tell(f"drafting with the head in {place}")
            return heads
    tell(f"drafting without a head: none is in or beside {friendly_name(model)}, nor in the cache")
    return None


def _candidates(model: Path) -> Iterator[tuple[str | Path, Path]]:
    """Yield heads as `Engine.load` takes them, and where they lie."""
    if has_own_head(model):
        yield OWN, own_place(model)
    within = model.is_dir()
    folder = model / "head" if within else model.with_suffix(".head")
    if folder.is_dir():
        yield folder, folder
    for file in sorted((model if within else model.parent).glob("*.gguf")):
        if file != model and (within or _names(file, model)) and _is_head(file):
            yield file, file
    repository = repository_of(model)
    for known in KNOWN_MODELS.values():
        if known.head is not None and known.repository == repository:
            cached = find_cached(HubName(known.head.repository))
            if cached is not None:
                yield cached, cached


def _names(file: Path, model: Path) -> bool:
    """Return whether a file's name has a model's, without its quantization."""
    stem = model.stem
    quantization = quantization_of(model.name)
    base = stem[: stem.rfind(quantization)].rstrip("-._") if quantization else stem
    return bool(base) and base.casefold() in file.name.casefold()


def _is_head(file: Path) -> bool:
    try:
        with GGUFFile.open(file) as opened:
            return opened.metadata.get("general.architecture") in HEADS
    except ModelFormatError:
        return False
