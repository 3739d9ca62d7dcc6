"""Finished items of a run, written down one by one, so that an interrupted run can go on."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Self

from akunu_py.bench.environment import Environment
from akunu_py.bench.measured_model import Model
from akunu_py.bench.record import Record, check_json, parse_json, read_json
from akunu_py.errors import ConfigError

FILE = "items.jsonl"
FORMAT = "akunu bench items 1"


class ItemStore:
    """The finished items of one run, in `items.jsonl` of a folder; without a folder, in memory.

    The first line has the run's fingerprint, each further one a finished item. Every line is
    forced to disk before `put` returns. A last line that a crash cut off is dropped.

    Args:
        folder: made where it does not exist; None keeps nothing beyond this object.
        fingerprint: what must be equal for two runs to be one: arguments, the model's hash,
            versions. JSON-ready.

    Raises ConfigError where the folder holds another run's items, or cannot be used.

    """

    def __init__(self, folder: Path | None, fingerprint: Mapping[str, object]) -> None:
        check_json(fingerprint, "the fingerprint")
        self._items: dict[str, dict[str, object]] = {}
        self._stream: FileIO | None = None
        self._size = 0
        self.path = None if folder is None else folder / FILE
        if folder is None or self.path is None:
            return
        header = json.dumps({"format": FORMAT, "fingerprint": fingerprint}, sort_keys=True)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._size = self._read(self.path, json.loads(header)["fingerprint"])
            self._stream = FileIO(self.path, "a")
            self._stream.truncate(self._size)
        except OSError as error:
            raise self._error(error) from error
        if not self._size:
            try:
                self._append(header)
            except ConfigError:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def get(self, key: str) -> dict[str, object] | None:
        """Return a finished item, or None."""
        return self._items.get(key)

    def put(self, key: str, item: Mapping[str, object]) -> None:
        """Keep a finished item.

        Raises ConfigError where the disk is full; what was written before stays, and a run with
        the same arguments goes on from there.
        """
        check_json(item, f"the item {key}")
        line = json.dumps({"key": key, "item": item})
        self._append(line)
        # What was read from the file and what was put are alike: lists for tuples.
        self._items[key] = json.loads(line)["item"]

    def close(self) -> None:
        """Close the file; called twice is fine."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _append(self, line: str) -> None:
        if self._stream is None:
            return
        content = line.encode() + b"\n"
        left = memoryview(content)
        try:
            while left:
                left = left[self._stream.write(left) :]
            os.fsync(self._stream.fileno())
        except OSError as error:
            # Part of the line may be there; the next one must not continue it.
            with contextlib.suppress(OSError):
                self._stream.truncate(self._size)
            raise self._error(error) from error
        self._size += len(content)

    def _error(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"cannot write {self.path}: {error.strerror or error}; the items written so far stay, "
            "and the same command goes on from them"
        )

    def _read(self, path: Path, fingerprint: dict[str, object]) -> int:
        """Take in the file's items; return how many of its bytes are whole lines."""
        if not path.exists():
            return 0
        if not path.is_file():
            raise ConfigError(f"{path} is no file; give another folder")
        content = path.read_bytes()
        *lines, _cut_off = content.split(b"\n")
        kept = 0
        for number, line in enumerate(lines, start=1):
            try:
                where = f"line {number} of {path}"
                record = Record(parse_json(line, where), where)
                if number == 1:
                    self._check_header(record, fingerprint)
                else:
                    self._items[record.text("key")] = record.mapping("item")
                    record.end()
            except ConfigError as error:
                if number == len(lines) > 1:
                    # A crash of the whole machine can leave a last line of zeros.
                    break
                raise ConfigError(f"{error}; delete the file, or give another folder") from None
            kept += len(line) + 1
        return kept

    def _check_header(self, record: Record, fingerprint: dict[str, object]) -> None:
        if record.text("format") != FORMAT:
            raise ConfigError(f"{self.path} holds no items of a bench run")
        differing = _differences(record.mapping("fingerprint"), fingerprint)
        if differing:
            raise ConfigError(f"{self.path} holds items of another run: {'; '.join(differing)}")


def held_command(folder: Path) -> str | None:
    """Return the command under `akunu bench` that a folder holds the items or the result of."""
    with contextlib.suppress(OSError, ConfigError):
        path = folder / FILE
        # A pipe would be waited for.
        if path.is_file():
            with path.open("rb") as stream:
                header = Record(parse_json(stream.readline(), str(path)), str(path))
            return header.record("fingerprint").text("command")
    with contextlib.suppress(ConfigError):
        path = folder / "result.json"
        return Record(read_json(path), str(path)).text("command")
    return None


def run_fingerprint(
    command: str,
    arguments: Mapping[str, object],
    models: Sequence[Model | None],
    environment: Environment,
) -> dict[str, object]:
    """Return what tells one run from another: what it does, with which weights, on what.

    Of `models` those that there are count, by their hash: a file that was moved is the same.
    """
    return {
        "command": command,
        "arguments": dict(arguments),
        "models": [model.sha256 for model in models if model is not None],
        "akunu": environment.akunu,
        "mlx": environment.mlx,
        "device": environment.device_name,
        "blas": environment.blas,
    }


def _differences(
    found: Mapping[str, object], wanted: Mapping[str, object], prefix: str = ""
) -> list[str]:
    """Return what differs between two nested mappings, a phrase each."""
    phrases: list[str] = []
    for name in dict.fromkeys((*found, *wanted)):
        old, new = found.get(name), wanted.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            # An argument goes by its own name.
            phrases += _differences(old, new, "" if name == "arguments" else f"{prefix}{name}.")
        elif old != new:
            phrases.append(f"{prefix}{name} was {old!r} and is {new!r}")
    return phrases
