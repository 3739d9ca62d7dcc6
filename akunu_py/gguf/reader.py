"""A strict GGUF reader over a memory map: every number is checked before it is used.

Crafted files make other readers crash, hang or read wrong bytes: counts of 2**63, alignment 0,
offsets that wrap. Here a count or length cannot exceed what the remaining bytes can hold, so no
file makes the reader allocate or loop beyond a small multiple of its own size.

Models may be split over several files, as llama.cpp's `llama-gguf-split` writes them. The parts are
named PREFIX-00001-of-00003.gguf and so on, in one folder. Part 1 has the metadata, and may have no
tensors; the others have their tensors and the keys `split.*`:

    split.no             index of the part, from 0
    split.count          number of parts; 0 or 1 for a model in one file
    split.tensors.count  number of tensors in all parts together

Parts are found by the name of the given file, never by anything inside a file.
"""

import contextlib
import errno
import mmap
import os
import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.header import (
    REPAIR,
    Cursor,
    Header,
    MetadataValue,
    TensorInfo,
    describe,
    read_header,
)
from akunu_py.system.errors import ConfigError, ModelFormatError
from akunu_py.system.files import open_to_read


def _map(path: Path) -> mmap.mmap:
    try:
        with open_to_read(path) as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ModelFormatError(
                    f"{path}: the magic at byte 0 is missing, the file is empty; {REPAIR}"
                )
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        advice = "check the path; it should be a .gguf file"
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            advice = "raise the limit of open files, as with `ulimit -n 4096`"
        raise ConfigError(f"cannot read {path}: {reason}; {advice}") from error


class MappedFile:
    """An open GGUF file, which may be one part of a split model."""

    def __init__(self, path: Path, data: mmap.mmap, header: Header) -> None:
        self.path = path
        self.size = len(data)
        self.header = header
        self._map: mmap.mmap | None = data
        self._bytes: NDArray[np.uint8] | None = np.frombuffer(data, np.uint8)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Map a file and read its header; raise as `GGUFFile.open` does."""
        data = _map(path)
        try:
            return cls(path, data, read_header(Cursor(data, path)))
        except BaseException:
            data.close()
            raise

    def key_error(self, key: str, problem: str, advice: str = REPAIR) -> ModelFormatError:
        """Return the error for a metadata key, or for a missing one."""
        position = self.header.key_positions.get(key)
        # A missing key is reported at the beginning of the metadata.
        place = 24 if position is None else position
        return ModelFormatError(f"{self.path}: {key!r} at byte {place} {problem}; {advice}")

    def tensor_bytes(self, info: TensorInfo) -> NDArray[np.uint8]:
        """Return the bytes of a tensor of this file, uint8 [rows, row_bytes], read-only.

        Raises ConfigError after `close`, ModelFormatError for a file that was shortened meanwhile.
        """
        if self._bytes is None or self._map is None:
            raise ConfigError(f"{self.path} is closed; open it again to read tensors")
        # Access to mapped bytes that are gone ends the process; `mmap.size` is the current size.
        if (size := self._map.size()) < self.size:
            raise ModelFormatError(
                f"{self.path}: tensor {info.name!r} at byte {info.offset} cannot be read: the file "
                f"was cut from {self.size} to {size} bytes while it was open; download it again"
            )
        flat = self._bytes[info.offset : info.offset + info.nbytes]
        return flat.reshape(info.rows, info.row_bytes)

    def close(self) -> None:
        """Unmap the file; may be called again.

        The map stays until the last view from `tensor_bytes` is gone.
        """
        self._bytes = None
        if self._map is not None:
            with contextlib.suppress(BufferError):  # views exist: closed with the last one
                self._map.close()
            self._map = None


SPLIT_PREFIX = "split."
"""Prefix of the keys about parts."""

_NUMBER, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"
_ARCHITECTURE = "general.architecture"
_MAX_PARTS = 65535  # both numbers are 16 bits wide in llama.cpp
_MAX_TENSORS = (1 << 31) - 1
_NAME = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})\.gguf", re.DOTALL)
_ADVICE = "download all parts of the model again into one folder"
_LISTED = 8


def paths_of_parts(path: Path) -> list[Path]:
    """Return the paths of a model's parts from the name of one of them, without opening any."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        return [path]
    count = min(int(match[3]), _MAX_PARTS)
    return [
        path.with_name(f"{match[1]}-{number:05d}-of-{match[3]}.gguf")
        for number in range(1, count + 1)
    ]


