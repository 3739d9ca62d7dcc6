"""A user's name for a model, to its path on this machine.

    PATH                      a GGUF file or an MLX model folder
    ALIAS                     set by `akunu models alias`; takes precedence over a file of that name
    hf:OWNER/REPO             the model of a repository on the Hugging Face hub
    hf:OWNER/REPO:QUANT       the GGUF model of that quantization there
    OWNER/REPO/FILE.gguf      that file there; hf: in front is optional
    huggingface.co/OWNER/...  the address of either, with https:// or without
    NAME                      a file or folder in one of the user's model folders
    qwen3:4b                  a short name of `known_models`, for a model on the hub
    smollm2, akunu-tiny       the default model, and the toy that akunu ships with

Any part of a split model names the model. A repository is looked for in the hub's cache first.
"""

import contextlib
import os
import re
import sys
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from akunu_py.model_store import hub, hub_cache
from akunu_py.model_store.aliases import is_alias_name, load_aliases
from akunu_py.model_store.hub import Begin
from akunu_py.model_store.known_models import (
    KNOWN_MODELS,
    SMOLLM2,
    TOY_NAME,
    PackagedModel,
    data_folder,
    default_model_path,
    fetch_packaged,
    fetched_model_path,
    known_model,
    known_target,
    toy_model_path,
)
from akunu_py.model_store.repository_files import (
    ModelFiles,
    models_of,
    part_names,
    with_quantization,
)
from akunu_py.system.errors import ConfigError
from akunu_py.system.settings import MODEL_VARIABLE, Settings, nearest
from akunu_py.system.shown_text import one_line, size_text

_HUB = "hf:"
_SEGMENT = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
_REPOSITORY = re.compile(f"{_SEGMENT}/{_SEGMENT}")
# With one slash where the name was taken for a path on its way here.
_ADDRESS = re.compile(
    r"(?:hf:/{1,2}|(?:https?:/{1,2})?(?:www\.)?(?:huggingface\.co|hf\.co)(?:/|$))"
    r"(?P<path>[^?#]*)\??(?P<query>[^#]*).*",
    re.IGNORECASE,
)
_SHOWING_FILES = ("blob", "raw", "resolve", "tree")
_NEWEST = "main"
_OTHER_PAGES = frozenset({
    "api", "blog", "collections", "datasets", "docs", "models", "papers", "spaces", "tasks",
})  # fmt: skip
_FIRST_PART = re.compile(r"-00001-of-[0-9]{5}$")
_LISTED = 30
_FORMS = (
    "a path, an alias, smollm2, a short name such as qwen3:4b, hf:OWNER/REPO, hf:OWNER/REPO:QUANT "
    "or OWNER/REPO/FILE.gguf; `akunu models list` and `akunu models search` show what there is"
)


@dataclass(frozen=True, slots=True)
class HubName:
    """A model on the hub: a repository, and a quantization or a file; "" for neither."""

    repository: str
    quantization: str = ""
    file: str = ""

    def __str__(self) -> str:
        if self.file:
            return f"{_HUB}{self.repository}/{self.file}"
        return f"{_HUB}{self.repository}" + (f":{self.quantization}" if self.quantization else "")


class UnknownNameError(ConfigError):
    """No model has this name; the message is of whole sentences."""


def parse_hub_name(name: str) -> HubName | None:
    """Return the model on the hub that a name stands for; None for another kind of name.

    OWNER/REPO/FILE.gguf without hf: is such a name even if that path exists. Raises ConfigError for
    a malformed name that begins with hf:, and for an address on the hub that is not a model's.
    """
    given, name = name, _in_own_form(name)
    marked = name.startswith(_HUB)
    rest = name.removeprefix(_HUB)
    pieces = rest.split("/", 2)
    if len(pieces) == 3:
        repository, quantization, file = "/".join(pieces[:2]), "", pieces[2]
        sound = file.endswith(".gguf") and all(
            part not in {"", ".", ".."} for part in file.split("/")
        )
    else:
        repository, colon, quantization = rest.partition(":")
        file = ""
        sound = marked and bool(quantization) == bool(colon) and "/" not in quantization
    if sound and _is_repository(repository) and rest.isprintable():
        return HubName(repository, quantization, file)
    if marked:
        raise ConfigError(
            f"{given!r} is not a model on the hub; give hf:OWNER/REPO, hf:OWNER/REPO:QUANT or "
            "hf:OWNER/REPO/FILE.gguf"
        )
    return None


