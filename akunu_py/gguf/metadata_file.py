"""Writes a GGUF file of metadata only, in which a converted model keeps its tokenizer."""

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from akunu_py.gguf.cursor import MetadataValue

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
        pieces += (_text(key), _value(value))
    path.write_bytes(b"".join(pieces))


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: MetadataValue) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<IB", _BOOL, value)
    if isinstance(value, int):
        return struct.pack("<IQ", _U64, value) if value >= 0 else struct.pack("<Iq", _I64, value)
    if isinstance(value, float):
        return struct.pack("<Id", _F64, value)
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    if isinstance(value, np.ndarray):
        head = struct.pack("<IIQ", _ARRAY, _ARRAY_CODES[value.dtype.name], len(value))
        return head + value.astype(value.dtype.newbyteorder("<")).tobytes()
    return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + b"".join(map(_text, value))
