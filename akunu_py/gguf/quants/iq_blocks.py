"""Blocks of the IQ types, whose codes are indices into grids of magnitudes, to codes.

As in `simple_blocks`: blocks to codes, scales and biases. Eight weights form a *unit*, which is
handled as one 64-bit word: a pattern of the grid, or signs. A magnitude's *rank* is its index in
the type's list. A weight that is not negative gets a code by its rank, a negative one the mirrored
code, `2 * zero - code`.

Source of the grids: the tables `iq2xxs_grid`, `iq2xs_grid`, `iq2s_grid`, `iq3xxs_grid`,
`iq3s_grid`, `iq1s_grid` and `kvalues_iq4nl` of ggml's `ggml-common.h`. iq_grids.bin has the rank of
each magnitude, in 2 or 3 bits of a little-endian bit stream.
"""

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.quants.simple_blocks import Bytes, Floats, Parts, field, half

_FILE = Path(__file__).with_name("iq_grids.bin")

IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""The 16 values of IQ4_NL's and IQ4_XS's codes."""

IQ2_MAGNITUDES = (8, 25, 43)
"""The magnitudes in the grids of IQ2_XXS, IQ2_XS and IQ2_S, by rank."""

IQ3_XXS_MAGNITUDES = (4, 12, 20, 28, 36, 44, 52, 62)
"""The magnitudes in the grid of IQ3_XXS. IQ3_S has 1, 3, 5 ... 15, IQ1_S has -1, 0, 1."""

_GRIDS = {
    "IQ2_XXS": (256, 8, 2),
    "IQ2_XS": (512, 8, 2),
    "IQ2_S": (1024, 8, 2),
    "IQ3_XXS": (256, 4, 3),
    "IQ3_S": (512, 4, 3),
    "IQ1_S": (2048, 8, 2),
}
"""Number of patterns, magnitudes in each, and bits of a magnitude, in the order of the file."""


@cache
def grid(name: str) -> NDArray[np.uint8]:
    """Return the grid of an IQ type as ranks of magnitudes, uint8 [patterns, 8 or 4], read-only.

    IQ1_M has the grid of IQ1_S. Raises KeyError for a type without a grid.
    """
    shape = _GRIDS[name]
    sizes = [math.prod(one) // 8 for one in _GRIDS.values()]
    start = sum(sizes[: list(_GRIDS).index(name)])
    stream = np.fromfile(_FILE, np.uint8, math.prod(shape) // 8, offset=start)
    each = np.unpackbits(stream, bitorder="little").reshape(shape)
    ranks: NDArray[np.uint8] = np.packbits(each, axis=2, bitorder="little")[..., 0]
    ranks.flags.writeable = False
    return ranks


@cache
def sign_bytes() -> NDArray[np.uint8]:
    """Return the 8 signs for each index of 7 bits, uint8 [128], read-only.

    Bit i set means that weight i is negative; the eighth bit makes the number of set bits even.
    """
    index = np.arange(128, dtype=np.uint8)
    parity = np.unpackbits(index[:, None], axis=1).sum(axis=1, dtype=np.uint8) & np.uint8(1)
    signs: NDArray[np.uint8] = index | parity << np.uint8(7)
    signs.flags.writeable = False
    return signs


Words = NDArray[np.uint64]

_EIGHT_ONES = 0x0101010101010101  # 1 in each of a unit's 8 codes


@cache
def _patterns(name: str, codes: tuple[int, ...]) -> NDArray[Any]:
    """Return the grid with codes in place of ranks, a word of 8 or 4 bytes per pattern."""
    table = np.array(codes, np.uint8)[grid(name)]
    return table.view("<u8" if table.shape[1] == 8 else "<u4")[:, 0]


@cache
def _sign_masks() -> Words:
    """Return for each byte of signs a word with 0xFF for negative weights, [256]."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    masks: Words = (bits * np.uint8(0xFF)).view("<u8")[:, 0]
    return masks


