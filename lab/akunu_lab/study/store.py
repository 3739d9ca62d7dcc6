"""Finished rows of a run, saved one by one, so that an interrupted run can continue."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from akunu_py.api import BenchResult, ConfigError, Row

FILE = "items.jsonl"
FORMAT = "akunu bench items 2"

T = TypeVar("T")


class _Header(Row, frozen=True):
    format: str
    fingerprint: dict[str, Any]


class _Line(Row, frozen=True):
    key: str
    item: Any
    seconds: float


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
        wanted = _Header(FORMAT, dict(fingerprint)).plain()["fingerprint"]
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
                self._append(_Header(FORMAT, wanted).plain())
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
        try:
            return msgspec.convert(self._items[key], kind, str_keys=True)
        except msgspec.ValidationError as error:
            raise ConfigError(f"the finished {key}: {error}") from None

    def put(self, key: str, item: object) -> None:
        """Keep a finished row: a `Row` or a JSON value, whose numbers are 0 or more.

        Raises ConfigError if the disk is full; earlier rows stay, and a run with the same arguments
        continues from them.
        """
        try:
            line = _Line(key, item, self.seconds).plain()
            _check_numbers(line["item"])
        except ConfigError as error:
            raise ConfigError(f"the item {key}: {error}") from None
        self._append(line)
        self._items[key] = line["item"]

    def close(self) -> None:
        """Close the file; may be called twice."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _append(self, line: Mapping[str, Any]) -> None:
        if self._stream is None:
            return
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
                    self._check_header(content, where, fingerprint)
                else:
                    line = _Line.from_json(content, where)
                    _check_numbers(line.item)
                    self._items[line.key], self._earlier_s = line.item, line.seconds
            except ConfigError as error:
                if number == len(lines) > 1:
                    # A crash of the whole machine can leave a last line of zeros.
                    break
                raise ConfigError(f"{error}; delete the file, or give another folder") from None
            kept += len(content) + 1
        return kept

    def _check_header(self, content: bytes, where: str, fingerprint: dict[str, Any]) -> None:
        try:
            header = _Header.from_json(content, where)
        except ConfigError as error:
            raise ConfigError(
                f"{self.path} does not hold items of this version's bench runs: {error}"
            ) from None
        if header.format != FORMAT:
            raise ConfigError(f"{self.path} does not hold items of this version's bench runs")
        differing = _differences(header.fingerprint, fingerprint)
        if differing:
            raise ConfigError(f"{self.path} holds items of another run: {'; '.join(differing)}")


def _check_numbers(value: object) -> None:
    """Raise ConfigError for a number below 0: no figure of an item is one."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for entry in value:
            _check_numbers(entry)
    elif isinstance(value, int | float) and value < 0:
        raise ConfigError(f"it holds {value}, and its numbers are 0 or more")


def held_command(folder: Path) -> str | None:
    """Return the command under `akunu bench` whose items or result a folder has."""
    # Reading a pipe would block.
    path = folder / FILE
    with contextlib.suppress(OSError, ConfigError):
        if path.is_file():
            with path.open("rb") as stream:
                header = _Header.from_json(stream.readline(), str(path))
            return str(header.fingerprint.get("command"))
    with contextlib.suppress(OSError, ConfigError):
        if (folder / "result.json").is_file():
            return BenchResult.read(folder).command
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
