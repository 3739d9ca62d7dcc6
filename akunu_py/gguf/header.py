"""The header of one GGUF file: version, metadata and tensor table, every number checked.

Format: the GGUF specification (ggml's `docs/gguf.md`), versions 2 and 3, little-endian.
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from akunu_py.gguf.block_types import BLOCK_TYPES, BlockType
from akunu_py.gguf.cursor import Cursor, MetadataValue, describe, quote
from akunu_py.system.errors import UnsupportedQuantizationError

_MAGIC = b"GGUF"
LFS_POINTER = b"version https://git-lfs"
"""How a file begins that Git LFS left in place of another."""

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
    """The type, shape and place of a tensor."""

    name: str
    type: BlockType
    shape_ggml: tuple[int, ...]  # The contiguous dimension first, as in the file.
    offset: int  # Bytes from the start of its file.
    nbytes: int
    part: int = 0  # Index of its file among the parts of a split model.

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions in row-major order, the contiguous one last, as in numpy and MLX."""
        return self.shape_ggml[::-1]

    @property
    def cols(self) -> int:
        """Weights in a row, along the contiguous dimension."""
        return self.shape_ggml[0]

    @property
    def rows(self) -> int:
        """Number of rows: the product of all other dimensions."""
        return math.prod(self.shape_ggml[1:])

    @property
    def row_bytes(self) -> int:
        return self.cols // self.type.block_elements * self.type.block_bytes


@dataclass(frozen=True, slots=True)
class Header:
    """A checked header."""

    version: int
    metadata: dict[str, MetadataValue]  # This and `tensors` are in the order of the file.
    tensors: dict[str, TensorInfo]
    key_positions: dict[str, int]  # Position of a value's type, for messages.
    tensor_positions: dict[str, int]  # Position of a tensor's entry in the table, for messages.


def _read_version(cursor: Cursor) -> int:
    cursor.need(4, "the magic")
    magic = cursor.data[:4]
    if magic != _MAGIC:
        if cursor.data[: len(LFS_POINTER)] == LFS_POINTER:
            raise cursor.error(
                "the magic",
                "is that of a Git LFS pointer, not of a model",
                "run `git lfs pull` in its folder to get the model itself",
            )
        raise cursor.error(
            "the magic",
            f"is {magic!r}, not {_MAGIC!r}: this is not a GGUF file",
            "give the path of a .gguf file, or download it again",
        )
    cursor.position = 4
    version = cursor.u32("the version")
    if version in _VERSIONS:
        return version
    if int.from_bytes(version.to_bytes(4, "little"), "big") in (1, *_VERSIONS):
        raise cursor.error(
            "the version", "is big-endian", "use the little-endian file of the same model", 4
        )
    raise cursor.error(
        "the version",
        f"is {version}; akunu reads versions 2 and 3",
        "convert the model again with a current llama.cpp",
        4,
    )


def _read_metadata(cursor: Cursor, count: int) -> tuple[dict[str, MetadataValue], dict[str, int]]:
    metadata: dict[str, MetadataValue] = {}
    positions: dict[str, int] = {}
    for index in range(count):
        start = cursor.position
        key = cursor.string(f"metadata key {index}")
        if not 1 <= (size := len(key.encode())) <= _MAX_KEY_BYTES:
            raise cursor.error(
                f"metadata key {index}",
                f"has {size} bytes, not 1 to {_MAX_KEY_BYTES}",
                position=start,
            )
        name = quote(key)
        if key in metadata:
            raise cursor.error(f"metadata key {name}", "is there twice", position=start)
        positions[key] = cursor.position
        metadata[key] = cursor.value(cursor.u32(f"the type of {name}"), name)
    return metadata, positions


def _alignment(
    cursor: Cursor, metadata: Mapping[str, MetadataValue], positions: Mapping[str, int]
) -> int:
    key = "general.alignment"
    value = metadata.get(key, _DEFAULT_ALIGNMENT)
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not 1 <= value <= _MAX_ALIGNMENT
        or value & (value - 1)
    ):
        raise cursor.error(
            repr(key),
            f"is {describe(value)}, not a power of two up to {_MAX_ALIGNMENT}",
            position=positions[key],
        )
    return value