def resolve_model(name: str | None, settings: Settings, *, download: bool = True) -> Path:
    """Return the path of a model; a model on the hub is fetched first.

    None stands for the settings' model, else the default one, or the toy if that was not fetched.
    A user's path need not be a model. With `download` False nothing is fetched.

    Raises ConfigError for an unknown or ambiguous name, HubError for a model that cannot be
    fetched.
    """
    if name is None:
        if settings.model is None:
            return default_model_path()
        source = MODEL_VARIABLE if os.environ.get(MODEL_VARIABLE) else str(settings.path)
        try:
            return resolve_model(settings.model, settings, download=download)
        except ConfigError as error:
            raise ConfigError(
                f"the default model, set in {source}: {error.message}", choices=error.choices
            ) from None
    with _target(name) as target:
        return _find_or_fetch(target, settings, download=download)


def friendly_name(path: Path) -> str:
    """Return the usual name of the model at a path: that of its file, folder or repository.

    Names inside files do not help: quantizers leave those of training runs there. The name is
    one harmless line of Unicode, whatever bytes the file system has.
    """
    # Also of `.` and `..`; a link keeps its own name.
    place = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() follows links
    name = place.name
    # A snapshot in the hub's cache is called by its commit: models--OWNER--REPO/snapshots/COMMIT.
    repository = place.parent.parent.name
    if name == SMOLLM2.file_name:
        name = SMOLLM2.title
    elif not place.is_dir():
        name = _FIRST_PART.sub("", place.stem)
    elif place.parent.name == "snapshots" and repository.startswith("models--"):
        name = repository.rpartition("--")[2] or name
    return one_line(os.fsencode(name).decode("utf-8", "replace"))


def locate(name: str, settings: Settings) -> HubName | PackagedModel | Path:
    """Return the model that a name stands for, without fetching anything.

    That is a user's path, a model on the hub, or the default one on the package index.

    Raises ConfigError for an unknown name.
    """
    with _target(name) as target:
        return _meaning(target, settings)


def fetchable(name: str) -> HubName | PackagedModel:
    """Return the model of a stranger's name; neither files nor aliases are looked at.

    Raises ConfigError for a name of nothing that can be fetched.
    """
    found = _published(name)
    if found is None:
        meant = nearest(name, (SMOLLM2.name, *KNOWN_MODELS))
        raise UnknownNameError(
            f"there is no model {name!r:.100} to fetch; give {SMOLLM2.name}, a short name such as "
            f"qwen3:4b, hf:OWNER/REPO, hf:OWNER/REPO:QUANT or OWNER/REPO/FILE.gguf.{meant}"
        )
    return found


def fetch(name: HubName | PackagedModel, begin: Begin = lambda _: None) -> Path:
    """Fetch the current version of a model and return its path.

    Files that are here already are not fetched. What a short name means goes to standard error
    before. Raises HubError if the hub does not answer, ConfigError if it has no such model, or
    several.
    """
    if isinstance(name, PackagedModel):
        return fetch_packaged(name, data_folder())
    if hub.is_offline():
        found = find_cached(name)
        if found is not None:
            return found
    if (known := known_target(str(name))) is not None:
        sys.stderr.write(f"{known.name} is {known.description} on the Hugging Face hub.\n")
        if known.head is not None:
            sys.stderr.write(
                f"A head drafts for it: {known.head.description}. akunu models pull {known.name} "
                "--head fetches both; --heads auto drafts with it.\n"
            )
    remote = hub.ask_hub(name.repository)
    chosen = choose(name, models_of(remote.sizes), "on the hub")
    folder = hub.download(remote, chosen.files, begin)
    return folder if chosen.main is None else folder / chosen.main


