"""A hub's cache as huggingface_hub lays it out, filled without a hub."""

import hashlib
from pathlib import Path

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