def _whole_number(file: MappedFile, key: str, limit: int) -> int:
    """Return the number `key`; raise ModelFormatError if it is missing or out of range."""
    value = file.header.metadata.get(key)
    if value is None:
        raise file.key_error(key, "is missing, so this is not part of a split model", _ADVICE)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limit:
        raise file.key_error(
            key, f"is {describe(value)}, not a whole number up to {limit}", _ADVICE
        )
    return value


def _existing_parts(file: MappedFile, count: int) -> list[Path]:
    """Return the paths of all parts, from the name of one of them."""
    match = _NAME.fullmatch(file.path.name)
    if match is None:
        raise file.key_error(
            _COUNT,
            f"says that the model has {count} parts, which are found by their names, but "
            f"{file.path.name!r} is not of the form PREFIX-00001-of-{count:05d}.gguf",
            "restore the name of the file and put the other parts beside it",
        )
    if int(match[3]) != count:
        raise file.key_error(
            _COUNT, f"is {count}, but the file's name says {int(match[3])} parts", _ADVICE
        )
    if not 1 <= int(match[2]) <= count:
        raise file.key_error(
            _COUNT, f"is {count}, but the file's name says part {int(match[2])}", _ADVICE
        )
    paths = paths_of_parts(file.path)
    try:
        missing = [path.name for path in paths if not path.exists()]
    except OSError as error:
        raise ConfigError(
            f"cannot look for the parts of {file.path}: {error.strerror}; check the folder"
        ) from error
    if missing:
        names = ", ".join(missing[:_LISTED]) + (", ..." if len(missing) > _LISTED else "")
        raise file.key_error(
            _COUNT,
            f"says that the model has {count} parts, of which {len(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing: {names}",
            f"download the missing parts into {file.path.parent}",
        )
    return paths


def _check_part(file: MappedFile, index: int, first: MappedFile) -> None:
    """Check that a part has the number in its name and belongs to the model of the first."""

    def require_equal(key: str, value: MetadataValue, expected: MetadataValue) -> None:
        if value != expected:
            problem = f"is {describe(value)}, but {describe(expected)} in {first.path.name}"
            raise file.key_error(key, problem, _ADVICE)

    count = _whole_number(first, _COUNT, _MAX_PARTS)
    require_equal(_COUNT, _whole_number(file, _COUNT, _MAX_PARTS), count)
    if (number := _whole_number(file, _NUMBER, _MAX_PARTS)) != index:
        raise file.key_error(
            _NUMBER, f"is {number}, but {index} by the file's name (counted from 0)", _ADVICE
        )
    if _TENSORS in file.header.metadata:
        total = _whole_number(first, _TENSORS, _MAX_TENSORS)
        require_equal(_TENSORS, _whole_number(file, _TENSORS, _MAX_TENSORS), total)
    architecture = file.header.metadata.get(_ARCHITECTURE)
    if isinstance(architecture, str):
        expected = first.header.metadata.get(_ARCHITECTURE)
        require_equal(_ARCHITECTURE, architecture, expected if isinstance(expected, str) else "")


def open_parts(path: Path) -> list[MappedFile]:
    """Open the whole model of a file: all its parts in order, or only the file.

    Raises as `GGUFFile.open` does, and ModelFormatError, naming the part, for a part that is
    missing or of another model.
    """
    with ExitStack() as stack:

        def open_part(part: Path) -> MappedFile:
            file = MappedFile.open(part)
            stack.callback(file.close)
            return file

        given = open_part(path)
        split = _COUNT in given.header.metadata
        count = _whole_number(given, _COUNT, _MAX_PARTS) if split else 1
        if count <= 1:
            parts = [given]
        else:
            paths = _existing_parts(given, count)
            parts = [given if part == path else open_part(part) for part in paths]
            for index, part in enumerate(parts):
                _check_part(part, index, parts[0])
        stack.pop_all()
        return parts


