"""Blocks to codes on a coarser lattice than the type's own, for machines with little memory.

The values of most IQ types are not equidistant, so exact codes need many bits: 8 for a type of 4.25
bits. A fitted form is one or two bits per weight smaller. It raises the type's quantization error
by less than 5 %, but a model's perplexity by more; docs/gguf.md has measured figures.

No group is searched. Where groups differ only in scale, one step of the lattice serves all: the
step of least squared error, with values weighted by how often ggml's quantizer uses them on
normally distributed weights. Where 32 weights have two scales, a table has the fit for each pair of
their integer steps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.quants import simple_blocks
from akunu_py.gguf.quants.iq_blocks import (
    IQ2_MAGNITUDES,
    ONES,
    Units,
    Words,
    iq2_scales,
    iq3_xxs_scales,
    iq4_xs_scales,
    read_iq1_m,
    read_iq2_xxs,
    read_iq3_xxs,
    spread_iq4,
)
from akunu_py.gguf.quants.simple_blocks import Bytes, Floats, Parts, field, half

IQ4_ZERO = 31.625
_IQ4_STEP = np.float32(3.9736)
_IQ4_CODES = (0, 5, 11, 15, 19, 23, 26, 29, 32, 35, 38, 41, 45, 49, 54, 60)
_IQ3_XXS_STEP = np.float32(2 * 4.035)
_IQ2_XXS_STEP = np.float32(2 * 8.424)

_IQ2_SHARES = (0.64, 0.25, 0.11)  # frequencies of the magnitudes
_IQ1_EIGHTHS = (1, 7, 9)
_IQ1_SHARES = (0.50, 0.27, 0.23)


def iq4_nl(blocks: Bytes, codes: Bytes) -> Parts:
    """Fit the 16 values with 6 bits."""
    spread_iq4(field(blocks, 2, 18), _IQ4_CODES, codes)
    return half(blocks, 0) * _IQ4_STEP, None


def iq4_xs(blocks: Bytes, codes: Bytes) -> Parts:
    """Fit the 16 values with 6 bits."""
    spread_iq4(field(blocks, 8, 136), _IQ4_CODES, codes)
    return iq4_xs_scales(blocks) * _IQ4_STEP, None


def iq3_xxs(blocks: Bytes, codes: Bytes) -> Parts:
    """Fit +-4, 12 ... 52, 62 with the 16 odd multiples of 4.035."""
    units = read_iq3_xxs(blocks)
    units.write(units.codes(*range(8, 16)), 7.5, codes)
    return iq3_xxs_scales(units) * _IQ3_XXS_STEP, None


def iq2_xxs(blocks: Bytes, codes: Bytes) -> Parts:
    """Fit +-8, 25, 43 with odd multiples of 8.424."""
    units = read_iq2_xxs(blocks)
    units.write(units.codes(4, 5, 6), 3.5, codes)
    return iq2_scales(units) * _IQ2_XXS_STEP, None


@dataclass(frozen=True, slots=True)
class _PairFit:
    """The best lattices of 16 symmetric points for two halves of a group with separate scales."""

    steps: Floats  # Steps of the lattice by the two integer scales, float32 [scales ** 2].
    # Codes of the ranks 0, 1 and 2, by the two integer scales and further indices, with a code in
    # each byte; three arrays of uint64 [scales ** 2 * k].
    codes: tuple[Words, Words, Words]

    def codes_of(self, ranks: Words, index: NDArray[np.intp]) -> Words:
        """Return the codes of ranks [n, 32], 8 bytes a word, by the `index` of each unit."""
        words, *others = (table[index] for table in self.codes)
        for rank, other in enumerate(others):
            mask = (ranks >> np.uint64(rank) & ONES) * np.uint64(0xFF)
            words ^= (words ^ other) & mask
        return words


def _best_levels(
    scales: NDArray[Any], magnitudes: tuple[int, ...], shares: tuple[float, ...]
) -> tuple[Floats, Words]:
    """Return for pairs of scales the steps [s, s] and levels beyond zero, 0-7, [s, s, 2, 3]."""
    values = scales[:, None] * np.array(magnitudes)
    top = values.max(axis=1)
    # The best lattice may end below the largest value, or beyond it.
    stretch = np.linspace(0.6, 1.3, 281) / 7.5
    steps = np.maximum(top[:, None], top)[..., None] * stretch  # [s, s, candidates]
    levels = np.clip(np.floor(values[:, None, None] / steps[..., None]), 0, 7)
    errors = ((levels + 0.5) * steps[..., None] - values[:, None, None]) ** 2 @ np.array(shares)
    best = (errors + errors.swapaxes(0, 1)).argmin(axis=2)[..., None]
    first = np.take_along_axis(levels, best[..., None], axis=2)[:, :, 0].astype(np.uint64)
    return (
        np.take_along_axis(steps, best, axis=2)[..., 0].astype(np.float32),
        np.stack((first, first.swapaxes(0, 1)), axis=2),
    )


def _pair_fit(steps: Floats, codes: Words) -> _PairFit:
    low, middle, high = codes.reshape(-1, 3).T * ONES
    return _PairFit(steps.reshape(-1), (low, middle, high))


@cache
def _iq2_fit() -> _PairFit:
    """Return codes by scale, scale and half of the group."""
    steps, levels = _best_levels(np.arange(16) + 0.5, IQ2_MAGNITUDES, _IQ2_SHARES)
    return _pair_fit(steps, levels + np.uint64(8))


@cache
def _iq1_fit() -> _PairFit:
    """Return codes by scale, scale, half of the group and direction of the shift.

    -1, 0, 1 shifted by 1/8 are -7, 1 and 9 eighths; by -1/8 they are -9, -1 and 7.
    """
    steps, levels = _best_levels(2 * np.arange(8) + 1, _IQ1_EIGHTHS, _IQ1_SHARES)
    one, seven, nine = np.moveaxis(levels, 3, 0)
    above, below = np.uint64(8), np.uint64(7)
    up = np.stack((below - seven, above + one, above + nine), axis=3)
    down = np.stack((below - nine, below - one, above + seven), axis=3)
    return _pair_fit(steps, np.stack((up, down), axis=3))


def _pairs_and_units(units: Units, scales: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the index of each group's pair of scales [n, 8], and of each unit's half [n, 32]."""
    pairs = units.steps[:, ::2].astype(np.intp) * scales + units.steps[:, 1::2]
    halves = pairs.repeat(4, axis=1) * 2
    halves += np.tile(np.array([0, 0, 1, 1]), 8)
    return pairs, halves


