"""Blocks of the K-quants, 256 weights with quantized scales, to codes.

As in `simple_blocks`: blocks to codes, scales and biases.
"""

import numpy as np

from akunu_py.gguf.quants.simple_blocks import (
    Bytes,
    Floats,
    Parts,
    field,
    half,
    split_nibbles,
    split_two_bits,
)

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
