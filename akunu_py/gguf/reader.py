"""A strict GGUF reader over a memory map: every number is checked before it is used.

Peers crash, hang or read wrong bytes on crafted files: counts of 2**63, alignment 0, offsets that
wrap. Here a count or length may never exceed what the remaining bytes can hold, so no file makes
the reader allocate or loop beyond its own size.

Format: the GGUF specification (ggml's `docs/gguf.md`), versions 2 and 3, little-endian.
"""

import contextlib
import math
import mmap
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from akunu_py.errors import ConfigError, ModelFormatError, UnsupportedQuantizationError
from akunu_py.gguf.block_types import BLOCK_TYPES, BlockType
from akunu_py.gguf.cursor import REPAIR, Cursor, MetadataValue

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MAX_ALIGNMENT = 1 << 20
_MAX_KEY_BYTES = 65535  # of the specification
_MAX_NAME_BYTES = 63  # ggml keeps names in 64 bytes with a closing zero
_MAX_DIMENSIONS = 4
_MIN_KEY_VALUE_BYTES = 8 + 1 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies and what it is.

    Attributes:
        name: as in the file, such as "blk.0.attn_q.weight".
        type: its GGML type.
        shape_ggml: dimensions in the file's order, the contiguous one first.
        offset: of its first byte, from the start of the file.
        nbytes: how many bytes it has.

    """

    name: str
    type: BlockType
    shape_ggml: tuple[int, ...]
    offset: int
    nbytes: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions in row-major order, the contiguous one last, as numpy and MLX count."""
        return self.shape_ggml[::-1]

    @property
    def cols(self) -> int:
        """Weights in a row, that is along the contiguous dimension."""
        return self.shape_ggml[0]

    @property
    def rows(self) -> int:
        """Rows: the product of all other dimensions."""
        return math.prod(self.shape_ggml[1:])

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.cols // self.type.block_elements * self.type.block_bytes


def _read_version(cursor: Cursor) -> int:
    cursor.need(4, "the magic")
    magic = cursor.data[:4]
    if magic != _MAGIC:
        raise cursor.error("the magic", f"is {magic!r}, not {_MAGIC!r}", "this is not a GGUF file")
    cursor.position = 4
    version = cursor.u32("the version")
    if version in _VERSIONS:
        return version
    cursor.position = 4
    if int.from_bytes(version.to_bytes(4, "little"), "big") in (1, *_VERSIONS):
        raise cursor.error(
            "the version", "is big-endian", "use the little-endian file of the same model"
        )
    raise cursor.error(
        "the version",
        f"is {version}; akunu reads versions 2 and 3",
        "convert the model again with a current llama.cpp",
    )


def _read_metadata(cursor: Cursor, count: int) -> dict[str, MetadataValue]:
    metadata: dict[str, MetadataValue] = {}
    for index in range(count):
        key = cursor.string(f"metadata key {index}")
        if not key or len(key.encode()) > _MAX_KEY_BYTES:
            raise cursor.error(f"metadata key {index}", f"has {len(key)} characters")
        if key in metadata:
            raise cursor.error(f"metadata key {key!r}", "is there twice")
        code = cursor.u32(f"the type of {key!r}")
        metadata[key] = cursor.value(code, repr(key))
    return metadata


def _alignment(cursor: Cursor, metadata: Mapping[str, MetadataValue]) -> int:
    value = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not 1 <= value <= _MAX_ALIGNMENT
        or value & (value - 1)
    ):
        raise cursor.error(
            "'general.alignment'", f"is {value!r}, not a power of two up to {_MAX_ALIGNMENT}"
        )
    return value


def _read_tensor(cursor: Cursor, index: int) -> TensorInfo:
    """Read one entry of the tensor table; its offset still counts from the data section."""
    name = cursor.string(f"the name of tensor {index}")
    if not name or len(name.encode()) > _MAX_NAME_BYTES:
        raise cursor.error(
            f"the name of tensor {index}", f"has {len(name)} characters, not 1 to 63"
        )
    field = f"tensor {name!r}"
    dimensions = cursor.u32(f"the number of dimensions of {field}")
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise cursor.error(field, f"has {dimensions} dimensions, not 1 to {_MAX_DIMENSIONS}")
    shape = tuple(cursor.u64(f"a dimension of {field}") for _ in range(dimensions))
    if 0 in shape:
        raise cursor.error(field, f"has the empty shape {shape}")
    code = cursor.u32(f"the type of {field}")
    if code not in BLOCK_TYPES:
        raise UnsupportedQuantizationError(
            f"{cursor.path}: {field} at byte {cursor.position - 4} has the GGML type {code}, "
            "which akunu does not know; use another quantization of the model, or a newer akunu"
        )
    block = BLOCK_TYPES[code]
    if shape[0] % block.block_elements:
        raise cursor.error(
            field,
            f"has rows of {shape[0]} weights, not a multiple of the {block.block_elements} "
            f"in a {block.name} block",
        )
    # Python's integers do not wrap: a product beyond the file is caught against its size.
    nbytes = math.prod(shape) // block.block_elements * block.block_bytes
    return TensorInfo(name, block, shape, cursor.u64(f"the offset of {field}"), nbytes)


