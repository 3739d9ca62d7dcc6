"""Cached KV entries on disk, so that conversations survive a restart.

An entry is two files: a safetensors file with the KV entries, and a description. The description's
first line has the version of the format and a checksum of the rest: a JSON object with the tokens,
the layout of the caches, and size and checksum of the KV entries' file. It is written last and
atomically, so an entry is there or not, whatever happens meanwhile. Files are private, and belong
to one model.
"""

import contextlib
import hashlib
import json
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from akunu_py.models.cached_rows import CachedRows
from akunu_py.models.row_file import write_arrays
from akunu_py.models.session import Session
from akunu_py.server.token_trie import TokenTrie
from akunu_py.system.errors import ConfigError
from akunu_py.system.files import open_to_read, replace_file

if TYPE_CHECKING:
    import mlx.core as mx

_log = logging.getLogger(__name__)

_VERSION = 2
_MAX_DESCRIPTION_BYTES = 64 << 20
_BLOCK_BYTES = 1 << 20
_OURS = re.compile(r"([0-9a-f]{32})\.(?:json|safetensors)|\.[0-9a-f]{32}(?:\.json)?\.[0-9a-f]{8}")
"""Names of files that a tier makes; the last kind is one that is being written."""

_FOLDER = re.compile(r"rows-[0-9a-f]{32}")
"""Names of folders that tiers make: of any model."""

_ABANDONED_S = 600.0
"""Age of a half-written entry that nobody will complete: another server may use the folder, too."""


class _OtherVersionError(ValueError):
    """An entry that another version of akunu wrote, which that one may still use."""


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """An entry on disk."""

    name: str
    tokens: tuple[int, ...]
    text: tuple[int, ...]
    """The tokens of prompt and reply, of which the last may have no row."""
    last_message: int
    """As in `PrefixCache.put`."""
    places: tuple[int, ...]
    """Numbers of KV entries to which caches can go back that cannot drop KV entries, in order."""
    nbytes: int
    """Size of its KV entries' file."""

    def reach(self, length: int, *, by_length: bool) -> int:
        """Return how many of the first `length` KV entries can be used at least.

        `by_length` says whether the model's caches can drop any number of KV entries.
        """
        if by_length or length >= len(self.tokens):
            return min(length, len(self.tokens))
        return max((place for place in self.places if place <= length), default=0)


@dataclass(frozen=True, slots=True)
class _Written:
    """What a write came to: the new entry, None if it failed, and names of entries deleted."""

    new: Stored | None
    gone: list[str]


