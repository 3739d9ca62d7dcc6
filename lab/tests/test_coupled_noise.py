"""Coupled draws: the law of choices made with shared noise, and how often two models agree.

What the coupled mode of drafting rests on. Seeds are fixed, so nothing here fails by chance.
"""

import math

import numpy as np
import pytest

from akunu_lab.theory import coupled_acceptance, match_acceptance
from akunu_py.values.keyed_noise import TOKEN_STRIDE, NoiseKey, Purpose, mix_bits

COUNT = 50_000


def noise(size, seed, purpose=Purpose.TARGET):
    """The noise of `size` tokens at many positions, float64 [COUNT, size]."""
    keys = np.array([NoiseKey.at(seed, position, purpose) for position in range(COUNT)], np.uint32)
    strides = np.arange(size, dtype=np.uint32) * np.uint32(TOKEN_STRIDE)
    return NoiseKey.gumbels_of(mix_bits(mix_bits(strides[None] ^ keys[:, :1]) + keys[:, 1:]))


def choices(row, gumbels):
    with np.errstate(divide="ignore"):
        return (np.log(row) + gumbels).argmax(axis=1)


PAIRS = [
    ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]),
    ([0.7, 0.1, 0.1, 0.1], [0.4, 0.4, 0.2, 0.0]),
    ([0.25, 0.25, 0.25, 0.25], [0.97, 0.01, 0.01, 0.01]),
    ([0.6, 0.4, 0.0], [0.0, 0.5, 0.5]),
    ([0.9, 0.05, 0.05], [0.9, 0.05, 0.05]),
]


@pytest.mark.parametrize("pair", range(len(PAIRS)))
def test_both_choose_a_token_as_often_as_the_formula_says(pair):
    """P(both choose i) = 1 / sum_k max(p_k / p_i, q_k / q_i), for each i within 4 sigma."""
    p, q = (np.array(row) for row in PAIRS[pair])
    shared = noise(len(p), 40 + pair)
    first, second = choices(p, shared), choices(q, shared)
    for token in range(len(p)):
        both = float(((first == token) & (second == token)).mean())
        if p[token] == 0 or q[token] == 0:
            assert both == 0
            continue
        expected = 1 / np.maximum(p / p[token], q / q[token]).sum()
        sigma = math.sqrt(expected * (1 - expected) / COUNT)
        assert abs(both - expected) < 4 * sigma
    agreed = float((first == second).mean())
    expected = coupled_acceptance(p, q)
    sigma = math.sqrt(expected * (1 - expected) / COUNT)
    assert abs(agreed - expected) <= 4 * sigma


def test_noise_of_another_purpose_agrees_as_independent_draws_do():
    p, q = (np.array(row) for row in PAIRS[0])
    agreed = (choices(p, noise(3, 9)) == choices(q, noise(3, 9, Purpose.DRAFT))).mean()
    expected = match_acceptance(p, q)
    assert abs(agreed - expected) < 4 * math.sqrt(expected * (1 - expected) / COUNT)
