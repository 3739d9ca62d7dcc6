"""The keyed noise: equal bits on host and device, the right law, no correlation, a sane tail."""

import math

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_py.sampling.sampler import gumbel_of_bits, gumbel_row, hash_row, token_strides
from akunu_py.values.keyed_noise import NoiseKey, Purpose, exponential

SEEDS = st.integers(0, 2**64 - 1)
POSITIONS = st.integers(0, 2**31)


def device_key(key):
    return mx.array(key, dtype=mx.uint32)


def host_hash(k0, k1, tokens):
    """The hash in numpy, for many keys or many tokens at once."""

    def mix(x):
        x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
        x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
        return x ^ (x >> np.uint32(16))

    with np.errstate(over="ignore"):
        return mix(mix(tokens * np.uint32(0x9E3779B1) ^ k0) + k1)


def keys(seed, count):
    pairs = np.array([NoiseKey.at(seed, position) for position in range(count)], dtype=np.uint32)
    return pairs[:, 0], pairs[:, 1]


@given(SEEDS, POSITIONS, st.sampled_from(Purpose))
def test_device_and_host_hash_to_the_same_bits(seed, position, purpose):
    key = NoiseKey.at(seed, position, purpose)
    device = np.array(hash_row(device_key(key), token_strides(4096)))
    assert [int(bits) for bits in device[::97]] == [key.bits(t) for t in range(0, 4096, 97)]


def test_equal_bits_over_a_large_vocabulary():
    key = NoiseKey.at(11, 12)
    device = np.array(hash_row(device_key(key), token_strides(150_000)))
    host = host_hash(np.uint32(key[0]), np.uint32(key[1]), np.arange(150_000, dtype=np.uint32))
    np.testing.assert_array_equal(device, host)
    assert len(np.unique(device)) == 150_000  # a bijection: no two tokens share their noise


def test_device_noise_is_the_host_noise_up_to_rounding():
    key = NoiseKey.at(1, 2)
    device = np.array(gumbel_row(device_key(key), token_strides(5000)))
    np.testing.assert_allclose(device, [key.gumbel(t) for t in range(5000)], atol=2e-5)


def test_the_ends_of_the_range_are_finite():
    assert 0 < exponential(0) < 2e-10
    assert math.isfinite(exponential(2**32 - 1))
    assert exponential(2**32 - 1) > 16
    # The same cells on the device; float32 would round the topmost to 1 and E to infinity.
    cells = [0, 1, 2**31, 2**32 - 200, 2**32 - 1]
    noise = np.array(gumbel_of_bits(mx.array(cells, dtype=mx.uint32)))
    np.testing.assert_allclose(noise, [-math.log(exponential(cell)) for cell in cells], atol=1e-2)


def test_purposes_positions_and_seeds_have_keys_of_their_own():
    found = {
        NoiseKey.at(seed, position, purpose)
        for seed in range(20)
        for position in range(200)
        for purpose in Purpose
    }
    assert len(found) == 20 * 200 * len(Purpose)


def chi_square(observed, expected):
    return float(((observed - expected) ** 2 / expected).sum())


def draw_many(logits, seed, count):
    """Draw at `count` positions with host hashes (equal to the device's, see above)."""
    k0, k1 = keys(seed, count)
    tokens = np.arange(len(logits), dtype=np.uint32)
    bits = host_hash(k0[:, None], k1[:, None], tokens[None])
    uniform = (bits.astype(np.float64) + 0.5) * 2.0**-32
    return (logits - np.log(-np.log1p(-uniform))).argmax(axis=1)


def test_frequencies_are_the_softmax():
    logits = np.array([0.0, 1.0, 2.0, -1.0, 0.5, -3.0])
    probabilities = np.exp(logits) / np.exp(logits).sum()
    count = 200_000
    observed = np.bincount(draw_many(logits, 5, count), minlength=6)
    # 5 degrees of freedom: above 25.7 in one case of 10,000 (fixed seed, so never by chance here).
    assert chi_square(observed, probabilities * count) < 25.7


@pytest.mark.slow
def test_consecutive_positions_are_independent():
    drawn = draw_many(np.zeros(4), 9, 200_001)
    for lag in (1, 2, 7):
        pairs = np.bincount(drawn[:-lag] * 4 + drawn[lag:], minlength=16)
        # 15 degrees of freedom, one in 10,000: 44.3.
        assert chi_square(pairs, np.full(16, (len(drawn) - lag) / 16)) < 44.3


