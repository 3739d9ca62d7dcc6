"""Blocks to test re-layouts with, and MLX's layout read back bit by bit.

Nothing here uses the code under test, and nothing is quick.
"""

import numpy as np

from akunu_py.gguf import BLOCK_TYPES, TensorInfo
from akunu_py.gguf.quants.iq_blocks import grid

TYPES = {block.name: block for block in BLOCK_TYPES.values()}

HALVES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
    "Q1_0": (0,),
    "Q2_0": (0,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
    "IQ3_S": (0,),
    "IQ3_XXS": (0,),
    "IQ2_S": (0,),
    "IQ2_XS": (0,),
    "IQ2_XXS": (0,),
    "IQ1_S": (0,),
    "IQ1_M": (-1,),
}
"""Where each type's block keeps float16 numbers; -1: in the top nibbles of the last four words."""

FOUR_BIT_FLOATS = ("MXFP4", "NVFP4")
QUANTIZED = (*HALVES, *FOUR_BIT_FLOATS)


def info_of(kind, rows, cols):
    block = TYPES[kind]
    nbytes = rows * cols // block.block_elements * block.block_bytes
    return TensorInfo("blk.0.attn_q.weight", block, (cols, rows), 0, nbytes)


def set_halves(kind, raw, values):
    """Write float16 `values` [k] in turn where the blocks of `raw` keep such numbers."""
    blocks = raw.reshape(-1, TYPES[kind].block_bytes)
    for turn, start in enumerate(HALVES[kind]):
        chosen = np.resize(np.roll(np.asarray(values, np.float16), turn), len(blocks))
        if start >= 0:
            blocks[:, start : start + 2] = chosen[:, None].view(np.uint8)
            continue
        for word in range(4):
            nibble = (chosen.view(np.uint16) >> (4 * word) & 15).astype(np.uint8)
            place = blocks[:, 49 + 2 * word]
            place[:] = place & 0x0F | nibble << 4


def random_blocks(kind, rows, cols, seed, values=None):
    """Any bytes, but scales that are finite: `values`, or of one order of magnitude."""
    generator = np.random.default_rng(seed)
    info = info_of(kind, rows, cols)
    raw = generator.integers(0, 256, (rows, info.row_bytes), np.uint8)
    blocks = raw.reshape(-1, info.type.block_bytes)
    if kind == "MXFP4":
        blocks[:, 0] = blocks[:, 0] % 20 + 110
    elif kind == "NVFP4":
        scales = blocks[:, :4]
        scales[scales & 0x7F == 0x7F] = 0
    else:
        if values is None:
            values = generator.uniform(0.001, 0.01, 64) * generator.choice([-1, 1], 64)
        set_halves(kind, raw, values)
    return info, raw


def codes_of(matrix):
    """Codes as MLX reads them: `bits` at a time from the low end of a row."""
    packed = np.ascontiguousarray(matrix.packed).view(np.uint8)
    stream = np.unpackbits(packed, axis=1, bitorder="little")
    count = stream.shape[1] // matrix.bits
    codes = stream[:, : count * matrix.bits].reshape(len(stream), count, matrix.bits)
    return codes @ (1 << np.arange(matrix.bits))


def stored_weights(matrix):
    """Codes times scales plus biases in float64, [rows, stored]; mode "affine" alone."""
    scales = np.repeat(matrix.scales.astype(np.float64), matrix.group_size, axis=1)
    biases = np.repeat(matrix.biases.astype(np.float64), matrix.group_size, axis=1)
    return codes_of(matrix) * scales + biases


def weights_of(matrix):
    """The weights of a matrix in mode "affine", float64 [rows, cols]."""
    return joined_planes(matrix, stored_weights(matrix))


def joined_planes(matrix, stored):
    """The weights [rows, cols] of which `stored` holds a part in each plane."""
    factors = np.array(matrix.multipliers or (1.0,))
    parts = stored.reshape(len(stored), -1, len(factors), matrix.group_size // len(factors))
    return (parts * factors[:, None]).sum(axis=2).reshape(len(stored), -1)


def magnitudes_of(matrix):
    """|scale * code| + |bias| of each weight: what a relative error of its parts can move."""
    scales = np.repeat(np.abs(matrix.scales.astype(np.float64)), matrix.group_size, axis=1)
    biases = np.repeat(np.abs(matrix.biases.astype(np.float64)), matrix.group_size, axis=1)
    stored = codes_of(matrix) * scales + biases
    return joined_planes(matrix, stored)


IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])
_IQ2 = np.array([8, 25, 43])
_IQ3_XXS = np.array([4, 12, 20, 28, 36, 44, 52, 62])


def quantize_simply(kind, weights):
    """Quantize normal weights [rows, 256 k] of deviation 1 to an IQ type, plainly but sensibly.

    One d for all blocks; of each group the scale whose grid or values come closest is taken.
    """
    rows, cols = weights.shape
    info = info_of(kind, rows, cols)
    raw = np.zeros((rows, info.row_bytes), np.uint8)
    blocks = raw.reshape(-1, info.type.block_bytes)
    if kind == "IQ4_NL":
        groups = weights.reshape(-1, 32)
        d = (np.abs(groups).max(axis=1, keepdims=True) / 120).astype(np.float16)
        index = np.abs(groups[..., None] / d[..., None].astype(float) - IQ4_VALUES).argmin(axis=2)
        blocks[:, :2] = d.view(np.uint8)
        blocks[:, 2:] = index[:, :16] | index[:, 16:] << 4
        return info, raw
    d, steps, index, signs = _grid_choice(kind, weights.reshape(len(blocks), 32, 8))
    set_halves(kind, raw, [d])
    _WRITERS[kind](blocks, steps, index, signs)
    return info, raw