@dataclass(frozen=True, slots=True)
class Units:
    """The content of blocks of an IQ1, IQ2 or IQ3 type, independent of a lattice."""

    grid: str  # Name of the type with the grid.
    # Indices of patterns in the grid, [n, 32], or [n, 64] for patterns of 4 weights.
    index: NDArray[Any]
    signs: Bytes  # Bit i of a byte says that weight i of a unit is negative, uint8 [n, 32].
    d: Floats  # The block's scale, float32 [n, 1].
    steps: Bytes  # Integer scales of groups of 32 weights, [n, 8], or of 16, [n, 16].

    def codes(self, *of_rank: int) -> Words:
        """Return the code for each weight's rank, 8 bytes per word, uint64 [n, 32]."""
        words: Words = _patterns(self.grid, of_rank)[self.index].view("<u8")
        return words

    def write(self, positive: Words, zero: float, codes: Bytes) -> None:
        """Write codes [n, 256]: `positive`, mirrored at the zero point for negative weights.

        With m = 0xFF for a negative weight, 2 * zero - p = (p ^ m) + (m & 2 * zero + 1) in a byte.
        """
        words = _sign_masks()[self.signs]
        shift = words.view(np.uint8) & np.uint8(int(2 * zero + 1) & 0xFF)
        words ^= positive
        np.add(words.view(np.uint8), shift, out=codes)


def _packed_signs(words: NDArray[np.uint32]) -> Bytes:
    """Return the signs for the four 7-bit indices in each word, uint8 [n, 4 k]."""
    index = words[..., None] >> np.array([0, 7, 14, 21], np.uint32) & np.uint32(127)
    signs: Bytes = sign_bytes()[index].reshape(len(words), -1)
    return signs


def _nibbles(packed: Bytes) -> Bytes:
    """Return the low and the high nibble of each byte, side by side, [n, 2 k]."""
    both = np.empty((*packed.shape, 2), np.uint8)
    np.bitwise_and(packed, np.uint8(0x0F), out=both[..., 0])
    np.right_shift(packed, np.uint8(4), out=both[..., 1])
    return both.reshape(len(packed), -1)


_CODES = np.arange(16)
IQ2_VALUES: tuple[float, ...] = tuple(
    (17.5 * (_CODES >> 2 & 2) + 16.5 * (_CODES >> 1 & 2) + 9 * (_CODES & 2) - 43).tolist()
)
"""Values of IQ2's codes, in scales: sums of +-17.5, +-16.5 and +-9 by their upper bits."""


def _iq2(units: Units, codes: Bytes) -> Parts:
    """Decode w = d * (1/2 + step) / 4 * (+-8, 25 or 43), with codes of IQ2_VALUES.

    The opposite of a code is 14 - code.
    """
    units.write(units.codes(*map(IQ2_VALUES.index, IQ2_MAGNITUDES)), 7, codes)
    return (units.steps + np.float32(0.5)) * (units.d * np.float32(0.25)), None