def find_cached(name: HubName) -> Path | None:
    """Return the path of a model in the hub's cache; None if it is not completely there.

    Raises ConfigError if the name stands for several in the cache.
    """
    repository = hub_cache.cached_repository(name.repository)
    snapshot = None if repository is None else repository.snapshot
    if snapshot is None:
        return None
    whole = [model for model in models_of(snapshot.sizes) if not model.missing]
    chosen = _candidates(name, whole)
    if not chosen:
        return None
    model = choose(name, chosen, "in the hub's cache")
    return snapshot.folder if model.main is None else snapshot.folder / model.main


def choose(
    name: HubName, models: list[ModelFiles], place: str, *, whole: bool = True
) -> ModelFiles:
    """Return the one model of a repository that a name stands for.

    `place` says where the models are. Raises ConfigError, listing them, for none or several, and
    for a model with missing parts if it is to be `whole`.
    """
    if not models:
        raise ConfigError(
            f"{name.repository} has no model that akunu reads {place}: neither GGUF files nor "
            "model*.safetensors with a config.json"
        )
    found = _candidates(name, models)
    if len(found) != 1:
        wanted = name.quantization or name.file
        problem = (
            f"{len(found)} models of {name.repository} are called {wanted}"
            if found and wanted
            else f"{name.repository} has no {wanted} {place}"
            if wanted
            else f"{name.repository} has {len(models)} models {place}"
        )
        raise ConfigError(f"{problem}; choose one of", choices=_listing(name, found or models))
    if whole and (missing := found[0].missing):
        shown = ", ".join(missing[:4]) + (", ..." if len(missing) > 4 else "")
        raise ConfigError(f"{name} lacks {len(missing)} of its parts {place}: {shown}")
    return found[0]


def own_names(repository: str, models: Sequence[ModelFiles]) -> list[HubName]:
    """Return an unambiguous name for each of a repository's models."""
    labels = [model.quantization.casefold() for model in models]
    return [
        HubName(repository, file=model.main or "")
        if labels.count(label) > 1
        else HubName(repository, model.quantization)
        for model, label in zip(models, labels, strict=True)
    ]


@contextlib.contextmanager
def _target(name: str) -> Iterator[str]:
    """Yield the names that an alias stands for, others as they are; errors of an alias name it."""
    aliases = load_aliases() if is_alias_name(name) else {}
    try:
        yield aliases.get(name, name)
    except ConfigError as error:
        if name not in aliases:
            raise
        raise ConfigError(
            f"the alias {name} stands for {aliases[name]}: {error.message}", choices=error.choices
        ) from None


def _in_own_form(name: str) -> str:
    """Return hf:OWNER/REPO, with :QUANT or /FILE, for an address on the hub; others as they are."""
    match = _ADDRESS.fullmatch(name)
    if match is None:
        return name
    pieces = urllib.parse.unquote(match["path"]).strip("/").split("/")
    if pieces[0] in _OTHER_PAGES:
        return _HUB
    repository, rest = "/".join(pieces[:2]).removesuffix(".git"), pieces[2:]
    if rest and rest[0] in _SHOWING_FILES:
        if rest[1:2] not in ([], [_NEWEST]):
            raise ConfigError(
                f"{name} is of the revision {rest[1]}, and akunu fetches {_NEWEST} alone; give "
                f"{_HUB}{repository}"
            )
        rest = rest[2:]
    # Of a page that shows the header of a file.
    rest = urllib.parse.parse_qs(match["query"]).get("show_file_info") or rest
    file = "/".join(rest)
    return f"{_HUB}{repository}" + (f"/{file}" if file.endswith(".gguf") else "")


