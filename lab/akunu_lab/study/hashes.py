"""Hashes of what a study measured, so that it is only continued with the same."""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from akunu_py.api import ConfigError, Item

_SPLIT = re.compile(r"(.*)-[0-9]{5}-of-([0-9]{5})\.gguf", re.DOTALL)


def items_hash(items: Sequence[Item]) -> str:
    """Return the SHA-256 of the token ids of items."""
    content = [[item.id, item.session, item.prompt, item.text] for item in items]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def model_hash(path: Path) -> str:
    """Return the SHA-256 of a model's file, or of the files of a folder or split model, in hex.

    For several files it is the hash of lines with a name and a hash, sorted by name. Hidden files
    and subfolders are ignored. Raises ConfigError for a file that cannot be read.
    """
    try:
        if path.is_dir():
            files = [item for item in path.iterdir() if item.is_file() and item.name[0] != "."]
            return _hash_of_files(files)
        split = _SPLIT.fullmatch(path.name)
        if split is not None:
            pattern = re.compile(rf"{re.escape(split[1])}-[0-9]{{5}}-of-{split[2]}\.gguf")
            files = [item for item in path.parent.iterdir() if pattern.fullmatch(item.name)]
            return _hash_of_files(files)
        return _hash(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error


def _hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _hash_of_files(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for item in sorted(files, key=lambda item: item.name):
        digest.update(f"{item.name} {_hash(item)}\n".encode())
    return digest.hexdigest()