class DiskTier:
    """KV entries of one model in a folder, up to `limit` bytes; the oldest go first.

    `digest` is the model's (`model_digest`). Files of other models in the folder count, too. Other
    files are left alone. One thread uses the tier; another process may use the folder, and remove
    what is in it at any time. What fails on disk is logged, and costs no more than the KV entries.

    Raises ConfigError if the folder cannot be made.
    """

    def __init__(self, folder: Path, limit: int, digest: str) -> None:
        self._folder = folder / f"rows-{digest}"
        self._limit = limit
        self._trie: TokenTrie[Stored] = TokenTrie()
        self._writer = ThreadPoolExecutor(1, "akunu writes rows")
        self._writing: Future[_Written] | None = None
        make_folder(self._folder)
        for path, _ in _files([self._folder]):
            if path.suffix == ".json" and (stored := _read_description(path)) is not None:
                self._trie.put(stored.tokens, stored)
        self._forget(self._sweep())

    def nearest(self, prompt: Sequence[int]) -> Iterator[tuple[int, Stored]]:
        """Yield entries with the number of tokens they share with a prompt, the most first."""
        return self._trie.nearest(prompt)

    def load(self, stored: Stored, session: Session) -> CachedRows | None:
        """Return the rows of an entry; None for one that is damaged or gone, which is deleted."""
        data = self._path(stored.name, "safetensors")
        try:
            rows = self._read(stored, data, session)
        except Exception as error:  # noqa: BLE001 - a damaged file may raise anything
            _log.warning("the cached prompt %s is ignored: %s", data, error)
            self.remove(stored)
            return None
        with contextlib.suppress(OSError):
            os.utime(data)
        return rows

    def _read(self, stored: Stored, data: Path, session: Session) -> CachedRows:
        description = _read(self._path(stored.name, "json"))
        if _stored(stored.name, description).tokens != stored.tokens:
            raise ValueError("it belongs to another text by now")
        if _sha256(data) != description["sha256"]:
            raise ValueError("its checksum is wrong")
        return session.read_rows(data, description["layout"], stored.tokens)

    def write(
        self, rows: CachedRows, text: Sequence[int], last_message: int, session: Session
    ) -> None:
        """Begin to write KV entries, in a thread of its own; `finish` takes note of the end.

        KV entries of beginnings of their text are deleted then. A failure is only logged. Raises
        RuntimeError while other KV entries are written.
        """
        if self._writing is not None:
            raise RuntimeError("rows are being written; call finish first")
        if rows.nbytes > self._limit:
            return
        try:
            layout, arrays = session.describe_rows(rows)
        except ValueError as error:
            _log.info("a prompt is not cached in %s: %s", self._folder, error)
            return
        tokens = tuple(rows.tokens)
        description = {
            "tokens": tokens, "text": list(text[len(tokens) :]),
            "last_message": last_message, "layout": layout,
        }  # fmt: skip
        replaced = [
            stored.name
            for common, stored in self._trie.nearest(tokens)
            if common == len(stored.tokens) < len(tokens)
        ]
        self._writing = self._writer.submit(self._write_entry, description, arrays, replaced)

    def _write_entry(
        self, description: dict[str, Any], arrays: "dict[str, mx.array]", replaced: list[str]
    ) -> "_Written":
        """Write an entry, then delete those that it replaces and those beyond the limit."""
        try:
            new = self._write_files(description, arrays)
            for name in replaced:
                _delete(self._path(name, "json"))
            return _Written(new, [*replaced, *self._sweep()])
        except Exception as error:  # noqa: BLE001 - whatever it is, it costs the entry alone
            _log.warning("a prompt is not cached in %s: %s", self._folder, error)
            return _Written(None, [])

    def _write_files(self, description: dict[str, Any], arrays: "dict[str, mx.array]") -> Stored:
        name = hashlib.sha256(repr(description["tokens"]).encode()).hexdigest()[:32]
        data = self._path(name, "safetensors")
        new = data.with_name(f".{name}.{secrets.token_hex(4)}")
        # Somebody may have deleted it.
        make_folder(self._folder)
        try:
            write_arrays(new, arrays)
            description |= {"bytes": new.stat().st_size, "sha256": _sha256(new)}
            new.replace(data)
        finally:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
        replace_file(self._path(name, "json"), _written(description), private=True)
        return _stored(name, description)

    @property
    def writing(self) -> bool:
        """Whether KV entries are being written."""
        return self._writing is not None and not self._writing.done()

    def finish(self) -> None:
        """Wait until KV entries are written, if any are, and take note of what is on disk then."""
        if self._writing is None:
            return
        writing, self._writing = self._writing.result(), None
        if writing.new is not None:
            self._trie.put(writing.new.tokens, writing.new)
        self._forget(writing.gone)

    def remove(self, stored: Stored) -> None:
        """Delete an entry."""
        self._trie.pop(stored.tokens)
        _delete(self._path(stored.name, "json"))

    def _forget(self, names: Collection[str]) -> None:
        """Take note that entries are gone."""
        for stored in [one for _, one in self._trie.nearest(()) if one.name in names]:
            self._trie.pop(stored.tokens)

    def _sweep(self) -> list[str]:
        """Delete the oldest entries beyond the limit, and what an interrupted write left.

        Returns the names of those that were the model's.
        """
        found, now = [], time.time()
        try:
            beside = self._folder.parent.glob("rows-*")
            folders = {self._folder, *(path for path in beside if _FOLDER.fullmatch(path.name))}
        except OSError as error:
            _log.warning("the cache folder %s cannot be read: %s", self._folder.parent, error)
            return []
        for path, state in _files(folders):
            if path.suffix == ".safetensors" and path.with_suffix(".json").exists():
                found.append((state.st_mtime, state.st_size, path))
            elif path.suffix != ".json" and now - state.st_mtime > _ABANDONED_S:
                _delete(path)
        size = sum(nbytes for _, nbytes, _ in found)
        gone = []
        for _, nbytes, path in sorted(found):
            if size <= self._limit:
                break
            size -= nbytes
            _delete(path)
            if path.parent == self._folder:
                gone.append(path.stem)
        return gone

    def _path(self, name: str, suffix: str) -> Path:
        return self._folder / f"{name}.{suffix}"


