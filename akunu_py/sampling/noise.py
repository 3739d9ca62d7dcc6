"""Gumbel noise keyed by (seed, position, token): a function, not a stream.

The choice at a position is argmax over tokens of logit - log E, with E exponential noise that
depends on the seed, the position and the token id alone (the Gumbel-max trick; Maddison et al.
2014, arXiv:1411.0030). So a token is the same whether it was chosen in a plain step or as the k-th
row of a pass that verifies a draft, and anyone who knows the key can draw with the same noise
(drafter-invariant speculative decoding, arXiv:2408.07978).

The hash has two forms with equal bits: on the device for the whole vocabulary, on the host for
given tokens (`keyed_noise.py`). It needs 32 bits: with 24, on a vocabulary of 150,000, some token
hits the lowest cell in 0.9 % of the steps, and a token of negligible probability is drawn.
"""

import mlx.core as mx

from akunu_py.values.keyed_noise import BELOW_ONE, TOKEN_STRIDE


def _mix32_device(value: mx.array) -> mx.array:
    value = (value ^ (value >> 16)) * mx.array(0x7FEB352D, mx.uint32)
    value = (value ^ (value >> 15)) * mx.array(0x846CA68B, mx.uint32)
    return value ^ (value >> 16)


def token_strides(vocabulary_size: int) -> mx.array:
    """Return the first term of every hash of this vocabulary, uint32 [vocab], for reuse."""
    return mx.arange(vocabulary_size, dtype=mx.uint32) * mx.array(TOKEN_STRIDE, mx.uint32)


def hash_row(key: mx.array, strides: mx.array) -> mx.array:
    """Return the 32 hash bits of every token, uint32 [vocab]; `key` is uint32 [2]."""
    value = _mix32_device(strides ^ key[0])
    return _mix32_device(value + key[1])


def gumbel_row(key: mx.array, strides: mx.array) -> mx.array:
    """Return the noise -log E of every token, float32 [vocab]."""
    return gumbel_of_bits(hash_row(key, strides))


def gumbel_of_bits(bits: mx.array) -> mx.array:
    """Return -log E for hash bits, uint32 of any shape, finite for all of them."""
    uniform = (bits.astype(mx.float32) + 0.5) * 2.0**-32
    return -mx.log(-mx.log1p(-mx.minimum(uniform, BELOW_ONE)))