@pytest.mark.slow
def test_neighbouring_seeds_are_independent():
    logits = np.zeros(4)
    first, second = draw_many(logits, 100, 100_000), draw_many(logits, 101, 100_000)
    pairs = np.bincount(first * 4 + second, minlength=16)
    assert chi_square(pairs, np.full(16, 100_000 / 16)) < 44.3


@pytest.mark.slow
def test_the_noise_of_one_token_over_positions_is_uniform():
    k0, k1 = keys(3, 200_000)
    bits = host_hash(k0, k1, np.uint32(1234))
    cells = np.bincount(bits >> np.uint32(26), minlength=64)
    # 63 degrees of freedom, one in 10,000: 111.
    assert chi_square(cells, np.full(64, 200_000 / 64)) < 111
    for bit in range(32):
        share = ((bits >> np.uint32(bit)) & np.uint32(1)).mean()
        assert abs(share - 0.5) < 5 * 0.5 / math.sqrt(200_000)


def unmix(value):
    """Invert one 32-bit mix: multiplicative inverses, and xor-shifts undone."""
    inverse_a, inverse_b = pow(0x7FEB352D, -1, 2**32), pow(0x846CA68B, -1, 2**32)
    with np.errstate(over="ignore"):
        value = value ^ (value >> np.uint32(16))
        value = value * np.uint32(inverse_b)
        value = value ^ (value >> np.uint32(15)) ^ (value >> np.uint32(30))
        value = value * np.uint32(inverse_a)
        return value ^ (value >> np.uint32(16))


@pytest.mark.slow
@pytest.mark.parametrize("tail_tokens", [1, 149_999])
def test_a_tail_of_a_billionth_is_never_drawn_in_a_million_steps(tail_tokens):
    """All tokens below 1e-9 together, 150,000 entries, a million steps: expected 0.001 draws.

    A tail token of probability q beats the head only if its E is below q * E_head. E_head stays
    below 23, so only the lowest hash cells can do it; the hash is a bijection of the token for
    each key, so the tokens in those cells are found by inverting it instead of hashing 1.5e11.
    """
    steps = 1_000_000
    probability = 1e-9 / tail_tokens
    rng = np.random.default_rng(0)
    # What noise_key gives is tested above; its words are uniform, so a million are drawn at once.
    k0, k1 = rng.integers(0, 2**32, (2, steps), dtype=np.uint32)
    head = host_hash(k0, k1, np.uint32(0)).astype(np.float64)
    head_e = -np.log1p(-np.minimum((head + 0.5) * 2.0**-32, 1 - 2.0**-24))
    inverse_stride = np.uint32(pow(0x9E3779B1, -1, 2**32))
    cells = math.ceil(probability * 23 * 2**32) + 1
    drawn = 0
    for cell in range(cells):
        with np.errstate(over="ignore"):
            token = (unmix(unmix(np.uint32(cell)) - k1) ^ k0) * inverse_stride
        assert (host_hash(k0[:9], k1[:9], token[:9]) == cell).all()
        wins = exponential(cell) < probability * head_e
        drawn += int((wins & (token > 0) & (token <= tail_tokens)).sum())
    assert drawn <= 1  # two or more: 5e-7


def key_for(cell, token):
    """A key with which the token's hash is the cell: the hash inverted, for one of its words."""
    k1 = np.uint32(0x12345678)
    with np.errstate(over="ignore"):
        k0 = unmix(unmix(np.uint32(cell)) - k1) ^ (np.uint32(token) * np.uint32(0x9E3779B1))
    assert host_hash(k0, k1, np.uint32(token)) == cell
    return int(k0), int(k1)


@pytest.mark.slow
def test_the_tail_on_the_device_draws_the_head():
    """The device's own float path on whole rows: a garbage token is never drawn.

    On 300 rows of a reply, and on those in which the head has the least noise there is or a tail
    token the most: rows that chance brings once in millions.
    """
    size = 150_000
    tail = math.log(1e-9 / (size - 1))
    row = mx.concatenate([mx.array([0.0]), mx.full((size - 1,), tail)])
    strides = token_strides(size)
    draw = mx.compile(lambda key: (row + gumbel_row(key, strides)).argmax())
    ends = [key_for(2**32 - 1 - distance, 0) for distance in (*range(8), 127, 128, 255, 256)]
    ends += [key_for(cell, token) for cell in range(4) for token in (1, 70_001, size - 1)]
    for key in [*ends, *(NoiseKey.at(4, position) for position in range(300))]:
        assert draw(device_key(key)).item() == 0
