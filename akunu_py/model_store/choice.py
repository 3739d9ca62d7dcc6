"""The models among which a program chooses by name: those of folders, and named ones."""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from akunu_py.model_store.aliases import load_aliases
from akunu_py.model_store.hub_cache import repository_of
from akunu_py.model_store.inventory import models_below
from akunu_py.model_store.names import HubName, friendly_name, parse_hub_name, resolve_model
from akunu_py.system.errors import ConfigError
from akunu_py.system.settings import Settings

_MOST_MODELS = 1000


def choice_of_models(
    given: Sequence[str],
    settings: Settings,
    leave_out: Callable[[str], None],
    *,
    first: Path | None = None,
) -> dict[str, Path]:
    """Return paths of models by one-word names that tell them apart, `first` as the first.

    Each of `given` is a folder with models, or names separated by commas, as `resolve_model` takes
    them; nothing is fetched. A model is called as its file or folder is, or by its alias. Where
    several would have the same name, the folder's name goes in front, and then a number behind.
    `leave_out` is told which models of a folder are not whole.

    Raises ConfigError for an unknown name, a model that is not on this machine, and a folder
    without models.
    """
    # By where links lead to; a file in the hub's cache has its name only as a link.
    found = {} if first is None else {first.resolve(): (model_name(first), first)}
    for entry in given:
        for name, path in _models_of_entry(entry, settings, leave_out):
            found.setdefault(path.resolve(), (name, path.absolute()))
    if len(found) > _MOST_MODELS:
        raise ConfigError(f"there are {len(found)} models to choose from; give at most 1,000")
    return _distinct_names(list(found.values()))


def name_among(path: Path, models: Mapping[str, Path]) -> str:
    """Return the name of a model among others: its own if it is there, else a new one.

    Another revision of a model in the hub's cache has that model's name.
    """
    own = model_name(path)
    names = (own, one_word(f"{repository_of(path) or path.parent.name}-{own}"))
    numbered = (f"{names[1]}-{number}" for number in itertools.count(2))
    return next(
        name
        for name in itertools.chain(names, numbered)
        if name not in models or _without_revision(models[name]) == _without_revision(path)
    )


def _without_revision(path: Path) -> str:
    """Return a path; in the hub's cache, without the commit."""
    whole = str(path.absolute())
    if repository_of(path) is None:
        return whole
    repository, _, snapshot = whole.rpartition("/snapshots/")
    return f"{repository}/{snapshot.partition('/')[2]}"


def model_name(path: Path) -> str:
    """Return the friendly name of a model as one word."""
    return one_word(friendly_name(path))


def one_word(name: str) -> str:
    """Return a name without spaces, slashes and the like; never empty."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "model"


def _models_of_entry(
    entry: str, settings: Settings, leave_out: Callable[[str], None]
) -> Iterator[tuple[str, Path]]:
    names = [name for part in entry.split(",") if (name := part.strip())]
    if not names:
        raise ConfigError(f"{entry!r} names no model; give a folder, or names with commas between")
    folder = Path(entry).expanduser()
    if folder.is_dir():
        unreadable: list[OSError] = []
        found = list(models_below(folder, unreadable.append))
        for error in unreadable:
            leave_out(f"{error.filename} cannot be read: {error.strerror}")
        if not found and not unreadable:
            raise ConfigError(
                f"{entry} has no model that akunu reads: neither GGUF files nor folders with "
                "model*.safetensors and config.json"
            )
        for here, model in found:
            path = here if model.main is None else here / model.main
            if model.missing:
                leave_out(f"{path}: {model.missing[0]} is missing, or is not a file")
            else:
                yield model_name(path), path
        return
    aliases = load_aliases()
    for name in names:
        path = resolve_model(name, settings, download=False)
        hub_name = parse_hub_name(aliases.get(name, name))
        if name in aliases:
            yield one_word(name), path
        elif isinstance(hub_name, HubName) and path.is_dir():
            yield one_word(hub_name.repository.rpartition("/")[2]), path
        else:
            yield model_name(path), path


def _distinct_names(models: Sequence[tuple[str, Path]]) -> dict[str, Path]:
    """Return the paths by names of which each is there once."""
    given = Counter(name for name, _ in models)
    found: dict[str, Path] = {}
    for name, path in models:
        own = name if given[name] == 1 else f"{one_word(path.parent.name)}-{name}"
        numbered = (f"{own}-{number}" for number in itertools.count(2))
        free = (one for one in (own, *itertools.islice(numbered, len(models))) if one not in found)
        found[next(one for one in free if one == name or one not in given)] = path
    return found
