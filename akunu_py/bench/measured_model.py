"""The model that was measured, and the hash of its files."""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from akunu_py.bench.rows import Count, Row
from akunu_py.model_store.default_model import default_model_path
from akunu_py.system.errors import ConfigError

_SPLIT = re.compile(r"(.*)-[0-9]{5}-of-([0-9]{5})\.gguf", re.DOTALL)


class BenchDescription(Protocol):
    """The facts about a model that a result names."""

    @property
    def path(self) -> Path:
        """Return the file or folder."""

    @property
    def name(self) -> str:
        """Return the model's own name."""

    @property
    def architecture(self) -> str:
        """Return the model family."""

    @property
    def parameters(self) -> int:
        """Return the number of weights."""

    @property
    def context(self) -> int:
        """Return the most tokens of prompt and reply together."""

    @property
    def weights(self) -> str:
        """Return the form of the weights in memory."""


class Model(Row, frozen=True):
    """The model that was measured; `context` in tokens, `path` as it was loaded.

    `sha256` is the hash of the file, or of the names and hashes of a folder's files; "" if it was
    not requested, as for random weights that were never written.
    """

    path: str
    name: str
    architecture: str
    parameters: Count
    weights: str
    context: Count
    sha256: str = ""


def model_from(
    description: BenchDescription, context: int | None = None, *, hashed: bool = True
) -> Model:
    """Return the facts about a model for a result; `context`, in tokens, defaults to its own.

    The models that ship with akunu are named by their files alone, so that a result does not
    contain the path of the installation. Missing files, such as those of random weights, have no
    hash. Hashing takes about a second for each gigabyte.
    """
    path = description.path
    return Model(
        path=path.name if _is_shipped(path) else str(path),
        name=description.name,
        architecture=description.architecture,
        parameters=description.parameters,
        weights=description.weights,
        context=description.context if context is None else context,
        sha256=model_hash(path) if hashed and path.exists() else "",
    )


def _is_shipped(path: Path) -> bool:
    try:
        return path.resolve().parent == default_model_path().resolve().parent
    except ConfigError:
        return False


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
