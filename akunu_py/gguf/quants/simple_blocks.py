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


_BYTES = 0x01010101


def _scales_and_minima(blocks: Bytes) -> tuple[Floats, Floats]:
    """Return scales and biases [n, 8] of Q4_K and Q5_K: d * sc and -dmin * m, 6 bits each.

    Of the 12 bytes, the first four hold sc[0:4] and the next four m[0:4] in their low 6 bits;
    the last four hold the low nibbles of sc[4:8] and m[4:8], whose upper two bits are the upper
    two of the first eight bytes.
    """
    first, second, third = field(blocks, 4, 16, "<u4").T
    low, nibble, upper = (np.uint32(_BYTES * bits) for bits in (0x3F, 0x0F, 0x30))
    two, four = np.uint32(2), np.uint32(4)
    scales = np.empty((len(blocks), 2), np.uint32)
    minima = np.empty_like(scales)
    scales[:, 0] = first & low
    scales[:, 1] = third & nibble | first >> two & upper
    minima[:, 0] = second & low
    minima[:, 1] = third >> four & nibble | second >> two & upper
    return (scales.view(np.uint8) * half(blocks, 0), minima.view(np.uint8) * -half(blocks, 2))


def q4_k(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode w = d * sc * q - dmin * m."""
    split_nibbles(field(blocks, 16, 144), 32, codes)
    return _scales_and_minima(blocks)


def _move_bits(packed: Bytes, start: int, stop: int, mask: int) -> Bytes:
    """Return bytes with the bits from position `start` moved to `stop`, masked by `mask`."""
    shift, by = (np.right_shift, start - stop) if start > stop else (np.left_shift, stop - start)
    moved: Bytes = shift(packed, np.uint8(by))
    moved &= np.uint8(mask)
    return moved


def q5_k(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode w = d * sc * q - dmin * m; bit i of 32 bytes is the fifth bit of the i-th 32 codes."""
    fifth = field(blocks, 16, 48)
    strips = codes.reshape(-1, 8, 32)
    for pair in range(4):
        packed = field(blocks, 48 + 32 * pair, 80 + 32 * pair)
        for index, nibbles in ((2 * pair, packed & np.uint8(0x0F)), (2 * pair + 1, packed >> 4)):
            np.bitwise_or(nibbles, _move_bits(fifth, index, 4, 0x10), out=strips[:, index])
    return _scales_and_minima(blocks)


def q6_k(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode w = d * sc * (q - 32), q of a nibble and two upper bits.

    Each half of a block has 64 bytes of nibbles, for elements 0-63 and 64-127, and 32 bytes of
    which bits 2 i and 2 i + 1 belong to the i-th 32 elements.
    """
    strips = codes.reshape(-1, 8, 32)
    for part in range(2):
        upper = field(blocks, 128 + 32 * part, 160 + 32 * part)
        for quarter in range(2):
            start = 64 * part + 32 * quarter
            packed = field(blocks, start, start + 32)
            for index, nibbles in ((quarter, packed & np.uint8(0x0F)), (quarter + 2, packed >> 4)):
                bits = _move_bits(upper, 2 * index, 4, 0x30)
                np.bitwise_or(nibbles, bits, out=strips[:, 4 * part + index])
    return field(blocks, 192, 208, "i1") * half(blocks, 208), None


def q6_k_in_8_bits(blocks: Bytes, codes: Bytes) -> Parts:
    """Quantize Q6_K anew to 8 bits in groups of 32.

    A quarter of the larger of the two scales is the step. Its 16 weights stay exact, and the errors
    of the others are at most an eighth of that scale.
    """
    scales, _ = q6_k(blocks, codes)
    pairs = scales.reshape(-1, 2)
    larger = np.where(np.abs(pairs[:, :1]) >= np.abs(pairs[:, 1:]), pairs[:, :1], pairs[:, 1:])
    ratios = np.divide(4 * pairs, larger, out=np.zeros_like(pairs), where=larger != 0)
    values = codes.reshape(-1, 2, 16) - np.float32(32)
    values *= ratios[..., None]
    np.rint(values, out=values)
    values += np.float32(128)
    np.minimum(values, np.float32(255), out=values)
    np.copyto(codes.reshape(-1, 2, 16), values, casting="unsafe")
    return larger.reshape(len(blocks), 8) * np.float32(0.25), None


def q3_k(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode w = d * (sc - 32) * (q - 4), q of two bits and a third in a mask; the code is q + 1.

    Adding one makes the zero point 5, which bit planes of two bits split without rounding (see
    `forms`).
    """
    third = field(blocks, 0, 32)
    strips = codes.reshape(-1, 8, 32)
    for index in range(8):
        start = 32 + 32 * (index // 4)
        code = _move_bits(field(blocks, start, start + 32), 2 * (index % 4), 0, 3)
        code |= _move_bits(third, index, 2, 4)
        np.add(code, np.uint8(1), out=strips[:, index])
    nibble, pair, four = np.uint32(_BYTES * 0x0F), np.uint32(_BYTES * 0x03), np.uint32(4)
    low = field(blocks, 96, 104, "<u4")
    high = field(blocks, 104, 108, "<u4")
    scales = np.empty((len(blocks), 4), np.uint32)
    scales[:, :2] = low & nibble
    scales[:, 2:] = low >> four & nibble
    for index in range(4):
        scales[:, index] |= (high[:, 0] >> np.uint32(2 * index) & pair) << four
    return (scales.view(np.int8) - np.int8(32)) * half(blocks, 108), None


def q2_k(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode w = d * sc * q - dmin * m, sc and m the nibbles of a byte."""
    split_two_bits(field(blocks, 16, 80), codes)
    both = field(blocks, 0, 16)
    scales = (both & np.uint8(0x0F)) * half(blocks, 80)
    return scales, (both >> np.uint8(4)) * -half(blocks, 82)
