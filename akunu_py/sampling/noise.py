"""Gumbel noise keyed by (seed, position, token): a function, not a stream.

The choice at a position is argmax over tokens of logit - log E, with E exponential noise that
depends on the seed, the position and the token id alone (the Gumbel-max trick; Maddison et al.
2014, arXiv:1411.0030). So a token is the same whether it was chosen in a plain step or as the k-th
row of a pass that verifies a draft, and whoever knows the key can draw with the same noise
(drafter-invariant speculative decoding, arXiv:2408.07978).

The hash has two forms with equal bits: on the device for the whole vocabulary, on the host for any
one token. 32 hash bits are needed: with 24, on a vocabulary of 150,000, some token hits the lowest
cell in 0.9 % of the steps, and a token of no probability worth naming is drawn.
"""

import enum
import math

import mlx.core as mx

_MASK32 = 2**32 - 1
_MASK64 = 2**64 - 1
# An odd constant near 2**32 / golden ratio: neighbouring ids start far apart.
_TOKEN_STRIDE = 0x9E3779B1
# The largest float32 below 1: v stays inside (0, 1), so -log1p(-v) stays finite.
_BELOW_ONE = 1.0 - 2.0**-24


class Purpose(enum.IntEnum):
    """What a draw is for: purposes never share noise."""

    TARGET = 0
    DRAFT = 1
    ACCEPTANCE = 2
    RESIDUAL = 3


def _mix64(value: int) -> int:
    """Mix 64 bits by SplitMix64's finalizer, a bijection (Steele, Lea, Flood 2014)."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK64
    return value ^ (value >> 31)


def noise_key(seed: int, position: int, purpose: Purpose = Purpose.TARGET) -> tuple[int, int]:
    """Return the two 32-bit words that key the noise of one position.

    `position` counts tokens from the beginning of the prompt. The mixing is chained, so that
    (seed + 1, position) and (seed, position + 1) have nothing in common.
    """
    value = _mix64((seed + 0x9E3779B97F4A7C15) & _MASK64)
    value = _mix64((value ^ position) + 0x9E3779B97F4A7C15 & _MASK64)
    value = _mix64((value ^ purpose) + 0x9E3779B97F4A7C15 & _MASK64)
    return value & _MASK32, value >> 32


def _mix32(value: int) -> int:
    """Mix 32 bits by two multiplications with low bias (Wellons 2018, "lowbias32")."""
    value = (value ^ (value >> 16)) * 0x7FEB352D & _MASK32
    value = (value ^ (value >> 15)) * 0x846CA68B & _MASK32
    return value ^ (value >> 16)


def hash_token(key: tuple[int, int], token: int) -> int:
    """Return the 32 hash bits of one token: the host's form.

    For a fixed key this is a bijection of 32-bit ids: two tokens never share their bits.
    """
    value = _mix32((token * _TOKEN_STRIDE ^ key[0]) & _MASK32)
    return _mix32((value + key[1]) & _MASK32)


def exponential(bits: int) -> float:
    """Return E > 0, finite, for 32 hash bits: -log(1 - v), v the middle of the bits' cell."""
    return -math.log1p(-min((bits + 0.5) * 2.0**-32, _BELOW_ONE))


def gumbel(key: tuple[int, int], token: int) -> float:
    """Return the noise -log E of one token: the host's form of `gumbel_row`, up to rounding."""
    return -math.log(exponential(hash_token(key, token)))


def _mix32_device(value: mx.array) -> mx.array:
    value = (value ^ (value >> 16)) * mx.array(0x7FEB352D, mx.uint32)
    value = (value ^ (value >> 15)) * mx.array(0x846CA68B, mx.uint32)
    return value ^ (value >> 16)


def token_strides(vocabulary_size: int) -> mx.array:
    """Return what every hash of this vocabulary begins with, uint32 [vocab], to be kept."""
    return mx.arange(vocabulary_size, dtype=mx.uint32) * mx.array(_TOKEN_STRIDE, mx.uint32)


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
    return -mx.log(-mx.log1p(-mx.minimum(uniform, _BELOW_ONE)))