def iq2_xxs(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode 8 bytes for 32 weights: four indices, four sign indices of 7 bits, a scale of 4."""
    pairs = field(blocks, 2, 66).reshape(-1, 8, 8)
    index = np.ascontiguousarray(pairs[..., :4]).reshape(-1, 32)
    words = np.ascontiguousarray(pairs[..., 4:]).view("<u4")[..., 0]
    steps = (words >> np.uint32(28)).astype(np.uint8)
    return _iq2(Units("IQ2_XXS", index, _packed_signs(words), half(blocks, 0), steps), codes)


def iq2_xs(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode words of an index of 9 bits and a sign index of 7; then nibbles of scales for 16."""
    words = field(blocks, 2, 66, "<u2")
    signs = sign_bytes()[words >> np.uint16(9)]
    steps = _nibbles(field(blocks, 66, 74))
    return _iq2(Units("IQ2_XS", words & np.uint16(511), signs, half(blocks, 0), steps), codes)


def iq2_s(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode low bytes of indices, signs, upper bits of each index, a nibble of scale for 16."""
    upper = field(blocks, 66, 74)[..., None] >> np.array([0, 2, 4, 6], np.uint8) & np.uint8(3)
    index = upper.reshape(-1, 32).astype(np.uint16) << np.uint16(8) | field(blocks, 2, 34)
    steps = _nibbles(field(blocks, 74, 82))
    return _iq2(Units("IQ2_S", index, field(blocks, 34, 66), half(blocks, 0), steps), codes)


def iq3_xxs(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode w = d * (1/2 + step) * (+-4 to 62) / 2, all of them even: the code is half, and 32.

    Behind the indices are, for 32 weights, four sign indices of 7 bits and a scale of 4.
    """
    words = field(blocks, 66, 98, "<u4")
    steps = (words >> np.uint32(28)).astype(np.uint8)
    units = Units("IQ3_XXS", field(blocks, 2, 66), _packed_signs(words), half(blocks, 0), steps)
    units.write(units.codes(*(32 + value // 2 for value in IQ3_XXS_MAGNITUDES)), 32, codes)
    return (units.steps + np.float32(0.5)) * units.d, None


def iq3_s(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode w = d * (1 + 2 * step) * (+-1, 3 ... 15)."""
    upper = np.unpackbits(field(blocks, 66, 74), axis=1, bitorder="little")
    index = upper.astype(np.uint16) << np.uint16(8) | field(blocks, 2, 66)
    steps = _nibbles(field(blocks, 106, 110))
    units = Units("IQ3_S", index, field(blocks, 74, 106), half(blocks, 0), steps)
    units.write(units.codes(*range(8, 16)), 7.5, codes)
    return (2 * steps + 1) * (units.d * 2), None


def iq1_s(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode w = d * (2 * step + 1) * (-1, 0 or 1, all shifted by 1/8 or all by -1/8)."""
    words = field(blocks, 34, 50, "<u2")
    upper = words[..., None] >> np.array([0, 3, 6, 9], np.uint16) & np.uint16(7)
    index = upper.reshape(-1, 32) << np.uint16(8) | field(blocks, 2, 34)
    steps = (words >> np.uint16(12) & np.uint16(7)).astype(np.uint8)
    codes.view("<u8")[:] = _patterns("IQ1_S", (0, 1, 2))[index]
    scales = (2 * steps + 1) * half(blocks, 0)
    lowest = np.where(words & np.uint16(0x8000), np.float32(-1.125), np.float32(-0.875))
    return scales, scales * lowest


def iq1_m(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode w = d * (2 * step + 1) / 8 * (odd numbers from -9 to 9); the code is (odd + 15) / 2.

    A block has low bytes of indices, nibbles of three upper bits and a sign, 1 where all weights of
    a unit are shifted by -1/8 and 0 where by +1/8, and scales with d in pieces. 7.5, the zero
    point, is 1.5 * 5: in bit planes of 2 bits the bias is -1.5 times the scale.
    """
    nibbles = _nibbles(field(blocks, 32, 48))
    index = (nibbles & np.uint8(7)).astype(np.uint16) << np.uint16(8) | field(blocks, 0, 32)
    words = field(blocks, 48, 56, "<u2")
    pieces = words & np.uint16(0xF000)
    pieces >>= np.array([12, 8, 4, 0], np.uint16)
    d = np.bitwise_or.reduce(pieces, axis=1, keepdims=True).view("<f2").astype(np.float32)
    steps = words[..., None] >> np.array([0, 3, 6, 9], np.uint16) & np.uint16(7)
    words = _patterns("IQ1_S", (4, 8, 12))[index]
    codes.view("<u8")[:] = words - (nibbles >> np.uint8(3)) * np.uint64(_EIGHT_ONES)
    return (2 * steps.reshape(-1, 16).astype(np.uint8) + 1) * (d * np.float32(0.25)), None


_IQ4_PAIRS = (np.array(IQ4_VALUES) + 128).astype(np.uint16)
_IQ4_PAIRS = (_IQ4_PAIRS[:, None] << np.uint16(8) | _IQ4_PAIRS).reshape(-1)
"""The codes of a byte's two nibbles, the low one's in the low byte."""


def _write_iq4(packed: Bytes, codes: Bytes) -> None:
    """Write codes [n, k * 32] of bytes [n, k * 16]: in each 16 the low nibbles come first."""
    words = _IQ4_PAIRS[packed].reshape(-1, 16)
    strips = codes.reshape(-1, 2, 16)
    np.copyto(strips[:, 0], words, casting="unsafe")
    words >>= np.uint16(8)
    np.copyto(strips[:, 1], words, casting="unsafe")


def iq4_nl(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode w = d * value."""
    _write_iq4(field(blocks, 2, 18), codes)
    return half(blocks, 0), None


def iq4_xs(blocks: Bytes, codes: Bytes) -> Parts:
    """Decode w = d * (step - 32) * value, a step's low nibbles in 4 bytes, upper bits in a word."""
    _write_iq4(field(blocks, 8, 136), codes)
    upper = field(blocks, 2, 4, "<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & np.uint16(3)
    steps = _nibbles(field(blocks, 4, 8)) | upper.astype(np.uint8) << np.uint8(4)
    return (steps.view(np.int8) - np.int8(32)) * half(blocks, 0), None