def make_folder(folder: Path) -> None:
    """Make a private folder if it is not there; raises ConfigError if it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(
            f"the cache folder {folder} cannot be made: {error.strerror}; name another"
        ) from None


def _files(folders: Iterable[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the files of tiers in some folders, without what vanishes or cannot be looked at."""
    for folder in folders:
        try:
            paths = sorted(path for path in folder.iterdir() if _OURS.fullmatch(path.name))
        except OSError:
            continue
        for path in paths:
            try:
                state = path.lstat()
            except OSError:
                continue
            if stat.S_ISREG(state.st_mode):
                yield path, state


def _delete(path: Path) -> None:
    """Delete a file of a tier; of an entry both."""
    # The description first: KV entries without one are not an entry.
    for suffix in (".json", path.suffix, ".safetensors"):
        try:
            path.with_suffix(suffix).unlink(missing_ok=True)
        except OSError as error:
            _log.warning("%s cannot be deleted: %s", path, error)


def _read_description(path: Path) -> Stored | None:
    """Return the entry that a file describes; None for another version's, or a damaged one.

    The damaged one is deleted.
    """
    try:
        return _described(path)
    except Exception as error:  # noqa: BLE001 - a damaged file may raise anything
        _log.warning("the cached prompt %s is ignored: %s", path, error)
        if not isinstance(error, _OtherVersionError):
            _delete(path)
        return None


def _described(path: Path) -> Stored:
    stored = _stored(path.stem, _read(path))
    if path.with_suffix(".safetensors").stat().st_size != stored.nbytes:
        raise ValueError("its rows have another size")
    return stored


def _stored(name: str, description: Mapping[str, Any]) -> Stored:
    """Return an entry as its description has it; raises as a damaged one does."""
    tokens, rest = tuple(description["tokens"]), tuple(description["text"])
    places = tuple(sorted(mark["held"] for mark in description["layout"]["marks"]))
    last_message, nbytes = description["last_message"], description["bytes"]
    for number in (*tokens, *rest, *places, last_message, nbytes):
        if type(number) is not int or number < 0:
            raise ValueError(f"it has {number!r:.40} where a count or token should be")
    return Stored(name, tokens, tokens + rest, last_message, places, nbytes)


def _written(description: Mapping[str, Any]) -> bytes:
    body = json.dumps(description).encode()
    head = {"version": _VERSION, "sha256": hashlib.sha256(body).hexdigest()}
    return json.dumps(head).encode() + b"\n" + body


def _read(path: Path) -> dict[str, Any]:
    """Return the description in a file."""
    with open_to_read(path) as stream:
        head, _, body = stream.read(_MAX_DESCRIPTION_BYTES).partition(b"\n")
    expected = _object(head)
    if expected["version"] != _VERSION:
        raise _OtherVersionError("another version of akunu wrote it")
    if expected["sha256"] != hashlib.sha256(body).hexdigest():
        raise ValueError("the checksum of its description is wrong")
    return _object(body)


def _object(content: bytes) -> dict[str, Any]:
    found = json.loads(content)
    if not isinstance(found, dict):
        raise TypeError("it is not a JSON object")
    return found


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open_to_read(path) as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
