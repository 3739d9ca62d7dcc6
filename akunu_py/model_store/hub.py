"""Models on the Hugging Face hub: what a repository has, and bringing files of it here.

The library's settings hold: HF_ENDPOINT says where the hub is, HF_HOME and HF_HUB_CACHE where the
cache is, HF_TOKEN and `hf auth login` who asks, HF_HUB_OFFLINE that nobody does. It draws its own
progress bars.
"""

import contextlib
import errno
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from akunu_py.errors import ConfigError, HubError
from akunu_py.model_store.hub_cache import cache_folder, repository_folder, set_current
from akunu_py.model_store.transfer import fetch_file, free_bytes

_READ_LAST = "config.json"


@dataclass(frozen=True, slots=True)
class RemoteRepository:
    """A repository as it is on the hub.

    Attributes:
        name: OWNER/REPO.
        commit: what `main` leads to.
        sizes: bytes of each file by its path there; paths that lead elsewhere are left out.

    """

    name: str
    commit: str
    sizes: Mapping[str, int]


def is_offline() -> bool:
    """Return whether HF_HUB_OFFLINE forbids to ask the hub."""
    import huggingface_hub  # noqa: PLC0415 - 0.1 s that --help must not pay

    return huggingface_hub.is_offline_mode()


def ask_hub(repository: str) -> RemoteRepository:
    """Return what a repository holds.

    Raises HubError where the hub cannot be asked, ConfigError where it may not be or does not let
    one see the repository.
    """
    import huggingface_hub  # noqa: PLC0415
    from huggingface_hub import constants  # noqa: PLC0415

    with _explained(repository):
        try:
            found = huggingface_hub.HfApi().model_info(repository, files_metadata=True)
        except (KeyError, TypeError, AttributeError):
            found = None
    if found is None or not isinstance(found.sha, str) or not _is_commit(found.sha):
        raise HubError(f"{constants.ENDPOINT} does not answer as the hub does; look at HF_ENDPOINT")
    sizes = {file.rfilename: file.size or 0 for file in found.siblings or ()}
    return RemoteRepository(
        repository, found.sha, {name: size for name, size in sizes.items() if _is_below(name)}
    )


def download(repository: RemoteRepository, files: Collection[str]) -> Path:
    """Fetch these files, but for those in the cache, and return the folder of the snapshot.

    The revision becomes the current one when all of them are there, so that a fetch which ends
    before leaves the earlier one in use. Raises as `ask_hub` does, and HubError where the disk is
    full.
    """
    cache = cache_folder()
    snapshot = repository_folder(repository.name) / "snapshots" / repository.commit
    absent = [name for name in files if not (snapshot / name).exists()]
    # Files are a model from the moment on that there is a config.
    absent.sort(key=lambda name: PurePosixPath(name).name == _READ_LAST)
    _check_disk(cache, sum(repository.sizes[name] for name in absent))
    with _explained(repository.name):
        for name in absent:
            fetch_file(repository.name, name, repository.commit, cache)
        set_current(repository.name, repository.commit)
    return snapshot


def _is_below(name: str) -> bool:
    """Return whether a file's path stays in its repository, on every system, and can be shown."""
    parts = name.split("/")
    return name.isprintable() and "\\" not in name and not {"", ".", ".."} & set(parts)


def _is_commit(text: str) -> bool:
    return len(text) == 40 and set(text) <= set("0123456789abcdef")


def _check_disk(cache: Path, needed: int) -> None:
    # What is there of unfinished files is not counted, so this may ask for a little too much.
    free = free_bytes(cache)
    if needed > free:
        raise HubError(
            f"{needed / 1e6:,.0f} MB are to be fetched and the disk of {cache} has "
            f"{free / 1e6:,.0f} MB left: make room, or let HF_HUB_CACHE name another folder"
        )


def _reason(error: Exception) -> str:
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    # Without the number that a library put in front of the system's own words.
    lines = re.sub(r"\[Errno -?\d+\] ", "", text).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


@contextlib.contextmanager
def _explained(repository: str) -> Iterator[None]:
    """Turn the library's errors into ones that say what to do."""
    from huggingface_hub import constants, errors  # noqa: PLC0415

    page = f"{constants.ENDPOINT}/{repository}"
    try:
        yield
    except errors.OfflineModeIsEnabled:
        raise ConfigError(
            f"{repository} is not in the hub's cache as asked for, and HF_HUB_OFFLINE forbids to "
            "fetch it; unset that, or choose from `akunu models list`"
        ) from None
    except errors.GatedRepoError:
        raise ConfigError(
            f"{repository} is given to those who accept its terms: do so at {page}, then run "
            "`hf auth login` or set HF_TOKEN"
        ) from None
    except errors.RepositoryNotFoundError:
        raise ConfigError(
            f"the hub has no repository {repository}, or it is private: look at {page}; for a "
            "private one run `hf auth login` or set HF_TOKEN"
        ) from None
    except errors.HFValidationError as error:
        raise ConfigError(f"{repository!r} is no name of a repository: {error}") from None
    # ValueError: what is not JSON, and names of files that the library refuses.
    except (errors.HTTPError, OSError, ValueError) as error:  # type: ignore[attr-defined]
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise HubError(
                f"the disk of {cache_folder()} is full: make room, or let HF_HUB_CACHE name "
                "another folder; what was fetched is kept"
            ) from None
        raise HubError(
            f"{repository} cannot be fetched: {_reason(error)}; check the network, and where "
            "HF_ENDPOINT or a proxy leads if one is set, then try again: what was fetched is kept"
        ) from None
