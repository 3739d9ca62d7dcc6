"""Blocks of the types without super-blocks, and the ternary and four-bit float ones, to codes.

A decoder takes blocks, uint8 [n, block_bytes], writes one code per weight into `codes`, uint8
[n, block_elements], and returns the scales and biases of the groups, float32 [n, groups] each.
Biases are None if they are a fixed multiple of the scales. Source of each layout: ggml's
`ggml-common.h` (structs) and `ggml-quants.c` (`dequantize_row_*`).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.quants import scratch

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Parts = tuple[NDArray[Any], Floats | None]


def field(blocks: Bytes, start: int, stop: int, kind: str = "u1") -> NDArray[Any]:
    """Return bytes `start` to `stop` of each block as numbers, contiguous [n, count]."""
    copy = scratch.empty((len(blocks), stop - start))
    np.copyto(copy, blocks[:, start:stop])
    return copy.view(kind)


def half(blocks: Bytes, start: int) -> Floats:
    """Return the float16 at byte `start` of each block, float32 [n, 1]."""
    values: Floats = field(blocks, start, start + 2, "<f2").astype(np.float32)
    return values


def split_nibbles(packed: Bytes, strip: int, codes: Bytes) -> None:
    """Spread bytes [n, k * strip]: of each strip the low nibbles come first, then the high ones."""
    strips = packed.reshape(-1, strip)
    halves = codes.reshape(-1, 2, strip)
    np.bitwise_and(strips, np.uint8(0x0F), out=halves[:, 0])
    np.right_shift(strips, np.uint8(4), out=halves[:, 1])


def split_two_bits(packed: Bytes, codes: Bytes) -> None:
    """Spread bytes [n, 64]: of each 32, the lowest two bits are 32 codes, then the next two."""
    strips = packed.reshape(-1, 32)
    shifted = scratch.empty(strips.shape)
    target = codes.reshape(-1, 4, 32)
    for index in range(4):
        np.right_shift(strips, np.uint8(2 * index), out=shifted)
        np.bitwise_and(shifted, np.uint8(3), out=target[:, index])


def _fifth_bits(blocks: Bytes, start: int, codes: Bytes) -> None:
    """Add bit i of the 32-bit mask at byte `start` to code i, as its bit 4."""
    bits = np.unpackbits(field(blocks, start, start + 4), axis=1, bitorder="little")
    bits <<= np.uint8(4)
    codes |= bits


def q4_0(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode w = d * (q - 8)."""
    split_nibbles(field(blocks, 2, 18), 16, codes)
    return half(blocks, 0), None


def q4_1(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode w = d * q + m."""
    split_nibbles(field(blocks, 4, 20), 16, codes)
    return half(blocks, 0), half(blocks, 2)


def q5_0(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode w = d * (q - 16)."""
    split_nibbles(field(blocks, 6, 22), 16, codes)
    _fifth_bits(blocks, 2, codes)
    return half(blocks, 0), None


def q5_1(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode w = d * q + m."""
    split_nibbles(field(blocks, 8, 24), 16, codes)
    _fifth_bits(blocks, 4, codes)
    return half(blocks, 0), half(blocks, 2)


def q8_0(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode w = d * q with q signed; the code is q + 128."""
    np.bitwise_xor(blocks[:, 2:], np.uint8(0x80), out=codes)
    return half(blocks, 0), None


def q1_0(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode w = d for a bit that is set, else -d."""
    codes[:] = np.unpackbits(field(blocks, 2, 18), axis=1, bitorder="little")
    return half(blocks, 0) * 2, None


def q2_0(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode w = d * (q - 1), four codes a byte, the first in the lowest bits."""
    packed = field(blocks, 2, 18)
    for index in range(4):
        np.right_shift(packed, np.uint8(2 * index), out=codes[:, index::4])
    codes &= np.uint8(3)
    return half(blocks, 0), None


def tq2_0(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode w = d * (q - 1), one d for 256 weights."""
    split_two_bits(field(blocks, 0, 64), codes)
    return np.repeat(half(blocks, 64), 2, axis=1), None


def tq1_0(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode w = d * (q - 1): a byte has five digits in base 3, as a fraction of 256."""
    position = 0
    for start, width, digits in ((0, 32, 5), (32, 16, 5), (48, 4, 4)):
        packed = field(blocks, start, start + width)
        for digit in range(digits):
            # Shifting the fraction left by whole digits drops them, by wrapping at 256.
            rest = (packed * np.uint8(3**digit)).astype(np.uint16)
            rest *= np.uint16(3)
            rest >>= np.uint16(8)
            codes[:, position : position + width] = rest
            position += width
    return np.repeat(half(blocks, 52), 2, axis=1), None


def mxfp4(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode w = e2m1(q) * 2 ** (scale - 127)."""
    split_nibbles(field(blocks, 1, 17), 16, codes)
    return field(blocks, 0, 1), None


def nvfp4(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode w = e2m1(q) * e4m3(scale); ggml ignores the scale's sign."""
    split_nibbles(field(blocks, 4, 36), 8, codes)
    return field(blocks, 0, 4) & np.uint8(0x7F), None