def iq2_16(read: Callable[[Bytes], Units], blocks: Bytes, codes: Bytes) -> Parts:
    """Fit IQ2_XS or IQ2_S, whose scales serve 16 weights, with 4 bits in groups of 32."""
    units = read(blocks)
    fit = _iq2_fit()
    pairs, index = _pairs_and_units(units, 16)
    units.write(fit.codes_of(units.codes(0, 1, 2), index), 7.5, codes)
    return fit.steps[pairs] * (units.d * np.float32(0.25)), None


def iq1_m(blocks: Bytes, codes: Bytes) -> Parts:
    """Fit the odd eighths of IQ1_M, whose scales serve 16 weights, with 4 bits in groups of 32."""
    units = read_iq1_m(blocks)
    fit = _iq1_fit()
    pairs, index = _pairs_and_units(units, 8)
    codes.view("<u8")[:] = fit.codes_of(units.codes(0, 1, 2), index * 2 + units.signs)
    return fit.steps[pairs] * (units.d * np.float32(0.125)), None


def q6_k(blocks: Bytes, codes: Bytes) -> Parts:
    """Quantize Q6_K anew to 8 bits in groups of 32.

    A quarter of the larger of the two scales is the step. Its 16 weights stay exact, and the errors
    of the others are at most an eighth of that scale.
    """
    scales, _ = simple_blocks.q6_k(blocks, codes)
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