def merge_tensors(parts: list[MappedFile]) -> dict[str, TensorInfo]:
    """Return the tensors of all parts, in order.

    Raises ModelFormatError for a name in two parts, or a wrong `split.tensors.count`.
    """
    if len(parts) == 1:
        return parts[0].header.tensors
    tensors: dict[str, TensorInfo] = {}
    for index, part in enumerate(parts):
        for name, info in part.header.tensors.items():
            if name in tensors:
                raise ModelFormatError(
                    f"{part.path}: tensor {name!r} at byte {part.header.tensor_positions[name]} is "
                    f"also in {parts[tensors[name].part].path.name}; {_ADVICE}"
                )
            tensors[name] = replace(info, part=index)
    expected = _whole_number(parts[0], _TENSORS, _MAX_TENSORS)
    if expected != len(tensors):
        raise parts[0].key_error(
            _TENSORS, f"is {expected}, but the parts hold {len(tensors)} tensors", _ADVICE
        )
    return tensors


def merge_metadata(parts: list[MappedFile]) -> dict[str, MetadataValue]:
    """Return the metadata of the whole model: part 1's without the keys about parts."""
    metadata = parts[0].header.metadata
    if len(parts) == 1:
        return metadata
    return {key: value for key, value in metadata.items() if not key.startswith(SPLIT_PREFIX)}


__all__ = ["GGUFFile", "TensorInfo"]


_ENCODERS = ("v.", "a.", "mm.")


class GGUFFile:
    """An open GGUF model: checked metadata and tensor table, with weights still on disk.

    Any part of a split model opens the whole model: `paths` are those of all parts in order, and
    `metadata` is without the keys about parts, and `tensors` without those that are `left_out`.

    The files must not be shortened while they are open. `tensor_bytes` checks it, but the operating
    system ends a process that accesses mapped bytes that are gone.
    """

    def __init__(self, path: Path, parts: list[MappedFile]) -> None:
        self.path = path
        self.paths = tuple(part.path for part in parts)
        self.nbytes = sum(part.size for part in parts)
        self.version = parts[0].header.version
        self.metadata: Mapping[str, MetadataValue] = MappingProxyType(merge_metadata(parts))
        found = merge_tensors(parts)
        # Of encoders of pictures and sounds, which Ollama stores with the model.
        self.left_out = frozenset(name for name in found if name.startswith(_ENCODERS))
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(
            {name: info for name, info in found.items() if name not in self.left_out}
        )
        self._parts = parts

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Map a file, or all parts of a split model, and read the headers.

        Raises ConfigError for an unreadable path, ModelFormatError, naming the field and byte
        offset, for malformed GGUF or a part that is missing or of another model, and
        UnsupportedQuantizationError for a tensor of a type unknown to this version of akunu.
        """
        path = Path(path)
        parts = open_parts(path)
        try:
            return cls(path, parts)
        except BaseException:
            for part in parts:
                part.close()
            raise

    @property
    def num_weights(self) -> int:
        return sum(info.rows * info.cols for info in self.tensors.values())

    @property
    def is_quantized(self) -> bool:
        return any(info.type.block_elements > 1 for info in self.tensors.values())

    def tensor_bytes(self, name: str) -> NDArray[np.uint8]:
        """Return a tensor's bytes, uint8 [rows, row_bytes], read-only and without copying.

        Raises ModelFormatError for an unknown name or a file that was shortened meanwhile,
        ConfigError after `close`.
        """
        info = self.tensors.get(name)
        if info is None:
            raise ModelFormatError(
                f"{self.path} has no tensor {name!r}: the model is incomplete; download it again"
            )
        return self._parts[info.part].tensor_bytes(info)

    def close(self) -> None:
        """Unmap the files; may be called again.

        A map stays until the last view from `tensor_bytes` is gone.
        """
        for part in self._parts:
            part.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
