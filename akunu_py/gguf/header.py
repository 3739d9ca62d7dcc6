"""The header of one GGUF file: version, metadata and tensor table, every number checked.

Format: the GGUF specification (ggml's `docs/gguf.md`), versions 2 and 3, little-endian.

Source of the tensor types, with the weights and bytes of their blocks: ggml's `ggml_type` and the
block structs of its `ggml-common.h`; the tests compare the table with the `gguf` package.
"""

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akunu_py.system.errors import ModelFormatError, UnsupportedQuantizationError

MetadataValue = bool | int | float | str | list[str] | NDArray[Any]
"""A scalar, a string, a list of strings, or a one-dimensional array of numbers."""

REPAIR = "the file is truncated or damaged; download it again"
"""Advice for most damage."""

_BOOL, _STRING, _ARRAY, _U64, _I64, _F64 = range(7, 13)
_SCALARS: dict[int, str] = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4",
    6: "<f4", _BOOL: "<u1", _U64: "<u8", _I64: "<i8", _F64: "<f8",
}  # fmt: skip
_SCALAR_DTYPES = {code: np.dtype(name) for code, name in _SCALARS.items()}


_SHOWN_CHARACTERS = 80


def quote(text: str) -> str:
    """Return a text for a message: quoted, escaped and shortened."""
    return repr(text) if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]!r}..."


def describe(value: object) -> str:
    """Return a short description of any metadata value for a message."""
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, list | np.ndarray):
        return f"an array of {len(value)}"
    return "missing" if value is None else repr(value)


class Cursor:
    """Reads fields one after another; its errors name field and byte offset.

    Every method that reads raises ModelFormatError if the file ends before the field does.

    """

    def __init__(self, data: mmap.mmap | bytes, path: Path) -> None:
        self.data = data
        self.size = len(data)
        self.position = 0
        self.path = path

    @property
    def remaining(self) -> int:
        return self.size - self.position

    def error(
        self, field: str, problem: str, advice: str = REPAIR, position: int | None = None
    ) -> ModelFormatError:
        """Return the error for a field at `position`, by default the cursor's."""
        place = self.position if position is None else position
        return ModelFormatError(f"{self.path}: {field} at byte {place} {problem}; {advice}")

    def need(self, count: int, field: str) -> None:
        """Raise ModelFormatError if fewer than `count` bytes are left."""
        if count > self.remaining:
            raise self.error(field, f"needs {count} bytes where the file has {self.remaining} left")

    def u32(self, field: str) -> int:
        self.need(4, field)
        (value,) = struct.unpack_from("<I", self.data, self.position)
        self.position += 4
        return int(value)

    def u64(self, field: str) -> int:
        self.need(8, field)
        (value,) = struct.unpack_from("<Q", self.data, self.position)
        self.position += 8
        return int(value)

    def count(self, field: str, smallest: int) -> int:
        """Read a count of entries of at least `smallest` bytes each."""
        value = self.u64(field)
        if value > self.remaining // smallest:
            raise self.error(
                field,
                f"is {value}, more than the {self.remaining} bytes left can hold",
                position=self.position - 8,
            )
        return value

    def string(self, field: str, errors: str = "strict") -> str:
        """Read a length and that many bytes of UTF-8; `errors` as in `bytes.decode`."""
        length = self.count(f"the length of {field}", 1)
        raw = self.data[self.position : self.position + length]
        try:
            text = raw.decode("utf-8", errors)
        except UnicodeDecodeError:
            raise self.error(field, "is not UTF-8") from None
        self.position += length
        return text

    def strings(self, length: int, field: str) -> list[str]:
        """Read an array of strings, like `string` but fast enough for 150,000 of them."""
        data, size, position = self.data, self.size, self.position
        unpack = struct.Struct("<Q").unpack_from
        texts: list[str] = []
        for index in range(length):
            start = position + 8
            if start > size or (end := start + unpack(data, position)[0]) > size:
                raise self.error(
                    f"{field}[{index}]", "runs past the end of the file", position=position
                )
            try:
                texts.append(data[start:end].decode("utf-8"))
            except UnicodeDecodeError:
                raise self.error(f"{field}[{index}]", "is not UTF-8", position=start) from None
            position = end
        self.position = position
        return texts

    def value(self, code: int, field: str) -> MetadataValue:
        """Read a metadata value of the type `code`.

        In a text, bytes that are not UTF-8 become U+FFFD, since quantizers store paths in other
        encodings. In a list of texts, which are tokens, they are an error.
        """
        if code == _STRING:
            return self.string(field, errors="replace")
        if code == _ARRAY:
            return self._array(field)
        if code not in _SCALAR_DTYPES:
            raise self.error(
                field,
                f"has the value type {code}, which GGUF does not know",
                position=self.position - 4,
            )
        value: bool | int | float = self._scalars(code, 1, field)[0].item()
        return value

    def _array(self, field: str) -> MetadataValue:
        code = self.u32(f"the element type of {field}")
        if code == _ARRAY:
            raise self.error(
                field, "is an array of arrays, which no model needs", position=self.position - 4
            )
        if code == _STRING:
            return self.strings(self.count(f"the length of {field}", 8), field)
        if code not in _SCALAR_DTYPES:
            raise self.error(
                field,
                f"has the element type {code}, which GGUF does not know",
                position=self.position - 4,
            )
        length = self.count(f"the length of {field}", _SCALAR_DTYPES[code].itemsize)
        return self._scalars(code, length, field)

    def _scalars(self, code: int, length: int, field: str) -> NDArray[Any]:
        dtype = _SCALAR_DTYPES[code]
        self.need(length * dtype.itemsize, field)
        # Copied, so that a metadata value does not keep the whole file mapped.
        values = np.frombuffer(self.data, dtype, length, self.position).copy()
        if code == _BOOL:
            if values.size and values.max() > 1:
                raise self.error(field, f"is the boolean {int(values.max())}, not 0 or 1")
            values = values.astype(np.bool_)
        self.position += length * dtype.itemsize
        return values


@dataclass(frozen=True, slots=True)
class BlockType:
    """One tensor type: `block_bytes` bytes hold `block_elements` consecutive weights of a row."""

    id: int
    name: str
    block_elements: int
    block_bytes: int


_ROWS = (
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 40),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
    (42, "Q2_0", 64, 18),
)

BLOCK_TYPES: dict[int, BlockType] = {row[0]: BlockType(*row) for row in _ROWS}
"""GGML type number -> its block. Missing numbers were removed from GGML or never assigned."""


_OF_UNSLOTH = {64: "IQ1_XS", 65: "IQ1_XXS", 66: "IQ1_XXXS"}
"""Numbers that GGML has not assigned; only unsloth's build of llama.cpp reads such tensors."""

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
        kind = _OF_UNSLOTH.get(code)
        known = "which akunu does not know" if kind is None else f"unsloth's {kind}"
        raise UnsupportedQuantizationError(
            f"{cursor.path}: {field} at byte {cursor.position - 4} has the GGML type {code}, "
            f"{known}; use another quantization of the model, or a newer akunu"
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


_ARRAY_CODES = {dtype.name: code for code, dtype in _SCALAR_DTYPES.items()}
_ARRAY_CODES |= {"uint8": 0, "bool": _BOOL}  # in a file both are bytes


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
