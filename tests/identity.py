"""When two token sequences count as the same text of one model.

The models compared here are llamas in float32, whose attention sees all rows. On Linux with MLX's CPU
build and its own BLAS a pass over several rows gives each of their rows the bits of a pass over one, at
any length of the text, so nothing less than equality will do. Elsewhere kernels may sum in another order,
and a near-tie may fall either way: there the first difference must be one, or the test fails. Of other
models (sliding windows, latent attention, recurrent states) `test_bit_equal_rows` says which differ.
"""

import sys

import mlx.core as mx
import numpy as np

from akunu_py.sampling.sampler import gumbel_row, token_strides
from akunu_py.sampling.transforms import TransformChain
from akunu_py.values.keyed_noise import NoiseKey

# Between the two best scores (natural logarithms). float16's spacing near 16 is 0.016.
NEAR_TIE = 0.05


def rows_are_exact():
    return sys.platform == "linux" and mx.default_device() == mx.Device(mx.cpu)


def margin(logits, before, config, seed):
    """Distance of the two best scores, noise included, at the position after `before`."""
    size = logits.shape[-1]
    chain = TransformChain.from_config(config, size)
    row = chain.log_probabilities(mx.array(logits)[None], before[-chain.window :])[0]
    if not chain.greedy:
        key = mx.array(NoiseKey.at(seed, len(before)), dtype=mx.uint32)
        row = row + gumbel_row(key, token_strides(size))
    best = np.sort(np.array(row.astype(mx.float32)))[-2:]
    return float(best[1] - best[0])


def assert_same_tokens(found, expected, *, logits, prompt, config, seed, about=""):
    """Fail unless the sequences are equal, or differ first at a near-tie where that can happen.

    `logits` is a function of token ids, as `Engine.logits` or `Session.logits`.
    """
    found, expected = list(found), list(expected)
    if found == expected:
        return
    assert not rows_are_exact(), f"{about}: {found} is not {expected}"
    pairs = zip(found, expected, strict=False)
    index = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(found), len(expected)))
    before = [*prompt, *expected[:index]]
    distance = margin(logits(before)[-1], before, config, seed)
    assert distance < NEAR_TIE, f"{about}: token {index} differs at a margin of {distance:.3f}"
