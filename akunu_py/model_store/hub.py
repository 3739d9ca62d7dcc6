"""Models on the Hugging Face hub and in its cache; the only module that imports huggingface_hub.

The library's settings hold: HF_HOME and HF_HUB_CACHE say where the cache is, HF_TOKEN and
`hf auth login` who asks, HF_HUB_OFFLINE that nobody does. It draws its own progress bars.
"""

import contextlib
import errno
import glob
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from akunu_py.errors import ConfigError


@dataclass(frozen=True, slots=True)
class CachedFile:
    """A file of a snapshot in the cache.

    Attributes:
        path: in the folder of the snapshot: a link to the content, or the content.
        content: the file that `path` leads to, which other snapshots may lead to, too.
        num_bytes: of the content.

    """

    path: Path
    content: Path
    num_bytes: int


@dataclass(frozen=True, slots=True)
class CachedSnapshot:
    """One revision of a repository in the cache, as far as it was downloaded.

    Attributes:
        folder: that holds the files.
        files: by their path in the repository.
        current: whether it is the revision `main` led to when it was last asked for.

    """

    folder: Path
    files: dict[str, CachedFile]
    current: bool

    @property
    def sizes(self) -> dict[str, int]:
        """Return the bytes of each file by its path in the repository."""
        return {name: file.num_bytes for name, file in self.files.items()}


@dataclass(frozen=True, slots=True)
class CachedRepository:
    """A model repository in the cache; `name` is OWNER/REPO, or REPO of very old ones."""

    name: str
    folder: Path
    snapshots: tuple[CachedSnapshot, ...]

    @property
    def snapshot(self) -> CachedSnapshot | None:
        """Return the current snapshot, or the only one."""
        for snapshot in self.snapshots:
            if snapshot.current or len(self.snapshots) == 1:
                return snapshot
        return None


def cache_folder() -> Path:
    """Return the folder of the hub's cache; it need not exist."""
    from huggingface_hub import constants  # noqa: PLC0415 - 0.1 s that --help must not pay

    return Path(constants.HF_HUB_CACHE)


def is_offline() -> bool:
    """Return whether HF_HUB_OFFLINE forbids to ask the hub."""
    import huggingface_hub  # noqa: PLC0415

    return huggingface_hub.is_offline_mode()


def repository_sizes(repository: str) -> dict[str, int]:
    """Return the bytes of each file of a repository, by its path there.

    Raises ConfigError where the hub cannot be asked or does not let one see it.
    """
    import huggingface_hub  # noqa: PLC0415

    with _explained(repository):
        found = huggingface_hub.HfApi().model_info(repository, files_metadata=True)
    return {file.rfilename: file.size or 0 for file in found.siblings or ()}


def download(repository: str, files: Collection[str]) -> Path:
    """Fetch these files, but for those in the cache, and return the folder of the snapshot.

    Raises ConfigError as `repository_sizes` does, and where the disk is full.
    """
    import huggingface_hub  # noqa: PLC0415

    with _explained(repository):
        # The names are patterns there.
        patterns = [glob.escape(name) for name in files]
        return Path(
            huggingface_hub.snapshot_download(
                repository, allow_patterns=patterns, cache_dir=cache_folder()
            )
        )


def cached_repositories() -> list[CachedRepository]:
    """Return the model repositories in the cache, by name; damaged ones are left out.

    Raises ConfigError for a cache that cannot be read.
    """
    from huggingface_hub import CacheNotFound, scan_cache_dir  # noqa: PLC0415

    folder = cache_folder()
    try:
        found = scan_cache_dir(folder)
    except CacheNotFound:
        return []
    except (OSError, ValueError) as error:
        raise ConfigError(f"the hub's cache {folder} cannot be read: {_reason(error)}") from None
    repositories = [
        CachedRepository(
            repository.repo_id,
            repository.repo_path,
            tuple(
                CachedSnapshot(
                    revision.snapshot_path,
                    {
                        file.file_path.relative_to(revision.snapshot_path).as_posix(): CachedFile(
                            file.file_path, file.blob_path, file.size_on_disk
                        )
                        for file in revision.files
                    },
                    "main" in revision.refs,
                )
                for revision in sorted(repository.revisions, key=lambda found: found.commit_hash)
            ),
        )
        for repository in found.repos
        if repository.repo_type == "model"
    ]
    return sorted(repositories, key=lambda repository: repository.name.casefold())


def cached_repository(name: str) -> CachedRepository | None:
    """Return one repository in the cache; None where it is not there or damaged."""
    # A scan of everything would take seconds in a large cache: one folder is looked for first.
    if not (cache_folder() / f"models--{name.replace('/', '--')}").is_dir():
        return None
    return next((found for found in cached_repositories() if found.name == name), None)


def delete_repository(repository: CachedRepository) -> None:
    """Delete a repository from the cache.

    Raises ConfigError where that fails.
    """
    from huggingface_hub import scan_cache_dir  # noqa: PLC0415

    try:
        found = scan_cache_dir(cache_folder())
        commits = [
            revision.commit_hash
            for entry in found.repos
            if entry.repo_type == "model" and entry.repo_id == repository.name
            for revision in entry.revisions
        ]
        found.delete_revisions(*commits).execute()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{repository.name} cannot be deleted: {_reason(error)}") from None
    # The library logs what it could not delete and goes on.
    if repository.folder.exists():
        raise ConfigError(f"{repository.folder} could not be deleted; look at its permissions")


def delete_files(repository: CachedRepository, names: Collection[str]) -> None:
    """Delete files of a repository from the cache, in every snapshot that has them.

    Content that a file of another name shares stays, and so does content outside the repository's
    own folder, to which a damaged snapshot may lead. Raises ConfigError where that fails.
    """
    entries = [
        (name, file) for snapshot in repository.snapshots for name, file in snapshot.files.items()
    ]
    blobs = repository.folder.resolve() / "blobs"
    kept = {file.content for name, file in entries if name not in names}
    try:
        for name, file in entries:
            if name in names:
                file.path.unlink(missing_ok=True)
                if file.content not in kept and file.content.parent.resolve() == blobs:
                    file.content.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"files of {repository.name} cannot be deleted: {_reason(error)}"
        ) from None


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


@contextlib.contextmanager
def _explained(repository: str) -> Iterator[None]:
    """Turn the library's errors into ones that say what to do."""
    from huggingface_hub import errors  # noqa: PLC0415

    page = f"https://huggingface.co/{repository}"
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
    except (errors.HTTPError, OSError) as error:  # type: ignore[attr-defined]
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ConfigError(
                f"the disk of {cache_folder()} is full: make room, or let HF_HUB_CACHE name "
                "another folder; what was fetched is kept"
            ) from None
        raise ConfigError(
            f"{repository} cannot be fetched: {_first_line(error)}; check the network and try "
            "again, what was fetched is kept"
        ) from None


def _first_line(error: Exception) -> str:
    lines = _reason(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
