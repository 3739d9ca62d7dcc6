"""Codes, one per byte, to MLX's bit stream: `bits` per code, element 0 in the lowest bits.

All functions make a fixed number of passes over whole arrays in machine words: a pass over an array
in a core's cache moves tens of gigabytes a second, and numpy has no operation that gathers bits.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.quants import scratch

Bytes = NDArray[np.uint8]
_Words = NDArray[np.uint64]

_BYTES = 0x0101010101010101  # one in each byte of a 64-bit word


def _pairs(codes: Bytes, bits: int, out: Bytes | None = None) -> Bytes:
    """Join neighbours of at most 4 bits: [n] codes to [n / 2] bytes of 2 * bits."""
    words = codes.view("<u2")
    joined = scratch.empty(words.shape, np.uint16)
    np.right_shift(words, np.uint16(8 - bits), out=joined)
    joined |= words
    # The cast keeps the low byte; the bits above repeat the second code.
    pairs = scratch.empty(words.shape) if out is None else out
    np.copyto(pairs, joined, casting="unsafe")
    return pairs


def _merge(lanes: NDArray[Any], width: int, kind: type[np.unsignedinteger[Any]]) -> NDArray[Any]:
    """Join neighbours of `width` bits in lanes of half a `kind`: [n] to [n / 2] of that kind.

    The lanes are overwritten.
    """
    words = lanes.view(kind)
    mask = (1 << width) - 1
    joined = scratch.empty(words.shape, kind)
    np.right_shift(words, kind(8 * lanes.itemsize - width), out=joined)
    joined &= kind(mask << width)
    words &= kind(mask)
    joined |= words
    return joined


def _eights(codes: Bytes, bits: int) -> _Words:
    """Join eight neighbours of 5 or 6 bits: [n] codes to [n / 8] words of 8 * bits."""
    twos = _merge(codes, bits, np.uint16)
    fours = _merge(twos, 2 * bits, np.uint32)
    words: _Words = _merge(fours, 4 * bits, np.uint64)
    return words


def _join(units: Sequence[_Words], width: int, out: Bytes) -> None:
    """Write [m] units of `width` bits side by side: bytes out[m * len(units) * width / 8]."""
    words = out.view("<u4").reshape(len(units[0]), -1)
    joined = scratch.empty(len(words), np.uint64)
    moved = scratch.empty(len(words), np.uint64)
    for column in range(words.shape[1]):
        target = joined
        for index, unit in enumerate(units):
            shift = index * width - 32 * column
            if not -width < shift < 32:
                continue
            move = np.left_shift if shift > 0 else np.right_shift
            move(unit, np.uint64(abs(shift)), out=target)
            if target is moved:
                joined |= moved
            target = moved
        np.copyto(words[:, column], joined, casting="unsafe")  # the lower half


def pack(codes: Bytes, bits: int, out: Bytes) -> None:
    """Write codes [n] of 1 to 6 or 8 bits as a bit stream into `out` [n * bits / 8].

    Both are contiguous and n is a multiple of 32; no code may have bits above `bits`, and the
    codes are overwritten.
    """
    if bits == 8:
        out[:] = codes
    elif bits == 1:
        out[:] = np.packbits(codes, bitorder="little")
    elif bits == 4:
        _pairs(codes, 4, out)
    elif bits < 4:
        pack(_pairs(codes, bits), 2 * bits, out)
    else:
        units = _eights(codes, bits).reshape(-1, 4).T  # four units end with a word of 32 bits
        _join(list(units), 8 * bits, out)


def pack_planes(codes: Bytes, bits: int, count: int, width: int, out: Bytes) -> None:
    """Write codes [n] of count * bits as `count` planes into `out` [n * count * bits / 8].

    For each `width` codes (16 or 32) the uppermost `bits` come first, then the next lower ones and
    so on, as count * width codes of `bits` bits. Both arrays are contiguous, n is a multiple of 32,
    and the codes are overwritten.
    """
    words = codes.view("<u8")
    mask = np.uint64(_BYTES * ((1 << bits) - 1))
    planes = []
    for shift in reversed(range(0, count * bits, bits)):
        plane = scratch.empty(words.shape, np.uint64) if shift else words
        np.right_shift(words, np.uint64(shift), out=plane)
        plane &= mask
        planes.append(plane.view(np.uint8))
    if bits == 3:
        _join([_eights(_pairs(plane, 3), 6) for plane in planes], 48, out)
        return
    columns = out.view({16: "<u2", 32: "<u4"}[width * bits]).reshape(-1, count)
    for column, plane in enumerate(planes):
        packed = scratch.empty(len(plane) * bits // 8)
        pack(plane, bits, packed)
        columns[:, column] = packed.view(columns.dtype)