def _grid_choice(kind, units):
    """d, then steps [n, groups], indices [n, 32 or 64] and signs [n, 32, 8] of units [n, 32, 8]."""
    ranks = grid("IQ1_S" if kind == "IQ1_M" else kind)
    table = {"IQ3_XXS": _IQ3_XXS, "IQ1_M": np.array([-1, 0, 1])}.get(kind, _IQ2)[ranks]
    length = table.shape[1]
    per_group = 4 if kind in ("IQ2_XXS", "IQ3_XXS") else 2
    choices = 8 if kind == "IQ1_M" else 16
    d = {"IQ3_XXS": 0.0056, "IQ1_M": 0.2}.get(kind, 0.016)
    d = float(np.float16(d))
    count = len(units)
    groups = units.reshape(count * 32 // per_group, -1, length)
    signs = units < 0
    if kind in ("IQ2_XXS", "IQ2_XS", "IQ3_XXS"):  # seven signs are stored, the eighth makes it even
        odd = signs.sum(axis=2) % 2 == 1
        smallest = np.abs(units).argmin(axis=2)
        place = np.zeros_like(signs)
        np.put_along_axis(place, smallest[..., None], odd[..., None], axis=2)
        signs = signs ^ place
    target = np.where(signs, -units, units).reshape(groups.shape)
    shifts = [0.0]
    if kind == "IQ1_M":
        target, shifts = groups, [0.125, -0.125]
    best = None
    for step in range(choices):
        scale = {"IQ3_XXS": d * (0.5 + step) * 0.5, "IQ1_M": d * (2 * step + 1)}.get(
            kind, d * (0.5 + step) * 0.25
        )
        errors, picks = [], []
        for shift in shifts:
            values = scale * (table + shift)
            distance = (values**2).sum(axis=1) - 2 * target @ values.T
            picks.append(distance.argmin(axis=2))
            errors.append(distance.min(axis=2))
        down = np.argmin(errors, axis=0)
        error = np.min(errors, axis=0).sum(axis=1)
        pick = np.where(down == 0, picks[0], picks[-1])
        if best is None:
            best = [error, np.zeros(len(groups), int), pick, down]
        better = error < best[0]
        best = [
            np.where(better, error, best[0]),
            np.where(better, step, best[1]),
            np.where(better[:, None], pick, best[2]),
            np.where(better[:, None], down, best[3]),
        ]
    _, steps, index, down = best
    if kind == "IQ1_M":
        signs = down.reshape(count, 32)
    return d, steps.reshape(count, -1), index.reshape(count, -1), signs


def _sign_words(steps, signs):
    """Four signs of 7 bits and a step of 4 in each word."""
    bits = np.packbits(signs, axis=2, bitorder="little")[..., 0].astype(np.uint32) & 127
    four = bits.reshape(len(bits), 8, 4)
    words = steps.astype(np.uint32) << 28
    for place in range(4):
        words |= four[..., place] << (7 * place)
    return words


def _write_iq3_xxs(blocks, steps, index, signs):
    blocks[:, 2:66] = index
    blocks[:, 66:98] = _sign_words(steps, signs).view(np.uint8)


def _write_iq2_xxs(blocks, steps, index, signs):
    pairs = np.empty((len(blocks), 8, 8), np.uint8)
    pairs[..., :4] = index.reshape(-1, 8, 4)
    pairs[..., 4:] = _sign_words(steps, signs)[..., None].view(np.uint8)
    blocks[:, 2:66] = pairs.reshape(-1, 64)


def _write_iq2_xs(blocks, steps, index, signs):
    bits = np.packbits(signs, axis=2, bitorder="little")[..., 0].astype(np.uint16) & 127
    blocks[:, 2:66] = (index.astype(np.uint16) | bits << 9).view(np.uint8)
    blocks[:, 66:74] = steps[:, ::2] | steps[:, 1::2] << 4


def _write_iq2_s(blocks, steps, index, signs):
    blocks[:, 2:34] = index & 255
    blocks[:, 34:66] = np.packbits(signs, axis=2, bitorder="little")[..., 0]
    upper = (index >> 8).reshape(-1, 8, 4)
    blocks[:, 66:74] = (upper << np.array([0, 2, 4, 6])).sum(axis=2)
    blocks[:, 74:82] = steps[:, ::2] | steps[:, 1::2] << 4


def _write_iq1_m(blocks, steps, index, signs):
    blocks[:, :32] = index & 255
    nibbles = index >> 8 | signs << 3
    blocks[:, 32:48] = nibbles[:, ::2] | nibbles[:, 1::2] << 4
    words = (steps.reshape(-1, 4, 4) << np.array([0, 3, 6, 9])).sum(axis=2).astype(np.uint16)
    tops = blocks[:, 48:56].copy().view(np.uint16) & 0xF000
    blocks[:, 48:56] = (words | tops).view(np.uint8)


_WRITERS = {
    "IQ3_XXS": _write_iq3_xxs,
    "IQ2_XXS": _write_iq2_xxs,
    "IQ2_XS": _write_iq2_xs,
    "IQ2_S": _write_iq2_s,
    "IQ1_M": _write_iq1_m,
}
