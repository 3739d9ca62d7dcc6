"""The host's chain of transforms: against the device's, row by row, and its entries of equals."""

import math

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_lab.adjustment import Adjustment
from akunu_py.sampling.transforms import TransformChain
from akunu_py.system.errors import ConfigError
from akunu_py.values.generation_config import SamplingConfig
from akunu_py.values.option_fields import options_of
from akunu_py.values.types import GenerationConfig

SIZE = 200
RECENT = [5, 7, 5, 199, 0, 7, 7]
CONFIGS = [
    {},
    {"top_p": 0.8},
    {"min_p": 0.05},
    {"top_k": 7},
    {"top_k": SIZE},
    {"top_p": 0.9, "min_p": 0.02, "top_k": 20},
    {"repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.2},
    {"logit_bias": {3: 2.5, 7: -4.0}, "repetition_penalty": 0.7, "penalty_window": 3},
    {"logit_bias": {3: 9.5}, "top_p": 0.7, "min_p": 0.01, "top_k": 3, "presence_penalty": 1.0},
]


def test_every_option_is_among_the_configurations():
    changes = {one.name for one in options_of(SamplingConfig)} - {"temperature"}
    assert changes == set().union(*CONFIGS)


@pytest.mark.parametrize("fields", CONFIGS)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_a_row_is_adjusted_as_on_the_device(fields, temperature):
    config = GenerationConfig(temperature=temperature, **fields)
    chain = TransformChain.from_config(config, SIZE)
    adjustment = Adjustment.from_config(config)
    rng = np.random.default_rng(7)
    for _ in range(6):
        logits = rng.normal(0, 3, SIZE).astype(np.float32)
        logits[rng.integers(0, SIZE, 20)] = -math.inf
        device = chain.log_probabilities(mx.array(logits)[None], RECENT[-config.penalty_window :])
        expected = np.array(mx.softmax(device, axis=-1))[0]
        adjusted = adjustment.probabilities(logits, RECENT)
        np.testing.assert_allclose(adjusted, expected, rtol=2e-4, atol=1e-7)
        assert ((adjusted == 0) == (expected == 0)).all()
        assert abs(adjusted.sum() - 1) < 1e-12


def test_temperature_zero_is_one_hot_on_the_lowest_of_the_likeliest():
    row = Adjustment(temperature=0).probabilities(np.array([0.0, 2.0, 2.0, -1.0]))
    assert row.tolist() == [0, 1, 0, 0]


def test_temperature_zero_sees_penalties_first():
    adjustment = Adjustment(temperature=0, presence_penalty=1.5)
    assert adjustment.probabilities(np.array([0.0, 2.0, 1.0]), [1]).tolist() == [0, 0, 1]


def test_a_temperature_by_hand():
    row = Adjustment(temperature=0.5).probabilities(np.log([0.5, 0.25, 0.25]))
    # Squares: 1/4, 1/16, 1/16.
    assert row == pytest.approx([4 / 6, 1 / 6, 1 / 6], abs=1e-15)


def test_the_drafters_temperature_may_differ_from_the_targets():
    config = GenerationConfig(temperature=0.3, top_k=9)
    assert Adjustment.from_config(config, temperature=1.2) == Adjustment(temperature=1.2, top_k=9)


def test_ties_at_the_edge_of_top_k_go_to_the_lowest_ids():
    row = Adjustment(top_k=3).probabilities(np.array([1.0, 3.0, 2.0, 2.0, 2.0, 0.0]))
    assert np.flatnonzero(row).tolist() == [1, 2, 3]


@given(
    st.lists(st.sampled_from([-3.0, -1.0, 0.0, 0.5, 2.0]), min_size=1, max_size=6),
    st.integers(1, 40),
    st.floats(-6, -3.5),
    st.sampled_from([0.3, 0.6, 0.9, 0.97, 0.999, 1.0]),
    st.sampled_from([0.0, 0.001, 0.02, 0.3]),
    st.sampled_from([0.5, 1.0, 2.0]),
)
def test_an_entry_of_equals_is_as_many_tokens(listed, equals, tail, top_p, min_p, temperature):
    adjustment = Adjustment(top_p=top_p, min_p=min_p, temperature=temperature)
    short = adjustment.adjust(
        np.array([*listed, tail]), np.array([1.0] * len(listed) + [float(equals)])
    )
    long = adjustment.probabilities(np.array([*listed, *[tail] * equals]))
    np.testing.assert_allclose(
        np.concatenate((short[:-1], np.full(equals, short[-1]))), long, atol=1e-14
    )


def test_an_edge_within_an_entry_of_equals_is_refused():
    with pytest.raises(ConfigError, match="top-k ends within"):
        Adjustment(top_k=3).adjust(np.array([0.0, -1.0]), np.array([1.0, 5.0]))
    whole = Adjustment(top_k=6).adjust(np.array([0.0, -1.0]), np.array([1.0, 5.0]))
    assert whole[1] > 0
    only_listed = Adjustment(top_k=1).adjust(np.array([0.0, -1.0]), np.array([1.0, 5.0]))
    assert only_listed.tolist() == [1, 0]


@pytest.mark.parametrize(
    "row", [[], [-math.inf, -math.inf], [0.0, math.nan], [0.0, math.inf]], ids=str
)
def test_rows_without_a_distribution_are_refused(row):
    with pytest.raises(ConfigError, match="finite"):
        Adjustment().probabilities(np.array(row))


def test_fields_out_of_range_and_tokens_outside_the_row_are_refused():
    with pytest.raises(ConfigError, match="top_p"):
        Adjustment(top_p=0)
    with pytest.raises(ConfigError, match="outside 0 to 1"):
        Adjustment(logit_bias={2: 1.0}).probabilities(np.zeros(2))
    with pytest.raises(ConfigError, match="outside 0 to 1"):
        Adjustment(presence_penalty=1).probabilities(np.zeros(2), [2])


def test_what_changes_nothing_says_so():
    assert Adjustment().changes_nothing
    assert not Adjustment(temperature=0.9).changes_nothing
    assert not Adjustment(top_k=3).changes_nothing
    assert not Adjustment(logit_bias={0: 1}).changes_nothing
