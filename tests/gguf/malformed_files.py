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


_KEY = "general.alignment"
_X = pair("x", U32, scalar(U32, 1))
_HUGE = 2**63

# name -> (file, part of the message)
MALFORMED: dict[str, tuple[bytes, str]] = {
    "four bytes": (b"GGUF", "version"),
    "two bytes": (b"GG", "magic"),
    "a text": (b"This is not a model at all, it is a text.", "not a GGUF file"),
    "version 0": (build(version=struct.pack("<I", 0)), "version"),
    "version 1": (build(version=struct.pack("<I", 1)), "version"),
    "version 99": (build(version=struct.pack("<I", 99)), "version"),
    "big-endian": (build(version=struct.pack(">I", 3)), "big-endian"),
    "2**63 tensors": (build(tensor_count=_HUGE), "number of tensors"),
    "2**64 - 1 tensors": (build(tensor_count=2**64 - 1), "number of tensors"),
    "2**64 - 1 keys": (build(pair_count=2**64 - 1), "number of metadata keys"),
    "one key too many": (build([_X], pair_count=2), "metadata key"),
    "key of 2**64 - 1 bytes": (build([string("x", 2**64 - 1) + bytes(20)]), "length"),
    "key of a terabyte": (build([string("x", 2**40) + bytes(20)]), "length"),
    "empty key": (build([pair("", U32, scalar(U32, 1))]), "metadata key 0"),
    "long key": (build([pair("k" * 65536, U32, scalar(U32, 1))]), "metadata key 0"),
    "key that is not UTF-8": (build([pair(b"\xff\xfe", U32, scalar(U32, 1))]), "UTF-8"),
    "key twice": (build([_X, _X]), "twice"),
    "unknown value type": (build([pair("x", 13, bytes(8))]), "value type 13"),
    "text that is not UTF-8": (build([pair("x", STRING, string(b"\xc3"))]), "UTF-8"),
    "text past the end": (build([pair("x", STRING, string("abc", 1000))]), "length"),
    "boolean 2": (build([pair("x", BOOL, b"\x02")]), "boolean"),
    "booleans 0, 7": (build([pair("x", ARRAY, array(BOOL, [0, 7]))]), "boolean"),
    "array of 2**60": (build([pair("x", ARRAY, array(U8, [1], 2**60))]), "length"),
    "array of 10**9 texts": (build([pair("x", ARRAY, array(STRING, ["a"], 10**9))]), "length"),
    "array of 2**63 numbers": (build([pair("x", ARRAY, array(F64, [1], _HUGE))]), "length"),
    "texts past the end": (
        build([pair("x", ARRAY, array(STRING, ["a", "b" * 30], 3))]),
        "past the end",
    ),
    "last text is a byte short": (build([pair("x", ARRAY, array(STRING, ["ab"]))])[:-1], "past"),
    "length of a text that wraps": (
        build([pair("x", ARRAY, struct.pack("<IQ", STRING, 1) + string("a", 2**64 - 8))]),
        "past the end",
    ),
    "texts that are not UTF-8": (build([pair("x", ARRAY, array(STRING, [b"\xff"]))]), "UTF-8"),
    "array of arrays": (build([pair("x", ARRAY, struct.pack("<IQ", ARRAY, 1))]), "array of arrays"),
    "unknown element type": (build([pair("x", ARRAY, struct.pack("<IQ", 77, 0))]), "type 77"),
    "alignment 0": (build([pair(_KEY, U32, scalar(U32, 0))]), "alignment"),
    "alignment 13": (build([pair(_KEY, U32, scalar(U32, 13))]), "alignment"),
    "alignment 2**21": (build([pair(_KEY, U32, scalar(U32, 2**21))]), "alignment"),
    "alignment is text": (build([pair(_KEY, STRING, string("32"))]), "alignment"),
    "alignment is true": (build([pair(_KEY, BOOL, scalar(BOOL, 1))]), "alignment"),
    "no dimensions": (build([], [tensor("t", (), 0, 0)], bytes(32)), "dimensions"),
    "5 dimensions": (build([], [tensor("t", (1,) * 5, 0, 0)], bytes(32)), "dimensions"),
    "2**31 dimensions": (build([], [tensor("t", (4,), 0, 0, 2**31)], bytes(32)), "dimensions"),
    "dimension 0": (build([], [tensor("t", (4, 0), 0, 0)], bytes(32)), "empty shape"),
    "product overflows": (
        build([], [tensor("t", (2**33, 2**33), 0, 0)], bytes(32)),
        "past the end",
    ),
    "dimension 2**64 - 1": (
        build([], [tensor("t", (2**64 - 1,), 0, 0)], bytes(32)),
        "past the end",
    ),
    "no name": (build([], [tensor("", (4,), 0, 0)], bytes(32)), "name of tensor 0"),
    "long name": (build([], [tensor("n" * 64, (4,), 0, 0)], bytes(32)), "name of tensor 0"),
    "name twice": (
        build([], [tensor("t", (4,), 0, 0), tensor("t", (4,), 0, 32)], bytes(64)),
        "twice",
    ),
    "removed type 4": (build([], [tensor("t", (32,), 4, 0)], bytes(64)), "type 4"),
    "unknown type 9999": (build([], [tensor("t", (32,), 9999, 0)], bytes(64)), "type 9999"),
    "row is no multiple of a block": (
        build([], [tensor("t", (31, 2), 8, 0)], bytes(128)),
        "multiple of the 32",
    ),
    "offset not aligned": (build([], [tensor("t", (4,), 0, 16)], bytes(64)), "offset"),
    "offset past the end": (build([], [tensor("t", (4,), 0, 64)], bytes(64)), "past the end"),
    "offset wraps": (build([], [tensor("t", (4,), 0, 2**64 - 32)], bytes(64)), "past the end"),
    "tensor without data": (build([], [tensor("t", (4,), 0, 0)]), "past the end"),
    "tensors overlap": (
        build([], [tensor("t", (16,), 0, 0), tensor("u", (16,), 0, 32)], bytes(128)),
        "overlaps",
    ),
    "tensors at one place": (
        build([], [tensor("t", (4,), 0, 0), tensor("u", (4,), 0, 0)], bytes(64)),
        "overlaps",
    ),
}
