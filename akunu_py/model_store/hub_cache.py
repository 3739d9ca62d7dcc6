"""The hub's cache on this machine, in huggingface_hub's layout.

A repository has contents in `blobs/HASH`, links to them in `snapshots/COMMIT/FILE`, and the current
commit in `refs/main`. A content fetched through Xet is itself a link into a store that all
repositories share.
"""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from akunu_py.system.errors import ConfigError


@dataclass(frozen=True, slots=True)
class CachedFile:
    """A file of a snapshot in the cache."""

    path: Path  # In the snapshot's folder: a link to the content, or the content itself.
    content: Path  # The file that `path` leads to; other snapshots may lead there as well.
    num_bytes: int


@dataclass(frozen=True, slots=True)
class CachedSnapshot:
    """One revision of a repository in the cache, as far as it was downloaded."""

    folder: Path
    files: dict[str, CachedFile]  # By their path in the repository.
    current: bool  # Whether `main` led to this revision when it was last asked for.

    @property
    def sizes(self) -> dict[str, int]:
        return {name: file.num_bytes for name, file in self.files.items()}


@dataclass(frozen=True, slots=True)
class CachedRepository:
    """A model repository in the cache."""

    name: str  # OWNER/REPO, or REPO for very old ones.
    folder: Path
    snapshots: tuple[CachedSnapshot, ...]
    unfinished_bytes: int = 0  # Of partly fetched files.

    @property
    def snapshot(self) -> CachedSnapshot | None:
        """Return the current snapshot, or the only one."""
        for snapshot in self.snapshots:
            if snapshot.current or len(self.snapshots) == 1:
                return snapshot
        return None


def cache_folder() -> Path:
    """Return the folder of the hub's cache; it need not exist."""
    from huggingface_hub import constants  # 0.1 s that --help must not pay

    return Path(constants.HF_HUB_CACHE)


def repository_folder(name: str) -> Path:
    """Return the folder of a model repository in the cache; it need not exist."""
    return cache_folder() / f"models--{name.replace('/', '--')}"


def repository_of(path: Path) -> str | None:
    """Return the repository of the cache that a file or folder is of, OWNER/REPO; None outside."""
    for place in (path, *path.parents):
        folder = place.parent.parent
        if place.parent.name == "snapshots" and folder.name.startswith("models--"):
            return folder.name.removeprefix("models--").replace("--", "/")
    return None


def set_current(name: str, commit: str) -> None:
    """Let `main` of a repository in the cache lead to a commit.

    Raises OSError if that cannot be written.
    """
    folder = repository_folder(name)
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    # Not in refs: any file there is taken for a reference.
    new = folder / f".main-{os.getpid()}"
    new.write_text(commit)
    new.replace(folder / "refs" / "main")


def freed_bytes(repository: CachedRepository, names: Collection[str]) -> int:
    """Return the bytes that deleting these files frees: contents without another name."""
    entries = _entries(repository)
    kept = {file.content for name, file in entries if name not in names}
    freed = {file.content: file.num_bytes for name, file in entries if name in names}
    return sum(size for content, size in freed.items() if content not in kept)


def cached_repositories() -> list[CachedRepository]:
    """Return the model repositories in the cache, sorted by name, without damaged ones.

    Raises ConfigError for a cache that cannot be read.
    """
    from huggingface_hub import CacheNotFound, scan_cache_dir

    folder = cache_folder()
    for path in folder.glob("*--*/refs/**/*"):
        # The library would wait for the other end of a pipe.
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise ConfigError(f"{path} is not a file; delete it")
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
            _unfinished_bytes(repository.repo_path),
        )
        for repository in found.repos
        if repository.repo_type == "model"
    ]
    known = {repository.folder for repository in repositories}
    for part in sorted(folder.glob("models--*/blobs")):
        # The library calls repositories damaged while none of their files is complete.
        if part.parent not in known and (size := _unfinished_bytes(part.parent)):
            name = part.parent.name.removeprefix("models--").replace("--", "/")
            repositories.append(CachedRepository(name, part.parent, (), size))
    return sorted(repositories, key=lambda repository: repository.name.casefold())


def cached_repository(name: str) -> CachedRepository | None:
    """Return one repository in the cache; None if it is missing or damaged."""
    # A scan takes seconds in a large cache, so the folder is checked first.
    if not repository_folder(name).is_dir():
        return None
    return next((found for found in cached_repositories() if found.name == name), None)


def delete_repository(repository: CachedRepository) -> None:
    """Delete a repository from the cache, including partly fetched files.

    Raises ConfigError if that fails.
    """
    from huggingface_hub import scan_cache_dir

    try:
        found = scan_cache_dir(cache_folder())
        entries = [
            entry
            for entry in found.repos
            if entry.repo_type == "model" and entry.repo_id == repository.name
        ]
        commits = [revision.commit_hash for entry in entries for revision in entry.revisions]
        if commits:
            # Only in this one: a copy of it under another name has the same commits.
            alone = dataclasses.replace(found, repos=frozenset(entries))
            alone.delete_revisions(*commits).execute()
        else:
            shutil.rmtree(repository.folder)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{repository.name} cannot be deleted: {_reason(error)}") from None
    # The library only logs what it could not delete.
    if repository.folder.exists():
        raise ConfigError(f"{repository.folder} could not be deleted; check its permissions")


def delete_files(repository: CachedRepository, names: Collection[str]) -> None:
    """Delete files of a repository from the cache, in every snapshot that has them.

    Content shared with a file of another name stays. So does content outside the repository's own
    folder, to which a damaged snapshot may lead. In the store shared by repositories the library
    decides. Raises ConfigError if deleting fails.
    """
    from huggingface_hub import scan_cache_dir

    doomed = {file.path for name, file in _entries(repository) if name in names}
    blobs = repository.folder.resolve() / "blobs"
    try:
        found = scan_cache_dir(cache_folder())
        files = [
            file
            for entry in found.repos
            for revision in entry.revisions
            for file in revision.files
            if file.file_path in doomed
        ]
        strategy = found.delete_files(*files)
        own = frozenset(blob for blob in strategy.blobs if blob.parent.resolve() == blobs)
        dataclasses.replace(strategy, blobs=own).execute()
    except OSError as error:
        raise ConfigError(
            f"files of {repository.name} cannot be deleted: {_reason(error)}"
        ) from None


def delete_contents(path: Path, digests: Collection[str]) -> None:
    """Delete files with these hashes from a path's repository in the cache; raises ConfigError."""
    name = repository_of(path)
    repository = None if name is None else cached_repository(name)
    if repository is not None:
        found = {name for name, file in _entries(repository) if file.content.name in digests}
        delete_files(repository, found)


def _entries(repository: CachedRepository) -> list[tuple[str, CachedFile]]:
    return [
        (name, file) for snapshot in repository.snapshots for name, file in snapshot.files.items()
    ]


def _unfinished_bytes(folder: Path) -> int:
    """Return the bytes of partly fetched files; another process may finish one meanwhile."""
    total = 0
    for path in (folder / "blobs").glob("*.incomplete"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size
    return total


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
