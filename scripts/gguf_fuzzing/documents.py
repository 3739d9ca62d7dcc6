"""GGUF files in two forms for mutation: a document of pairs and tensors, and bytes with a map."""

import contextlib
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from akunu_py.gguf.header import Cursor, read_header
from akunu_py.system.errors import AkunuError

STRING, ARRAY = 8, 9
FORMATS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
"""Number of a scalar type -> its `struct` format."""


@dataclass(frozen=True, slots=True)
class Value:
    """A metadata value: its type, the element type of an array, and the items or the one item.

    Items are bytes: those of a text without its length, or a scalar as in the file. `length` is
    what the file says about an array, where that is to differ from the items.
    """

    kind: int
    items: tuple[bytes, ...]
    element: int | None = None
    length: int | None = None

    def encode(self) -> bytes:
        kind = self.kind if self.element is None else self.element
        if kind == STRING:
            body = b"".join(struct.pack("<Q", len(item)) + item for item in self.items)
        else:
            body = b"".join(self.items)
        if self.element is None:
            return struct.pack("<I", self.kind) + body
        length = len(self.items) if self.length is None else self.length
        return struct.pack("<IIQ", self.kind, self.element, length % 2**64) + body


@dataclass(frozen=True, slots=True)
class Tensor:
    name: bytes
    shape: tuple[int, ...]
    kind: int
    offset: int

    def encode(self) -> bytes:
        dimensions = b"".join(struct.pack("<Q", size % 2**64) for size in self.shape)
        head = struct.pack("<Q", len(self.name)) + self.name + struct.pack("<I", len(self.shape))
        return head + dimensions + struct.pack("<IQ", self.kind % 2**32, self.offset % 2**64)


@dataclass(slots=True)
class Document:
    """A file taken apart. `encode` puts it together again, with whatever was changed."""

    pairs: list[tuple[bytes, Value]]
    tensors: list[Tensor]
    data: bytes
    alignment: int = 32
    version: int = 3

    def copy(self) -> "Document":
        return replace(self, pairs=list(self.pairs), tensors=list(self.tensors))

    def encode(self) -> bytes:
        head = struct.pack("<4sIQQ", b"GGUF", self.version, len(self.tensors), len(self.pairs))
        body = [head]
        for key, value in self.pairs:
            body += (struct.pack("<Q", len(key)), key, value.encode())
        body += [tensor.encode() for tensor in self.tensors]
        raw = b"".join(body)
        return raw + bytes(-len(raw) % self.alignment) + self.data


def _read_value(raw: bytes, place: int) -> tuple[Value, int]:
    def text() -> bytes:
        nonlocal place
        (size,) = struct.unpack_from("<Q", raw, place)
        place += 8 + size
        return raw[place - size : place]

    def scalar(kind: int) -> bytes:
        nonlocal place
        size = struct.calcsize(FORMATS[kind])
        place += size
        return raw[place - size : place]

    (kind,) = struct.unpack_from("<I", raw, place)
    place += 4
    if kind == STRING:
        return Value(kind, (text(),)), place
    if kind != ARRAY:
        return Value(kind, (scalar(kind),)), place
    element, length = struct.unpack_from("<IQ", raw, place)
    place += 12
    items = tuple(text() if element == STRING else scalar(element) for _ in range(length))
    return Value(kind, items, element), place


def parse(raw: bytes) -> Document:
    """Take a sound file apart."""
    cursor = Cursor(raw, Path("seed.gguf"))
    header = read_header(cursor)
    alignment = int(header.metadata.get("general.alignment", 32))  # type: ignore[arg-type]
    start = -(-cursor.position // alignment) * alignment
    pairs = [
        (key.encode(), _read_value(raw, place)[0]) for key, place in header.key_positions.items()
    ]
    tensors = [
        Tensor(info.name.encode(), info.shape_ggml, info.type.id, info.offset - start)
        for info in header.tensors.values()
    ]
    document = Document(pairs, tensors, raw[start:], alignment, header.version)
    if document.encode() != raw:
        raise AssertionError("a seed does not survive being taken apart and put together")
    return document


@dataclass(frozen=True, slots=True)
class Field:
    """A number in the header: where it stands, how many bytes it has."""

    offset: int
    size: int


class _Recorder(Cursor):
    """Akunu's own cursor, noting every number it reads."""

    def __init__(self, raw: bytes) -> None:
        super().__init__(raw, Path("mutated.gguf"))
        self.fields: list[Field] = []

    def u32(self, field: str) -> int:
        self.fields.append(Field(self.position, 4))
        return super().u32(field)

    def u64(self, field: str) -> int:
        self.fields.append(Field(self.position, 8))
        return super().u64(field)

    def strings(self, length: int, field: str) -> list[str]:
        return [self.string(field) for _ in range(length)]

    def _scalars(self, code: int, length: int, field: str) -> Any:
        size = struct.calcsize(FORMATS[code])
        # Of a long array every number is like the next.
        self.fields += [Field(self.position + size * index, size) for index in range(length)[:64]]
        return super()._scalars(code, length, field)


def map_fields(raw: bytes) -> tuple[list[Field], int]:
    """Return the numbers in a header, up to where it stops being sound, and where that is."""
    recorder = _Recorder(raw)
    with contextlib.suppress(AkunuError):
        read_header(recorder)
    return recorder.fields, recorder.position
