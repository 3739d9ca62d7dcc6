"""The host's noise for many tokens: equal to the form for one, and the way back from its bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_py.values.keyed_noise import NoiseKey, Purpose

SEEDS = st.integers(0, 2**64 - 1)
POSITIONS = st.integers(0, 2**31)
IDS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20)


@given(SEEDS, POSITIONS, st.sampled_from(Purpose), IDS)
def test_many_tokens_hash_as_one_does(seed, position, purpose, ids):
    key = NoiseKey.at(seed, position, purpose)
    array = np.array(ids, dtype=np.uint32)
    assert key.all_bits(array).tolist() == [key.bits(token) for token in ids]
    assert key.gumbels(array) == pytest.approx([key.gumbel(token) for token in ids], rel=1e-12)


@given(SEEDS, POSITIONS, IDS)
def test_bits_lead_back_to_their_token(seed, position, ids):
    key = NoiseKey.at(seed, position)
    array = np.array(ids, dtype=np.uint32)
    assert key.tokens(key.all_bits(array)).tolist() == ids
    assert key.all_bits(key.tokens(array)).tolist() == ids


def test_noise_is_finite_and_falls_as_bits_rise():
    bits = np.array([0, 1, 2, 1000, 2**31, 2**32 - 300, 2**32 - 1], dtype=np.uint32)
    noise = NoiseKey.gumbels_of(bits)
    assert np.isfinite(noise).all()
    assert (np.diff(noise) < 0).all()