def _place_tensors(
    cursor: Cursor, entries: list[TensorInfo], alignment: int
) -> dict[str, TensorInfo]:
    """Check where tensors lie and turn offsets into those from the start of the file."""
    data_start = -(-cursor.position // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for entry in entries:
        field = f"tensor {entry.name!r}"
        if entry.name in tensors:
            raise cursor.error(field, "is there twice")
        if entry.offset % alignment:
            raise cursor.error(
                field, f"has the offset {entry.offset}, not a multiple of {alignment}"
            )
        offset = data_start + entry.offset
        if offset + entry.nbytes > cursor.size:
            raise cursor.error(
                field,
                f"of {entry.nbytes} bytes starts at byte {offset} "
                f"and runs past the end of the file at {cursor.size}",
            )
        tensors[entry.name] = TensorInfo(
            entry.name, entry.type, entry.shape_ggml, offset, entry.nbytes
        )
    previous: TensorInfo | None = None
    for tensor in sorted(tensors.values(), key=lambda tensor: tensor.offset):
        if previous is not None and tensor.offset < previous.offset + previous.nbytes:
            raise cursor.error(f"tensor {tensor.name!r}", f"overlaps {previous.name!r}")
        previous = tensor
    return tensors


def _read_header(
    cursor: Cursor,
) -> tuple[int, dict[str, MetadataValue], dict[str, TensorInfo]]:
    version = _read_version(cursor)
    tensor_count = cursor.count("the number of tensors", _MIN_TENSOR_BYTES)
    key_count = cursor.count("the number of metadata keys", _MIN_KEY_VALUE_BYTES)
    metadata = _read_metadata(cursor, key_count)
    alignment = _alignment(cursor, metadata)
    entries = [_read_tensor(cursor, index) for index in range(tensor_count)]
    return version, metadata, _place_tensors(cursor, entries, alignment)


def _map(path: Path) -> mmap.mmap:
    try:
        # Checked before opening: opening a FIFO would wait for a writer.
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
            raise ConfigError(f"{path} is {kind}; give the path of a .gguf file")
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ModelFormatError(f"{path} is empty; {REPAIR}")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"cannot read {path}: {reason}; check the path") from error


class GGUFFile:
    """An open GGUF file: metadata and tensor table read and checked, weights still on disk.

    Attributes:
        path: of the file.
        version: 2 or 3.
        metadata: key -> value, read-only.
        tensors: name -> TensorInfo in the file's order, read-only.

    The file must not be shortened while it is open: the operating system ends a process that
    touches mapped bytes that are gone.

    """

    def __init__(
        self,
        path: Path,
        data: mmap.mmap,
        version: int,
        metadata: dict[str, MetadataValue],
        tensors: dict[str, TensorInfo],
    ) -> None:
        self.path = path
        self.version = version
        self.metadata: Mapping[str, MetadataValue] = MappingProxyType(metadata)
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(tensors)
        self._map: mmap.mmap | None = data
        self._bytes: NDArray[np.uint8] | None = np.frombuffer(data, np.uint8)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Map a file and read its header.

        Raises ConfigError for a path that cannot be read, ModelFormatError naming the field and
        byte offset for a file that is not sound GGUF, and UnsupportedQuantizationError for a
        tensor of a type this version of akunu has never heard of.
        """
        path = Path(path)
        data = _map(path)
        try:
            return cls(path, data, *_read_header(Cursor(data, path)))
        except BaseException:
            data.close()
            raise

    def tensor_bytes(self, name: str) -> NDArray[np.uint8]:
        """Return a tensor's bytes, uint8 [rows, row_bytes], read-only and without copying.

        Raises ModelFormatError for a name the file does not have, ConfigError once closed.
        """
        if self._bytes is None:
            raise ConfigError(f"{self.path} is closed; open it again to read tensors")
        info = self.tensors.get(name)
        if info is None:
            raise ModelFormatError(f"{self.path} has no tensor {name!r}; the model is incomplete")
        flat = self._bytes[info.offset : info.offset + info.nbytes]
        return flat.reshape(info.rows, info.row_bytes)

    def close(self) -> None:
        """Unmap the file; harmless when called again.

        While views from `tensor_bytes` are alive, the map stays until the last of them is gone.
        """
        self._bytes = None
        if self._map is not None:
            with contextlib.suppress(BufferError):  # views are alive: closed with the last one
                self._map.close()
            self._map = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
