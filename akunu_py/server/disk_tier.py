"""Cached rows on disk, so that conversations survive a restart.

An entry is two files: a safetensors file with the rows, and a JSON file that names their tokens,
the layout of the caches and the checksum of the first. The JSON file is written last and
atomically, so an entry is there or not, whatever happens meanwhile. Files are private, and belong
to one model.
"""

import hashlib
import json
import logging
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from akunu_py.atomic_file import replace_file
from akunu_py.errors import ConfigError
from akunu_py.models.cached_rows import CachedRows
from akunu_py.models.session import Session
from akunu_py.regular_file import open_to_read
from akunu_py.server.token_trie import TokenTrie

_log = logging.getLogger(__name__)

_VERSION = 1
_MAX_DESCRIPTION_BYTES = 64 << 20
_BLOCK_BYTES = 1 << 20
_DAMAGES = (ValueError, KeyError, TypeError, AttributeError, RecursionError, RuntimeError, OSError)
"""What a damaged file may raise; RuntimeError is what MLX raises for one that it cannot read."""


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """An entry on disk.

    Attributes:
        name: name of its files, without suffix.
        tokens: tokens of its rows.
        last_message: as in `PrefixCache.put`.
        nbytes: size of its rows' file.

    """

    name: str
    tokens: tuple[int, ...]
    last_message: int
    nbytes: int


class DiskTier:
    """Rows of one model in a folder, up to `limit` bytes; the oldest go first.

    `digest` is the model's (`model_digest`). Files of other models in the folder count, too. Other
    files are left alone. One thread uses the tier.

    Raises ConfigError if the folder cannot be made.
    """

    def __init__(self, folder: Path, limit: int, digest: str) -> None:
        self._folder = folder / f"rows-{digest}"
        self._limit = limit
        self._trie: TokenTrie[Stored] = TokenTrie()
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigError(
                f"the cache folder {folder} cannot be made: {error.strerror}; name another"
            ) from None
        for path in sorted(self._folder.glob("*.json")):
            if (stored := _read_description(path)) is not None:
                self._trie.put(stored.tokens, stored)
            else:
                self._delete(path.stem)
        self._sweep()

    def nearest(self, prompt: Sequence[int]) -> Iterator[tuple[int, Stored]]:
        """Yield entries with the number of tokens they share with a prompt, the most first."""
        return self._trie.nearest(prompt)

    def load(self, stored: Stored, session: Session) -> CachedRows | None:
        """Return the rows of an entry; None for a damaged one, which is deleted."""
        data = self._path(stored.name, "safetensors")
        try:
            description = _parsed(self._path(stored.name, "json"))
            if _sha256(data) != description["sha256"]:
                raise ValueError("its checksum is wrong")
            rows = session.read_rows(data, description["layout"], stored.tokens)
        except _DAMAGES as error:
            _log.warning("the cached prompt %s is ignored: %s", data, error)
            self.remove(stored)
            return None
        os.utime(data)
        return rows

    def write(self, rows: CachedRows, last_message: int, session: Session) -> None:
        """Write rows; those of beginnings of their text are deleted. A failure is only logged."""
        tokens = tuple(rows.tokens)
        name = hashlib.sha256(repr(tokens).encode()).hexdigest()[:32]
        data = self._path(name, "safetensors")
        new = data.with_name(f".{name}.{secrets.token_hex(4)}")
        if rows.nbytes > self._limit:
            return
        try:
            try:
                layout = session.write_rows(new, rows)
                size = new.stat().st_size
                description = {
                    "version": _VERSION, "tokens": tokens, "last_message": last_message,
                    "bytes": size, "sha256": _sha256(new), "layout": layout,
                }  # fmt: skip
                new.replace(data)
            finally:
                new.unlink(missing_ok=True)
            content = json.dumps(description).encode()
            replace_file(self._path(name, "json"), content, private=True)
        except (OSError, ValueError) as error:
            level = logging.WARNING if isinstance(error, OSError) else logging.INFO
            _log.log(level, "a prompt is not cached in %s: %s", self._folder, error)
            return
        for common, stored in list(self._trie.nearest(tokens)):
            if common == len(stored.tokens) < len(tokens):
                self.remove(stored)
        self._trie.put(tokens, Stored(name, tokens, last_message, size))
        self._sweep()

    def remove(self, stored: Stored) -> None:
        """Delete an entry."""
        self._trie.pop(stored.tokens)
        self._delete(stored.name)

    def _sweep(self) -> None:
        """Delete the oldest entries beyond the limit, and what an interrupted write left."""
        for left in self._folder.glob(".*"):
            left.unlink(missing_ok=True)
        found = []
        for path in self._folder.parent.glob("rows-*/*.safetensors"):
            if path.with_suffix(".json").exists():
                state = path.stat()
                found.append((state.st_mtime, state.st_size, path))
            else:
                path.unlink(missing_ok=True)
        size = sum(nbytes for _, nbytes, _ in found)
        stored = {one.name: one for _, one in self._trie.nearest(())}
        for _, nbytes, path in sorted(found):
            if size <= self._limit:
                return
            size -= nbytes
            if path.parent == self._folder and path.stem in stored:
                self.remove(stored[path.stem])
            else:
                path.with_suffix(".json").unlink(missing_ok=True)
                path.unlink(missing_ok=True)

    def _delete(self, name: str) -> None:
        # The description first: rows without one are no entry.
        for suffix in ("json", "safetensors"):
            self._path(name, suffix).unlink(missing_ok=True)

    def _path(self, name: str, suffix: str) -> Path:
        return self._folder / f"{name}.{suffix}"


def _read_description(path: Path) -> Stored | None:
    """Return the entry that a JSON file describes; None for a damaged one."""
    try:
        found = _parsed(path)
        tokens, last = found["tokens"], found["last_message"]
        if not all(type(number) is int and number >= 0 for number in (*tokens, last)):
            raise ValueError("its tokens are damaged")
        size = path.with_suffix(".safetensors").stat().st_size
        if found["version"] != _VERSION or size != found["bytes"]:
            raise ValueError("its rows are missing or of another size")
    except _DAMAGES as error:
        _log.warning("the cached prompt %s is ignored: %s", path, error)
        return None
    return Stored(path.stem, tuple(tokens), last, size)


def _parsed(path: Path) -> dict[str, Any]:
    with open_to_read(path) as stream:
        found = json.loads(stream.read(_MAX_DESCRIPTION_BYTES))
    if not isinstance(found, dict):
        raise TypeError("it is not a JSON object")
    return found


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open_to_read(path) as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