def _read_tensor(cursor: Cursor, index: int) -> TensorInfo:
    """Read one entry of the tensor table; its offset is still relative to the data section."""
    start = cursor.position
    name = cursor.string(f"the name of tensor {index}")
    if not 1 <= (size := len(name.encode())) <= _MAX_NAME_BYTES:
        raise cursor.error(
            f"the name of tensor {index}",
            f"has {size} bytes, not 1 to {_MAX_NAME_BYTES}",
            position=start,
        )
    field = f"tensor {name!r}"
    start = cursor.position
    dimensions = cursor.u32(f"the number of dimensions of {field}")
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise cursor.error(
            field, f"has {dimensions} dimensions, not 1 to {_MAX_DIMENSIONS}", position=start
        )
    start = cursor.position
    shape = tuple(cursor.u64(f"a dimension of {field}") for _ in range(dimensions))
    if 0 in shape:
        raise cursor.error(field, f"has the empty shape {shape}", position=start)
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
            position=start,
        )
    # Python's integers do not wrap: a product beyond the file is caught by the file's size.
    nbytes = math.prod(shape) // block.block_elements * block.block_bytes
    return TensorInfo(name, block, shape, cursor.u64(f"the offset of {field}"), nbytes)


def _read_tensors(
    cursor: Cursor, count: int, alignment: int
) -> tuple[dict[str, TensorInfo], dict[str, int]]:
    """Read the tensor table; make offsets relative to the start of the file."""
    entries: dict[str, TensorInfo] = {}
    positions: dict[str, int] = {}
    for index in range(count):
        start = cursor.position
        entry = _read_tensor(cursor, index)
        if entry.name in entries:
            raise cursor.error(f"tensor {entry.name!r}", "is there twice", position=start)
        entries[entry.name] = entry
        positions[entry.name] = start
    data_start = -(-cursor.position // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for name, entry in entries.items():
        field = f"tensor {name!r}"
        if entry.offset % alignment:
            raise cursor.error(
                field,
                f"has the offset {entry.offset}, not a multiple of {alignment}",
                position=positions[name],
            )
        offset = data_start + entry.offset
        if offset + entry.nbytes > cursor.size:
            raise cursor.error(
                field,
                f"of {entry.nbytes} bytes starts at byte {offset} "
                f"and runs past the end of the file at {cursor.size}",
                position=positions[name],
            )
        tensors[name] = replace(entry, offset=offset)
    previous: TensorInfo | None = None
    for tensor in sorted(tensors.values(), key=lambda tensor: tensor.offset):
        if previous is not None and tensor.offset < previous.offset + previous.nbytes:
            raise cursor.error(
                f"tensor {tensor.name!r}",
                f"overlaps {previous.name!r}",
                position=positions[tensor.name],
            )
        previous = tensor
    return tensors, positions


def read_header(cursor: Cursor) -> Header:
    """Read the header from the beginning of the file to the end of the tensor table.

    Raises ModelFormatError, naming the field and byte offset, for malformed GGUF, and
    UnsupportedQuantizationError for a tensor of a type unknown to this version of akunu.
    """
    version = _read_version(cursor)
    tensor_count = cursor.count("the number of tensors", _MIN_TENSOR_BYTES)
    key_count = cursor.count("the number of metadata keys", _MIN_KEY_VALUE_BYTES)
    metadata, key_positions = _read_metadata(cursor, key_count)
    alignment = _alignment(cursor, metadata, key_positions)
    tensors, tensor_positions = _read_tensors(cursor, tensor_count, alignment)
    return Header(version, metadata, tensors, key_positions, tensor_positions)


_BOOL, _F64, _STRING, _ARRAY, _U64, _I64 = 7, 12, 8, 9, 10, 11
_ARRAY_CODES = {
    "uint8": 0, "int8": 1, "uint16": 2, "int16": 3, "uint32": 4, "int32": 5,
    "float32": 6, "bool": _BOOL, "uint64": _U64, "int64": _I64, "float64": _F64,
}  # fmt: skip


def write_metadata(path: Path, metadata: Mapping[str, MetadataValue]) -> None:
    """Write `GGUFFile.metadata` as a GGUF file, version 3, without tensors.

    Single numbers become 64 bits wide; `GGUFFile` reads back equal values.
    """
    pieces = [b"GGUF", struct.pack("<IQQ", 3, 0, len(metadata))]
    for key, value in metadata.items():
        pieces += (_text_bytes(key), _value_bytes(value))
    path.write_bytes(b"".join(pieces))


def _text_bytes(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value_bytes(value: MetadataValue) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<IB", _BOOL, value)
    if isinstance(value, int):
        return struct.pack("<IQ", _U64, value) if value >= 0 else struct.pack("<Iq", _I64, value)
    if isinstance(value, float):
        return struct.pack("<Id", _F64, value)
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text_bytes(value)
    if isinstance(value, np.ndarray):
        head = struct.pack("<IIQ", _ARRAY, _ARRAY_CODES[value.dtype.name], len(value))
        return head + value.astype(value.dtype.newbyteorder("<")).tobytes()
    return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + b"".join(map(_text_bytes, value))
