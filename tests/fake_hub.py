"""A hub's cache as huggingface_hub lays it out, and a hub that answers without a network."""

import hashlib
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub

COMMIT = "a" * 40


def add_to_cache(cache: Path, repository: str, files: dict, commit: str = COMMIT) -> Path:
    """Put files (path -> bytes) of a repository into the cache; return its snapshot's folder."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    for part in (folder / "blobs", folder / "refs", snapshot):
        part.mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(commit)
    for name, content in files.items():
        blob = folder / "blobs" / hashlib.sha256(content).hexdigest()
        blob.write_bytes(content)
        place = snapshot / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(blob)
    return snapshot


class FakeHub:
    """What `akunu_py.model_store.hub` calls of huggingface_hub, over repositories in memory.

    `fetched` has what each download asked for, in the patterns' own words.
    """

    def __init__(self, cache: Path) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.fetched: list[list[str]] = []
        self.error: Exception | None = None
        self._cache = cache

    def model_info(self, repository, *, files_metadata):
        if self.error:
            raise self.error
        assert files_metadata
        files = self.repositories[repository]
        return SimpleNamespace(
            siblings=[SimpleNamespace(rfilename=n, size=len(c)) for n, c in files.items()]
        )

    def snapshot_download(self, repository, *, allow_patterns, cache_dir):
        if self.error:
            raise self.error
        files = self.repositories[repository]
        kept = list(huggingface_hub.utils.filter_repo_objects(files, allow_patterns=allow_patterns))
        self.fetched.append(kept)
        there = self._cache / f"models--{repository.replace('/', '--')}" / "snapshots" / COMMIT
        new = {name: files[name] for name in kept if not (there / name).exists()}
        return str(add_to_cache(Path(cache_dir), repository, new))
