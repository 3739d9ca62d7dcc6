"""The host's half of the keyed noise: keys, and the noise of given tokens.

The choice at a position is argmax over tokens of logit - log E, with E exponential noise that is a
function of (seed, position, purpose, token id). `sampling/sampler.py` has the device's half, with
equal bits. This module serves the rooms without MLX: noise of one token in plain Python, of many in
numpy, and the inverse from hash bits to the token.
"""

import enum
import math
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

_MASK32 = 2**32 - 1
_MASK64 = 2**64 - 1
# An odd constant near 2**32 / golden ratio, so that neighbouring ids start far apart.
TOKEN_STRIDE = 0x9E3779B1
# The largest float32 below 1: v stays inside (0, 1), so -log1p(-v) stays finite.
BELOW_ONE = 1.0 - 2.0**-24


class Purpose(enum.IntEnum):
    """The purpose of a draw; purposes never share noise."""

    TARGET = 0
    DRAFT = 1
    ACCEPTANCE = 2
    RESIDUAL = 3
    ORDER = 4
    PROPOSAL = 5


def _mix64(value: int) -> int:
    """Mix 64 bits by SplitMix64's finalizer, a bijection (Steele, Lea, Flood 2014)."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK64
    return value ^ (value >> 31)


def _mix32(value: int) -> int:
    """Mix 32 bits by two multiplications with low bias (Wellons 2018, "lowbias32")."""
    value = (value ^ (value >> 16)) * 0x7FEB352D & _MASK32
    value = (value ^ (value >> 15)) * 0x846CA68B & _MASK32
    return value ^ (value >> 16)


def exponential(bits: int) -> float:
    """Return E for 32 hash bits, -log(1 - v) with v the middle of their cell; finite, above 0."""
    return -math.log1p(-min((bits + 0.5) * 2.0**-32, BELOW_ONE))


def mix_bits(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Mix each 32-bit word as the hash of a token does, by "lowbias32"."""
    words = (words ^ (words >> np.uint32(16))) * np.uint32(0x7FEB352D)
    words = (words ^ (words >> np.uint32(15))) * np.uint32(0x846CA68B)
    return words ^ (words >> np.uint32(16))


def _unmix_bits(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Undo `mix_bits`: each of its steps is a bijection of 32-bit words."""
    words = (words ^ (words >> np.uint32(16))) * _INVERSE_SECOND
    words = words ^ (words >> np.uint32(15)) ^ (words >> np.uint32(30))
    words = words * _INVERSE_FIRST
    return words ^ (words >> np.uint32(16))


_INVERSE_FIRST = np.uint32(pow(0x7FEB352D, -1, 2**32))
_INVERSE_SECOND = np.uint32(pow(0x846CA68B, -1, 2**32))
_INVERSE_STRIDE = np.uint32(pow(TOKEN_STRIDE, -1, 2**32))


class NoiseKey(NamedTuple):
    """Two 32-bit words that key the noise of one position: a number for each token id.

    The hash bits of a token are 32; for one key they are a bijection of 32-bit ids, so two tokens
    never share their bits.
    """

    low: int
    high: int

    @classmethod
    def at(cls, seed: int, position: int, purpose: Purpose = Purpose.TARGET) -> Self:
        """Return the key of a position, which counts tokens from the beginning of the prompt.

        The mixing is chained, so that (seed + 1, position) and (seed, position + 1) have nothing in
        common.
        """
        value = _mix64((seed + 0x9E3779B97F4A7C15) & _MASK64)
        value = _mix64((value ^ position) + 0x9E3779B97F4A7C15 & _MASK64)
        value = _mix64((value ^ purpose) + 0x9E3779B97F4A7C15 & _MASK64)
        return cls(value & _MASK32, value >> 32)

    def bits(self, token: int) -> int:
        """Return the hash bits of one token: the host's form."""
        value = _mix32((token * TOKEN_STRIDE ^ self.low) & _MASK32)
        return _mix32((value + self.high) & _MASK32)

    def all_bits(self, tokens: NDArray[np.integer]) -> NDArray[np.uint32]:
        """Return the hash bits of each token: `bits` for many ids below 2**32."""
        strides = tokens.astype(np.uint32) * np.uint32(TOKEN_STRIDE)
        return mix_bits(mix_bits(strides ^ np.uint32(self.low)) + np.uint32(self.high))

    def tokens(self, bits: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the id that hashes to each of the given bits: the inverse of `all_bits`."""
        words = _unmix_bits(bits) - np.uint32(self.high)
        return (_unmix_bits(words) ^ np.uint32(self.low)) * _INVERSE_STRIDE

    def gumbel(self, token: int) -> float:
        """Return the noise -log E of one token: the host's form of `gumbel_row`, up to rounding."""
        return -math.log(exponential(self.bits(token)))

    def gumbels(self, tokens: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return the noise -log E of each token: `gumbel` for many, up to rounding."""
        return self.gumbels_of(self.all_bits(tokens))

    @staticmethod
    def uniforms_of(bits: NDArray[np.uint32]) -> NDArray[np.float64]:
        """Return v for hash bits: the middle of their cell of (0, 1), at most BELOW_ONE."""
        return np.minimum((bits.astype(np.float64) + 0.5) * 2.0**-32, BELOW_ONE)

    @classmethod
    def gumbels_of(cls, bits: NDArray[np.uint32]) -> NDArray[np.float64]:
        """Return -log E for hash bits, E = -log(1 - v); finite, and falling as the bits rise."""
        gumbels: NDArray[np.float64] = -np.log(-np.log1p(-cls.uniforms_of(bits)))
        return gumbels
