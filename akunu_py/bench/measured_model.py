"""The model that was measured, and the hash of its files."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from akunu_py.bench.record import Record
from akunu_py.errors import ConfigError

_SPLIT = re.compile(r"(.*)-[0-9]{5}-of-([0-9]{5})\.gguf", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Model:
    """The model that was measured; `context` in tokens, `path` as it was loaded.

    `sha256` is that of the file, or of the names and hashes of a folder's files; "" where nobody
    asked for it, as for weights that were drawn and never written.
    """

    path: str
    name: str
    architecture: str
    parameters: int
    weights: str
    context: int
    sha256: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Record) -> "Model":
        """Return the model of a JSON object; raises ConfigError saying what is wrong with it."""
        model = cls(
            path=record.text("path"),
            name=record.text("name"),
            architecture=record.text("architecture"),
            parameters=record.count("parameters"),
            weights=record.text("weights"),
            context=record.count("context"),
            sha256=record.text("sha256"),
        )
        record.end()
        return model


def model_hash(path: Path) -> str:
    """Return the SHA-256 of a model's file in hex; of a folder and of a split model, of its files.

    For several files it is the hash of lines of a name and a hash, by name. Hidden files and
    subfolders of a folder do not count. Raises ConfigError for what cannot be read.
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
