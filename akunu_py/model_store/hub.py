"""Models on the Hugging Face hub: the files of a repository, and fetching them.

The settings of huggingface_hub apply: HF_ENDPOINT (address of the hub), HF_HOME and HF_HUB_CACHE
(the cache), HF_TOKEN and `hf auth login` (the user), HF_HUB_OFFLINE (no network). The library draws
its own progress bars.

After an interrupt the library would fetch a file anew, and it compares only sizes. Here the fetched
part stays beside the cached contents as ETAG.incomplete, and the next attempt asks for the rest.
The name of the content is its hash, against which it is checked. Files that the hub serves through
Xet are left to the library, which uses many connections and checks each piece.
"""

import contextlib
import errno
import hashlib
import importlib.util
import re
import shutil
import urllib.parse
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from akunu_py.model_store.hub_cache import cache_folder, repository_folder, set_current
from akunu_py.system.errors import ConfigError, HubError

_SHA256, _GIT_SHA1 = re.compile("[0-9a-f]{64}"), re.compile("[0-9a-f]{40}")
_ETAG = re.compile("[0-9A-Za-z_-][0-9A-Za-z._-]{0,127}")
_OFFICIAL_HOST = "huggingface.co"


@dataclass(frozen=True, slots=True)
class FileTransfer:
    """A file that is being fetched: its hash, as the hub states it, and its size."""

    digest: str
    num_bytes: int
    blobs: Path

    def completed(self) -> int:
        """Return how many bytes of it are here."""
        found = 0
        for part in self.blobs.glob(f"{self.digest}*"):
            with suppress(OSError):  # it may have got its last name meanwhile
                found = max(found, part.stat().st_size)
        return min(found, self.num_bytes)


Begin = Callable[[FileTransfer], object]
"""Is told of each file that is fetched."""


def fetch_file(
    repository: str, name: str, commit: str, cache: Path, begin: Begin = lambda _: None
) -> Path:
    """Fetch a file of a revision into the cache, if it is not there; return its path there.

    Raises the library's errors, and HubError for content with the wrong hash.
    """
    import huggingface_hub  # 0.1 s that --help must not pay
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        WeakFileLock,
    )

    folder = repository_folder(repository)
    place = folder / "snapshots" / commit / name
    if place.exists():
        return place
    url = huggingface_hub.hf_hub_url(repository, name, revision=commit)
    found = huggingface_hub.get_hf_file_metadata(url, retry_on_errors=True)
    etag = found.etag or ""
    if not _ETAG.fullmatch(etag):
        # The library would create a file of that name.
        raise HubError(f"{url} does not answer as the hub does; check HF_ENDPOINT")
    begin(FileTransfer(etag, found.size or 0, folder / "blobs"))
    through_xet = found.xet_file_data is not None and _has_xet()
    if not through_xet and (_SHA256.fullmatch(etag) or _GIT_SHA1.fullmatch(etag)):
        content = folder / "blobs" / etag
        lock = cache / ".locks" / folder.name / f"{etag}.lock"
        for part in (content, lock):
            part.parent.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(lock):
            if not content.exists():
                _fetch_content(name, url, found, content)
    return Path(huggingface_hub.hf_hub_download(repository, name, revision=commit, cache_dir=cache))


def free_bytes(cache: Path) -> int:
    """Return the free bytes of the disk of the cache, which need not exist."""
    return shutil.disk_usage(
        next(place for place in (cache, *cache.parents) if place.exists())
    ).free


def _fetch_content(name: str, url: str, found: Any, content: Path) -> None:
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        build_hf_headers,
    )

    headers = build_hf_headers()
    hosts = {urllib.parse.urlsplit(url).netloc, _OFFICIAL_HOST}
    if urllib.parse.urlsplit(found.location).netloc not in hosts:
        # Signed addresses elsewhere must not get the user's token.
        headers.pop("authorization", None)
    part = content.with_name(f"{content.name}.incomplete")
    if found.size is not None and part.exists() and part.stat().st_size > found.size:
        part.unlink()
    with part.open("ab") as stream:
        http_get(
            found.location,
            stream,
            resume_size=stream.tell(),
            headers=headers,
            expected_size=found.size,
            displayed_filename=name,
        )
    if _hash(part, content.name) != content.name:
        part.unlink()
        raise HubError(
            f"{name} arrived with another hash than the hub stated, and was deleted; fetch it "
            "again, and if that fails twice, tell the owner of the repository"
        )
    part.replace(content)


def _hash(path: Path, like: str) -> str:
    """Return the SHA-256 of a file, or git's SHA-1 if `like` is one."""
    with path.open("rb") as stream:
        if _SHA256.fullmatch(like):
            return hashlib.file_digest(stream, "sha256").hexdigest()
        digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
        while piece := stream.read(2**20):
            digest.update(piece)
        return digest.hexdigest()


def _has_xet() -> bool:
    from huggingface_hub import constants

    return not constants.HF_HUB_DISABLE_XET and importlib.util.find_spec("hf_xet") is not None


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
    if found is None or not isinstance(found.sha, str) or not _GIT_SHA1.fullmatch(found.sha):
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
