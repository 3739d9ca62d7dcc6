"""Bytes of GGUF files by hand, so that each field can be wrong."""

import struct
from typing import Any

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_FORMATS = {
    U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i",
    F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d",
}  # fmt: skip


def string(text: str | bytes, length: int | None = None) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def scalar(kind: int, value: Any) -> bytes:
    return struct.pack("<" + _FORMATS[kind], value)


def array(kind: int, items: list[Any], length: int | None = None) -> bytes:
    body = b"".join(string(item) if kind == STRING else scalar(kind, item) for item in items)
    return struct.pack("<IQ", kind, len(items) if length is None else length) + body


def u32(value: int) -> tuple[int, bytes]:
    """Return the type and the bytes of a value, as `pair` takes them; so do those below."""
    return U32, scalar(U32, value)


def i32(value: int) -> tuple[int, bytes]:
    return I32, scalar(I32, value)


def f32(value: float) -> tuple[int, bytes]:
    return F32, scalar(F32, value)


def text(value: str | bytes) -> tuple[int, bytes]:
    return STRING, string(value)


def items(kind: int, values: list[Any]) -> tuple[int, bytes]:
    return ARRAY, array(kind, values)


def u64(value: int) -> tuple[int, bytes]:
    return U64, scalar(U64, value)


def pair(key: str | bytes, kind: int, value: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + value


def tensor(
    name: str | bytes, shape: tuple[int, ...], kind: int, offset: int, dimensions: int | None = None
) -> bytes:
    count = len(shape) if dimensions is None else dimensions
    dims = struct.pack(f"<{len(shape)}Q", *shape)
    return string(name) + struct.pack("<I", count) + dims + struct.pack("<IQ", kind, offset)


def build(
    pairs: list[bytes] = (),
    tensors: list[bytes] = (),
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: bytes = struct.pack("<I", 3),
    tensor_count: int | None = None,
    pair_count: int | None = None,
    alignment: int = 32,
) -> bytes:
    head = magic + version
    head += struct.pack("<Q", len(tensors) if tensor_count is None else tensor_count)
    head += struct.pack("<Q", len(pairs) if pair_count is None else pair_count)
    head += b"".join(pairs) + b"".join(tensors)
    if data:
        head += b"\0" * (-len(head) % alignment)
    return head + data


def small() -> bytes:
    """A sound file: two tensors, each kind of metadata."""
    return build(
        [
            pair("general.architecture", STRING, string("llama")),
            pair("a.u8", U8, scalar(U8, 200)),
            pair("a.i16", I16, scalar(I16, -3)),
            pair("a.f32", F32, scalar(F32, 0.5)),
            pair("a.bool", BOOL, scalar(BOOL, 1)),
            pair("a.i64", I64, scalar(I64, -(2**62))),
            pair("a.texts", ARRAY, array(STRING, ["one", "", "zwölf"])),
            pair("a.numbers", ARRAY, array(F32, [1.0, 2.0])),
            pair("a.none", ARRAY, array(U32, [])),
        ],
        [tensor("first", (4, 2), 0, 0), tensor("second", (32, 3), 8, 32)],
        bytes(range(32)) + bytes(102),
    )
