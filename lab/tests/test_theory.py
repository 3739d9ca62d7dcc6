"""The closed formulas: the digits Leviathan et al. 2023 (arXiv:2211.17192) print, and their laws."""

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from akunu_lab.theory import (
    PassTime,
    acceptance,
    best_num_draft_tokens,
    coupled_acceptance,
    expected_accepted,
    expected_tokens,
    guaranteed_factor,
    match_acceptance,
    memory_access_factor,
    operations_factor,
    oracle_bound,
    rejection_sampling_acceptance,
    walltime_factor,
)
from akunu_py.decoding.pass_costs import roofline
from akunu_py.system.errors import ConfigError

ALPHAS = st.floats(0, 1)
COSTS = st.floats(0, 2)
LENGTHS = st.integers(0, 64)


@st.composite
def distributions(draw, size):
    weights = draw(st.lists(st.sampled_from([0, 1e-9, 0.1, 1, 3]), min_size=size, max_size=size))
    assume(sum(weights) > 0)
    return np.array(weights) / sum(weights)


@st.composite
def pairs(draw):
    size = draw(st.integers(2, 6))
    return draw(distributions(size)), draw(distributions(size))


@pytest.mark.parametrize(("alpha", "printed"), [(0.5, 0.9375), (0.7, 1.7731), (0.9, 3.0951)])
def test_expected_accepted_of_four(alpha, printed):
    assert round(expected_accepted(alpha, 4), 4) == printed


@pytest.mark.parametrize(
    ("alpha", "gamma", "operations", "speed"),
    [
        (0.6, 2, 1.53, 1.96),
        (0.7, 3, 1.58, 2.53),
        (0.8, 2, 1.23, 2.44),
        (0.8, 5, 1.63, 3.69),
        (0.9, 2, 1.11, 2.71),
        (0.9, 10, 1.60, 6.86),
    ],
)
def test_table_1(alpha, gamma, operations, speed):
    assert round(operations_factor(alpha, gamma, 0.0), 2) == operations
    assert round(walltime_factor(alpha, gamma, 0.0), 2) == speed


def test_the_bigram_of_section_3_6():
    assert round(walltime_factor(0.2, 3, 0.0), 2) == 1.25


@pytest.mark.parametrize(("alpha", "speed"), [(0.75, 3.3), (0.8, 3.9), (0.87, 4.9)])
def test_lenience_of_appendix_a_5(alpha, speed):
    assert round(walltime_factor(alpha, 8, 0.015), 1) == speed


@pytest.mark.parametrize(
    ("gamma", "alpha", "cost", "printed"),
    [
        (7, 0.75, 0.02, 3.2),
        (7, 0.80, 0.04, 3.3),
        (7, 0.82, 0.11, 2.5),
        (7, 0.62, 0.02, 2.3),
        (5, 0.68, 0.04, 2.4),
        (3, 0.71, 0.11, 2.0),
        (5, 0.65, 0.02, 2.4),
        (5, 0.73, 0.04, 2.6),
        (3, 0.74, 0.11, 2.0),
        (5, 0.53, 0.02, 1.9),
        (3, 0.55, 0.04, 1.8),
        (3, 0.56, 0.11, 1.6),
    ],
)
def test_table_4_within_the_rounding_of_its_inputs(gamma, alpha, cost, printed):
    """Each printed "expected" value is one the formula takes for inputs that round to those printed."""
    low = walltime_factor(alpha - 0.005, gamma, cost + 0.005)
    high = walltime_factor(alpha + 0.005, gamma, cost - 0.005)
    assert round(low, 1) <= printed <= round(high, 1)


def test_the_a100_of_the_literature():
    a100 = PassTime(7e9, 2, 1.935e12, 312e12)
    assert round(a100.crossover_rows) == 161
    assert a100.cost(161) == 1
    assert a100.cost(322) == pytest.approx(322 / a100.crossover_rows)


@given(ALPHAS, LENGTHS)
def test_expectations_are_the_sum_of_powers(alpha, gamma):
    powers = [alpha**i for i in range(gamma + 1)]
    assert expected_tokens(alpha, gamma) == pytest.approx(math.fsum(powers), rel=1e-9)
    assert expected_accepted(alpha, gamma) == pytest.approx(math.fsum(powers[1:]), rel=1e-9)
    assert memory_access_factor(alpha, gamma) == expected_tokens(alpha, gamma)


def test_alpha_one_is_the_limit():
    assert expected_tokens(1, 7) == 8
    assert expected_tokens(1 - 1e-12, 7) == pytest.approx(8, rel=1e-10)
    assert oracle_bound(1) == math.inf


@given(ALPHAS, ALPHAS, LENGTHS, LENGTHS, COSTS)
def test_more_is_not_less(alpha, other, gamma, longer, cost):
    low, high = sorted((alpha, other))
    short, long = sorted((gamma, longer))
    slack = 1 + 1e-12
    assert expected_tokens(low, gamma) <= expected_tokens(high, gamma) * slack
    assert expected_tokens(alpha, short) <= expected_tokens(alpha, long) * slack
    assert expected_tokens(alpha, long) <= min(long + 1, oracle_bound(alpha)) * slack
    assert walltime_factor(alpha, gamma, cost) <= walltime_factor(alpha, gamma, cost / 2) * slack
    assert operations_factor(high, gamma, cost) <= operations_factor(low, gamma, cost) * slack
    assert operations_factor(alpha, gamma, cost) >= 1 - 1e-12