def _is_repository(name: str) -> bool:
    return _REPOSITORY.fullmatch(name) is not None and ".." not in name and "--" not in name


def _find_or_fetch(name: str, settings: Settings, *, download: bool) -> Path:
    meant = _meaning(name, settings)
    if isinstance(meant, Path):
        return meant
    if isinstance(meant, PackagedModel):
        found, where = fetched_model_path(), "on this machine"
    else:
        found, where = find_cached(meant), "in the hub's cache"
    if found is not None:
        return found
    if not download:
        raise ConfigError(f"{meant} is not {where}; run: akunu models pull {meant}")
    return fetch(meant)


def _meaning(name: str, settings: Settings) -> HubName | PackagedModel | Path:
    if not name:
        raise ConfigError(f"the name of the model is empty; give {_FORMS}")
    hub_name = parse_hub_name(name)
    if hub_name is not None and _in_own_form(name).startswith(_HUB):
        return hub_name
    path = Path(name)
    try:
        path = path.expanduser()
        if path.exists() or path.is_symlink():
            return _refuse_broken_link(path)
        for folder in settings.model_folders:
            for place in (folder / name, folder / f"{name}.gguf"):
                if not path.is_absolute() and ".." not in path.parts and place.exists():
                    return _refuse_broken_link(place)
    except ConfigError:
        raise
    except RuntimeError as error:
        raise ConfigError(f"{name} cannot be found: {error}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UnknownNameError(f"{name} cannot be opened: {reason}.") from None
    if name == TOY_NAME:
        return toy_model_path()
    if (published := _published(name)) is not None:
        return published
    if "://" in name:
        raise UnknownNameError(
            f"{name} is not an address on the Hugging Face hub; download it, and give its path."
        )
    hint = f"; on the hub it would be {_HUB}{name}" if _is_repository(name) else ""
    meant = nearest(name, near_names(name, settings))
    raise UnknownNameError(f"there is no model named {name}{hint}; give {_FORMS}.{meant}")


def _published(name: str) -> HubName | PackagedModel | None:
    """Return the model that anybody can fetch by a name; None for another kind of name."""
    if name.casefold() in {SMOLLM2.name, SMOLLM2.title.casefold()}:
        return SMOLLM2
    if (known := known_model(name)) is not None:
        return HubName(known.repository, known.quantization)
    return parse_hub_name(name)


def near_names(name: str, settings: Settings) -> Iterator[str]:
    """Yield names that a misspelt one may have meant: own models, aliases, and files near by."""
    yield from (SMOLLM2.name, TOY_NAME, *KNOWN_MODELS)
    with contextlib.suppress(ConfigError):
        yield from load_aliases()
    folder = name[: name.rfind("/") + 1]
    for place, start in ((Path(folder), folder), *((one, "") for one in settings.model_folders)):
        with contextlib.suppress(OSError, ValueError):
            yield from (f"{start}{file.name}" for file in place.glob("*.gguf"))


def _refuse_broken_link(path: Path) -> Path:
    """Return a path; raise ConfigError for a broken link."""
    if not path.exists():
        raise ConfigError(f"{path} is a broken or circular link; correct it")
    return path


def _candidates(name: HubName, models: Iterable[ModelFiles]) -> list[ModelFiles]:
    if name.file:
        return [model for model in models if model.main == part_names(name.file)[0]]
    return with_quantization(models, name.quantization) if name.quantization else list(models)


def _listing(name: HubName, models: list[ModelFiles]) -> list[str]:
    """Return lines with an unambiguous name and the size of each model."""
    named = zip(own_names(name.repository, models), models, strict=True)
    lines = [f"{own}  ({size_text(model.num_bytes)})" for own, model in named]
    more = len(models) - _LISTED
    return lines[:_LISTED] + ([f"and {more} more"] if more > 0 else [])
