"""Files that are not sound GGUF, and what the reader says about each.

Among them are the kinds of files that made `mx.load` 0.32 and the `gguf` package 0.19 crash, hang
or read wrong bytes, and those of CVE-2025-53630, CVE-2026-27940 and CVE-2026-7482.
"""

import struct

from gguf_bytes import (
    ARRAY,
    BOOL,
    F64,
    STRING,
    U8,
    U32,
    U64,
    array,
    build,
    f32,
    i32,
    items,
    pair,
    scalar,
    string,
    tensor,
    text,
    u32,
)

_KEY = "general.alignment"
_X = pair("x", *u32(1))
_HUGE = 2**63


def key(name: str | bytes, kind: int, value: bytes) -> bytes:
    """A file of one key; arguments as those of `pair`."""
    return build([pair(name, kind, value)])


def tensors(size: int, *table: bytes) -> bytes:
    """A file of tensors, with `size` bytes of data."""
    return build([], [*table], bytes(size))


def one(
    shape: tuple[int, ...], kind: int, offset: int, count: int | None = None, *, size: int = 32
) -> bytes:
    """A file of one tensor, with `count` dimensions by its own account."""
    return tensors(size, tensor("t", shape, kind, offset, count))


_CASES: dict[str, tuple[bytes, str] | tuple[bytes, str, int]] = {
    "four bytes": (b"GGUF", "version", 4),
    "a text": (b"This is not a model at all, it is a text.", "not a GGUF file"),
    "version 99": (build(version=struct.pack("<I", 99)), "version", 4),
    "big-endian": (build(version=struct.pack(">I", 3)), "big-endian", 4),
    "2**63 tensors": (build(tensor_count=_HUGE), "number of tensors", 8),
    "2**64 - 1 keys": (build(pair_count=2**64 - 1), "number of metadata keys", 16),
    "one key too many": (build([_X], pair_count=2), "metadata key"),
    "key of 2**64 - 1 bytes": (build([string("x", 2**64 - 1) + bytes(20)]), "length"),
    "empty key": (key("", *u32(1)), "metadata key 0", 24),
    "long key": (key("k" * 65536, *u32(1)), "metadata key 0"),
    "key that is not UTF-8": (key(b"\xff\xfe", *u32(1)), "UTF-8"),
    "key twice": (build([_X, _X]), "twice", 41),
    "unknown value type": (key("x", 13, bytes(8)), "value type 13", 33),
    "text past the end": (key("x", STRING, string("abc", 1000)), "length"),
    "boolean 2": (key("x", BOOL, b"\x02"), "boolean", 37),
    "booleans 0, 7": (key("x", *items(BOOL, [0, 7])), "boolean"),
    "array of 2**60": (key("x", ARRAY, array(U8, [1], 2**60)), "length", 41),
    "array of 2**63 numbers": (key("x", ARRAY, array(F64, [1], _HUGE)), "length"),
    "texts past the end": (key("x", ARRAY, array(STRING, ["a", "b" * 30], 3)), "past the end"),
    "last text is a byte short": (build([pair("x", *items(STRING, ["ab"]))])[:-1], "past"),
    "length of a text that wraps": (
        key("x", ARRAY, struct.pack("<IQ", STRING, 1) + string("a", 2**64 - 8)),
        "past the end",
    ),
    "texts that are not UTF-8": (key("x", *items(STRING, [b"\xff"])), "UTF-8", 57),
    "array of arrays": (key("x", ARRAY, struct.pack("<IQ", ARRAY, 1)), "array of arrays", 37),
    "unknown element type": (key("x", ARRAY, struct.pack("<IQ", 77, 0)), "type 77"),
    "alignment 0": (key(_KEY, *u32(0)), "alignment", 49),
    "alignment 13": (key(_KEY, *u32(13)), "alignment"),
    "alignment 2**21": (key(_KEY, *u32(2**21)), "alignment"),
    "alignment is text": (key(_KEY, *text("32")), "alignment"),
    "alignment is true": (key(_KEY, BOOL, scalar(BOOL, 1)), "alignment"),
    "no dimensions": (one((), 0, 0), "dimensions"),
    "5 dimensions": (one((1,) * 5, 0, 0), "dimensions", 33),
    "dimension 0": (one((4, 0), 0, 0), "empty shape", 37),
    "first dimension 0": (one((0, 4), 0, 0), "empty shape"),
    "dimension 2**64 - 1": (one((2**64 - 1,), 0, 0), "past the end"),
    "no name": (tensors(32, tensor("", (4,), 0, 0)), "name of tensor 0", 24),
    "long name": (tensors(32, tensor("n" * 64, (4,), 0, 0)), "name of tensor 0"),
    "name twice": (tensors(64, tensor("t", (4,), 0, 0), tensor("t", (4,), 0, 32)), "twice", 57),
    "removed type 4": (one((32,), 4, 0, size=64), "type 4"),
    "unknown type 9999": (one((32,), 9999, 0, size=64), "type 9999", 45),
    "a type of unsloth's": (one((256,), 65, 0, size=64), "type 65, unsloth's IQ1_XXS"),
    "row is no multiple of a block": (one((31, 2), 8, 0, size=128), "multiple of the 32", 37),
    "offset not aligned": (one((4,), 0, 16, size=64), "offset", 24),
    "offset past the end": (one((4,), 0, 64, size=64), "past the end"),
    "offset wraps": (one((4,), 0, 2**64 - 32, size=64), "past the end"),
    "tensor without data": (build([], [tensor("t", (4,), 0, 0)]), "past the end"),
    "tensors overlap": (tensors(128, tensor("t", (16,), 0, 0), tensor("u", (16,), 0, 32)), "overlaps", 57),
    "empty": (b"", "empty"),
    "a page of HTML": (b"<!DOCTYPE html><html><body>Not found</body></html>", "not a GGUF file"),
    "a pointer of Git LFS": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git lfs pull"),
    "big-endian version 1": (build(version=struct.pack(">I", 1)), "big-endian"),
    "counts are missing": (b"GGUF" + struct.pack("<I", 3), "number of tensors"),
    "a count is missing": (b"GGUF" + struct.pack("<IQ", 3, 0), "number of metadata keys"),
    "one tensor too many": (build([], [tensor("t", (4,), 0, 0)], bytes(32), tensor_count=2), "tensor 1"),
    "key without a value": (
        build([string("a long key") + struct.pack("<I", U64)]),
        "'a long key' at byte 46 needs 8",
    ),
    "key without a type": (build([string("a key of some length")]), "type of"),
    "value cut in the middle": (key("x", U64, b"abcd"), "needs 8 bytes"),
    "text cut inside a character": (key("x", *items(STRING, ["a", b"\xe2\x82", b"\xac"])), "UTF-8"),
    "array without a length": (key("x", ARRAY, struct.pack("<I", U8)), "length"),
    "array without a type": (key("a key", ARRAY, b""), "element type"),
    "array of three numbers that has two": (
        key("x", ARRAY, array(U64, [1, 2], 3)),
        "the length of 'x' at byte 41 is 3, more than the 16 bytes left can hold",
    ),
    "alignment -32": (key(_KEY, *i32(-32)), "alignment"),
    "alignment 32.0": (key(_KEY, *f32(32)), "alignment"),
    "alignment is an array": (key(_KEY, *items(U32, [32])), "array of 1"),
    "alignment is a long text": (key(_KEY, STRING, string("3" * 9999)), "alignment"),
    "name that is not UTF-8": (tensors(32, tensor(b"\xff", (4,), 0, 0)), "UTF-8"),
    "name of 32 letters in 64 bytes": (tensors(32, tensor("ä" * 32, (4,), 0, 0)), "64 bytes"),
    "2**32 - 1 dimensions": (tensors(32, tensor("t", (4,), 0, 0, 2**32 - 1)), "dimensions"),
    "product wraps to 0": (one((2**32, 2**32), 0, 0), "past"),
    "row of half a super-block": (one((128, 2), 12, 0, size=288), "multiple of the 256"),
    "offset off by one": (one((4,), 0, 1, size=64), "multiple of 32"),
    "tensor a byte short": (one((8,), 0, 0, size=31), "past the end"),
    "offset of another alignment": (
        build([pair(_KEY, *u32(64))], [tensor("t", (4,), 0, 32)], bytes(128)),
        "multiple of 64",
    ),
    "last of three overlaps": (
        tensors(256, tensor("t", (4,), 0, 64), tensor("u", (4,), 0, 0), tensor("v", (17,), 0, 0)),
        "overlaps",
    ),
}  # fmt: skip
MALFORMED = {name: (raw, words, place) for name, (raw, words, *place) in _CASES.items()}
"""Files, a part of the message, and the byte offset of the field in a list, if it is compared."""