@given(ALPHAS, COSTS, st.integers(0, 40))
def test_the_best_number_is_the_best_of_all(alpha, cost, most):
    best = best_num_draft_tokens(alpha, cost, most)
    factors = [walltime_factor(alpha, gamma, cost) for gamma in range(most + 1)]
    assert factors[best] == pytest.approx(max(factors), rel=1e-12)
    assert all(factor < factors[best] for factor in factors[:best])


@given(ALPHAS, COSTS)
def test_corollary_3_9(alpha, cost):
    factor = guaranteed_factor(alpha, cost)
    best = best_num_draft_tokens(alpha, cost)
    if factor is None:
        # No number pays, but for rounding where alpha is the cost.
        assert walltime_factor(alpha, best, cost) <= 1 + 1e-12
    else:
        assert walltime_factor(alpha, best, cost) >= factor * (1 - 1e-12)
        assert factor == pytest.approx(walltime_factor(alpha, 1, cost))


@pytest.mark.parametrize(("alpha", "gamma"), [(0.3, 2), (0.75, 7), (0.95, 16)])
def test_the_expectation_is_what_a_simulation_gives(alpha, gamma):
    rng = random.Random(1)
    runs = 20_000
    lengths = []
    for _ in range(runs):
        accepted = 0
        while accepted < gamma and rng.random() < alpha:
            accepted += 1
        lengths.append(accepted + 1)
    mean, sigma = np.mean(lengths), np.std(lengths) / math.sqrt(runs)
    assert abs(mean - expected_tokens(alpha, gamma)) < 4 * sigma


@given(pairs())
def test_acceptances_in_order(pair):
    p, q = pair
    alpha = acceptance(p, q)
    assert 0 <= alpha <= 1 + 1e-12
    # Theorem 3.5: 1 - D_LK, half the L1 distance.
    assert alpha == pytest.approx(1 - np.abs(p - q).sum() / 2, abs=1e-12)
    assert rejection_sampling_acceptance(p, q) <= alpha + 1e-12
    assert match_acceptance(p, q) <= coupled_acceptance(p, q) + 1e-12
    # Daliri et al., theorem 1: coupling loses at most a factor against the optimum.
    distance = 1 - alpha
    assert (1 - distance) / (1 + distance) - 1e-12 <= coupled_acceptance(p, q) <= alpha + 1e-12
    for lenience, other in itertools.pairwise((1.0, 0.5, 0.3, 0.1)):
        assert acceptance(p, q, lenience) <= acceptance(p, q, other) + 1e-12
        assert acceptance(p, q, other) <= 1 + 1e-12


@pytest.mark.parametrize(
    ("p", "q", "expected"),
    [
        ([0.5, 0.5], [0.5, 0.5], (1, 0.5, 1, 1)),
        ([1, 0], [0, 1], (0, 0, 0, 0)),
        ([0.5, 0.5], [1, 0], (0.5, 0.5, 0.5, 0)),
        ([0.75, 0.25], [0.25, 0.75], (0.5, 0.375, 0.5, 1 / 3)),
        ([0.5, 0.25, 0.25], [0.25, 0.5, 0.25], (0.75, 0.3125, 0.7, 0.5)),
    ],
)
def test_acceptances_by_hand(p, q, expected):
    p, q = np.array(p, float), np.array(q, float)
    found = [f(p, q) for f in (acceptance, match_acceptance, coupled_acceptance, rejection_sampling_acceptance)]  # fmt: skip
    assert found == pytest.approx(expected)


@given(pairs())
def test_coupled_acceptance_as_it_is_written(pair):
    p, q = pair
    both = np.flatnonzero((p > 0) & (q > 0))
    expected = sum(1 / np.maximum(p / p[token], q / q[token]).sum() for token in both)
    assert coupled_acceptance(p, q) == pytest.approx(expected, rel=1e-12)


def test_coupled_acceptance_of_probabilities_at_the_edge_of_float64():
    p, q = np.array([5e-324, 1.0]), np.array([1.0, 5e-324])
    assert coupled_acceptance(p, q) == pytest.approx(0, abs=1e-300)


def test_the_roofline_has_a_floor_and_a_slope():
    machine = PassTime(parameters=1e9, bytes_per_parameter=0.5, bandwidth=1e11, rate=2e12)
    assert machine.pass_s(1) == pytest.approx(5e-3)
    assert machine.crossover_rows == pytest.approx(5)
    assert [machine.cost(rows) for rows in (1, 5, 10, 20)] == pytest.approx([1, 1, 2, 4])
    # The prior of measured costs adds the terms: never more than twice the larger one.
    prior = roofline(machine.crossover_rows)
    for rows in (1, 3, 5, 8, 40):
        assert machine.cost(rows) / 2 <= prior.cost(rows) <= 2 * machine.cost(rows)


@pytest.mark.parametrize(
    "call",
    [
        lambda: expected_tokens(1.1, 2),
        lambda: expected_tokens(math.nan, 2),
        lambda: expected_accepted(0.5, -1),
        lambda: walltime_factor(0.5, 2, -0.1),
        lambda: operations_factor(0.5, 2, math.inf),
        lambda: best_num_draft_tokens(0.5, math.nan),
        lambda: acceptance(np.ones(1), np.ones(1), 0.0),
        lambda: PassTime(1e9, 2, 0, 1e12),
    ],
)
def test_numbers_out_of_range_are_named(call):
    with pytest.raises(ConfigError):
        call()
