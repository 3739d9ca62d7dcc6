"""What products with packed weights read of x: AVX2 and AVX-512 take whole numbers of 16 bits."""

import numpy as np

from akunu_py.cpu import load_kernels, processor

BLOCK = 32

IN_WHOLES = "x86-64-v3" in processor.levels() and load_kernels().level not in {
    "", "x86-64", "x86-64-v2"
}  # fmt: skip

LEEWAY = 24 if IN_WHOLES else 1
"""How many times as far results may be from those with float32 products. Such a number is wrong by
2^-16 of the largest in its block, a float32 by 2^-24 of itself; sums of many lie closer together.
A wrong scale, order or weight is hundreds of times as far."""


def as_read(x):
    """Return x in float64, [..., columns], as such a product reads it on this machine.

    There x[k] = step * number, with a step for each block of columns of a row, of which the
    largest number is 32,767. Elsewhere, and where a row ends within a block, x is read as it is.
    """
    x = np.array(x, np.float32)
    if not IN_WHOLES or x.shape[-1] % BLOCK:
        return x.astype(np.float64)
    blocks = x.reshape(*x.shape[:-1], -1, BLOCK)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    numbers = np.rint(blocks * (np.float32(32767) / np.maximum(largest, np.float32(1e-30))))
    return (numbers.astype(np.float64) * (largest / np.float32(32767))).reshape(x.shape)
