"""Models on the Hugging Face hub: the files of a repository, and fetching them.

The settings of huggingface_hub apply: HF_ENDPOINT (address of the hub), HF_HOME and HF_HUB_CACHE
(the cache), HF_TOKEN and `hf auth login` (the user), HF_HUB_OFFLINE (no network). The library draws
its own progress bars.
"""

import contextlib
import errno
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from akunu_py.model_store.hub_cache import cache_folder, repository_folder, set_current
from akunu_py.model_store.transfer import Begin, fetch_file, free_bytes
from akunu_py.system.errors import ConfigError, HubError

_READ_LAST = "config.json"
_CHECK = "check the network, and HF_ENDPOINT or a proxy if one is set"
_FOUND = 20
"""Repositories that a search returns."""


@dataclass(frozen=True, slots=True)
class RemoteRepository:
    """A repository as it is on the hub."""

    name: str  # OWNER/REPO.
    commit: str  # Of `main`.
    # Bytes of each file by its path there; paths outside the repository are left out.
    sizes: Mapping[str, int]


def is_offline() -> bool:
    """Return whether HF_HUB_OFFLINE forbids requests to the hub."""
    import huggingface_hub  # 0.1 s that --help must not pay

    return huggingface_hub.is_offline_mode()


def ask_hub(repository: str) -> RemoteRepository:
    """Return the content of a repository.

    Raises HubError if the hub does not answer, ConfigError if requests are forbidden or the
    repository is not accessible.
    """
    import huggingface_hub

    with _translate_errors(repository):
        try:
            found = huggingface_hub.HfApi().model_info(repository, files_metadata=True)
        except (KeyError, TypeError, AttributeError):
            found = None
    if found is None or not isinstance(found.sha, str) or not _is_commit(found.sha):
        raise _not_a_hub()
    sizes = {file.rfilename: file.size or 0 for file in found.siblings or ()}
    return RemoteRepository(
        repository, found.sha, {name: size for name, size in sizes.items() if _is_below(name)}
    )


def search_hub(words: str) -> list[tuple[str, int]]:
    """Return repositories with GGUF files that words find, each with its downloads, most first.

    Raises HubError if the hub does not answer.
    """
    import huggingface_hub
    from huggingface_hub import errors

    try:
        found = huggingface_hub.HfApi().list_models(
            search=words, filter="gguf", sort="downloads", limit=_FOUND
        )
        models = [(model.id, model.downloads or 0) for model in found]
    except (KeyError, TypeError, AttributeError):
        raise _not_a_hub() from None
    except (errors.HTTPError, OSError, ValueError) as error:  # type: ignore[attr-defined]
        raise HubError(f"the hub cannot be asked: {_reason(error)}; {_CHECK}") from None
    return [(name, count) for name, count in models if name.isprintable()]


def download(
    repository: RemoteRepository, files: Collection[str], begin: Begin = lambda _: None
) -> Path:
    """Fetch these files, except those in the cache, and return the folder of the snapshot.

    The revision becomes the current one when all files are there, so that an interrupted fetch
    leaves the earlier one in use. Raises as `ask_hub` does, and HubError for a full disk.
    """
    cache = cache_folder()
    snapshot = repository_folder(repository.name) / "snapshots" / repository.commit
    absent = [name for name in files if not (snapshot / name).exists()]
    # The config comes last: with it the files count as a model.
    absent.sort(key=lambda name: PurePosixPath(name).name == _READ_LAST)
    _check_disk(cache, sum(repository.sizes[name] for name in absent))
    with _translate_errors(repository.name):
        for name in absent:
            fetch_file(repository.name, name, repository.commit, cache, begin)
        set_current(repository.name, repository.commit)
    return snapshot


def _not_a_hub() -> HubError:
    from huggingface_hub import constants

    return HubError(f"{constants.ENDPOINT} does not answer as the hub does; check HF_ENDPOINT")


def _is_below(name: str) -> bool:
    """Return whether a path stays in its repository on every system and can be shown."""
    parts = name.split("/")
    return name.isprintable() and "\\" not in name and not {"", ".", ".."} & set(parts)


def _is_commit(text: str) -> bool:
    return len(text) == 40 and set(text) <= set("0123456789abcdef")


def _check_disk(cache: Path, needed: int) -> None:
    # Unfinished files are not subtracted, so this may ask for slightly too much.
    free = free_bytes(cache)
    if needed > free:
        raise HubError(
            f"the files take {needed / 1e6:,.0f} MB and the disk of {cache} has "
            f"{free / 1e6:,.0f} MB left: make room, or set HF_HUB_CACHE to another folder"
        )


def _reason(error: Exception) -> str:
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    # Without the number that a library adds to the system's message.
    lines = re.sub(r"\[Errno -?\d+\] ", "", text).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


@contextlib.contextmanager
def _translate_errors(repository: str) -> Iterator[None]:
    """Turn the library's errors into ones that say what to do."""
    from huggingface_hub import constants, errors

    page = f"{constants.ENDPOINT}/{repository}"
    try:
        yield
    except errors.OfflineModeIsEnabled:
        raise ConfigError(
            f"{repository} is not in the hub's cache as asked for, and HF_HUB_OFFLINE forbids "
            "fetching it; unset HF_HUB_OFFLINE, or choose from `akunu models list`"
        ) from None
    except errors.GatedRepoError:
        raise ConfigError(
            f"{repository} requires that you accept its terms: do so at {page}, then run "
            "`hf auth login` or set HF_TOKEN"
        ) from None
    except errors.RepositoryNotFoundError:
        raise ConfigError(
            f"the hub has no repository {repository}, or it is private: check {page}; for a "
            "private one run `hf auth login` or set HF_TOKEN"
        ) from None
    except errors.HFValidationError as error:
        raise ConfigError(f"{repository!r} is not the name of a repository: {error}") from None
    # ValueError: an answer that is not JSON, and file names that the library refuses.
    except (errors.HTTPError, OSError, ValueError) as error:  # type: ignore[attr-defined]
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise HubError(
                f"the disk of {cache_folder()} is full: make room, or set HF_HUB_CACHE to another "
                "folder; the fetched part is kept"
            ) from None
        raise HubError(
            f"{repository} cannot be fetched: {_reason(error)}; {_CHECK}, then try again: the "
            "fetched part is kept"
        ) from None
