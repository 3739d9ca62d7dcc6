"""The grids of the IQ types: the pattern of 8 or 4 magnitudes for each index of a block.

Source: the tables `iq2xxs_grid`, `iq2xs_grid`, `iq2s_grid`, `iq3xxs_grid`, `iq3s_grid`,
`iq1s_grid` and `kvalues_iq4nl` of ggml's `ggml-common.h`. iq_grids.bin has the rank of each
magnitude, in 2 or 3 bits of a little-endian bit stream.
"""

import math
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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
