"""Finished rows of a run, saved one by one, so that an interrupted run can continue."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from akunu_py.bench.rows import Number, Row, parse, plain, read_file, typed
from akunu_py.system.errors import ConfigError

FILE = "items.jsonl"
FORMAT = "akunu bench items 2"

T = TypeVar("T")


class _Header(Row, frozen=True):
    format: str
    fingerprint: dict[str, Any]


class _Line(Row, frozen=True):
    key: str
    item: Any
    seconds: Number


class ItemStore:
    """The finished rows of one run, in `items.jsonl` of a folder; without a folder, in memory.

    The first line has the run's fingerprint. Each further line has a row, its key, and the seconds
    that the run had taken by then. Every line is flushed to disk before `put` returns. A last line
    that a crash truncated is dropped.

    Args:
        folder: created if it does not exist; None keeps rows in this object only.
        fingerprint: identifies the run: arguments, the model's hash, versions.

    Raises ConfigError if the folder has another run's rows, or cannot be used.

    """

    def __init__(self, folder: Path | None, fingerprint: Mapping[str, object]) -> None:
        wanted = plain(fingerprint, "the fingerprint")
        self._items: dict[str, Any] = {}
        self._stream: FileIO | None = None
        self._size = 0
        self._opened, self._earlier_s = time.perf_counter(), 0.0
        self.path = None if folder is None else folder / FILE
        if folder is None or self.path is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._size = self._read(self.path, wanted)
            self._stream = FileIO(self.path, "a")
            self._stream.truncate(self._size)
        except OSError as error:
            raise self._error(error) from error
        if not self._size:
            try:
                self._append(_Header(FORMAT, wanted))
            except ConfigError:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    @property
    def seconds(self) -> float:
        """The seconds that this run has taken, including its earlier parts."""
        return self._earlier_s + time.perf_counter() - self._opened

    def get(self, key: str, kind: type[T]) -> T | None:
        """Return a finished row as a value of this type; None if it is not there.

        Raises ConfigError, which names the row, for a row of another type.
        """
        if key not in self._items:
            return None
        return typed(self._items[key], kind, f"the finished {key}")

    def put(self, key: str, item: object) -> None:
        """Keep a finished row: a `Row` or a JSON value, whose numbers are 0 or more.

        Raises ConfigError if the disk is full; earlier rows stay, and a run with the same arguments
        continues from them.
        """
        value = plain(item, f"the item {key}", least=0)
        self._append(_Line(key, value, self.seconds))
        self._items[key] = value

    def close(self) -> None:
        """Close the file; may be called twice."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _append(self, line: Row) -> None:
        if self._stream is None:
            return
        # `put` has made its values plain.
        content = msgspec.json.encode(line) + b"\n"
        left = memoryview(content)
        try:
            while left:
                left = left[self._stream.write(left) :]
            os.fsync(self._stream.fileno())
        except OSError as error:
            # Part of the line may be written; the next line must not continue it.
            with contextlib.suppress(OSError):
                self._stream.truncate(self._size)
            raise self._error(error) from error
        self._size += len(content)

    def _error(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"cannot write {self.path}: {error.strerror or error}; the items written so far stay, "
            "and the same command goes on from them"
        )

    def _read(self, path: Path, fingerprint: dict[str, Any]) -> int:
        """Read the file's rows; return the number of bytes in complete lines."""
        if not path.exists():
            return 0
        if not path.is_file():
            raise ConfigError(f"{path} is not a file; give another folder")
        *lines, _cut_off = path.read_bytes().split(b"\n")
        kept = 0
        for number, content in enumerate(lines, start=1):
            where = f"line {number} of {path}"
            try:
                if number == 1:
                    self._check_header(parse(content, where), where, fingerprint)
                else:
                    line = typed(parse(content, where, least=0), _Line, where)
                    self._items[line.key], self._earlier_s = line.item, line.seconds
            except ConfigError as error:
                if number == len(lines) > 1:
                    # A crash of the whole machine can leave a last line of zeros.
                    break
                raise ConfigError(f"{error}; delete the file, or give another folder") from None
            kept += len(content) + 1
        return kept

    def _check_header(self, value: object, where: str, fingerprint: dict[str, Any]) -> None:
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise ConfigError(f"{self.path} does not hold items of this version's bench runs")
        differing = _differences(typed(value, _Header, where).fingerprint, fingerprint)
        if differing:
            raise ConfigError(f"{self.path} holds items of another run: {'; '.join(differing)}")


def held_command(folder: Path) -> str | None:
    """Return the command under `akunu bench` whose items or result a folder has."""
    for name in (FILE, "result.json"):
        path = folder / name
        with contextlib.suppress(OSError, ConfigError):
            # Reading a pipe would block.
            if not path.is_file():
                continue
            if name == FILE:
                with path.open("rb") as stream:
                    found = parse(stream.readline(), str(path))
                found = typed(found, _Header, str(path)).fingerprint
            else:
                found = parse(read_file(path), str(path))
            if isinstance(found, dict) and isinstance(found.get("command"), str):
                return str(found["command"])
    return None


def _differences(
    found: Mapping[str, object], wanted: Mapping[str, object], prefix: str = ""
) -> list[str]:
    """Return a phrase for each difference between two nested mappings."""
    phrases: list[str] = []
    for name in dict.fromkeys((*found, *wanted)):
        old, new = found.get(name), wanted.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            # Arguments and inputs are shown without the name of their group.
            own = name in {"arguments", "inputs"}
            phrases += _differences(old, new, "" if own else f"{prefix}{name}.")
        elif old != new:
            phrases.append(f"{prefix}{name} was {old!r} and is {new!r}")
    return phrases
