"""Blocks to test re-layouts with, and MLX's layout read back bit by bit.

Nothing here uses the code under test, and nothing is quick.
"""

import numpy as np

from akunu_py.gguf import BLOCK_TYPES, TensorInfo

TYPES = {block.name: block for block in BLOCK_TYPES.values()}

_FIRST = "Q4_0 Q5_0 Q8_0 Q1_0 Q2_0 IQ4_NL IQ4_XS IQ3_S IQ3_XXS IQ2_S IQ2_XS IQ2_XXS IQ1_S"
HALVES = {
    **dict.fromkeys(_FIRST.split(), (0,)),
    **dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2)),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q6_K": (208,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
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
