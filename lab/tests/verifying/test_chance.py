"""Keyed choices: the probabilities they must have, and functions of their key alone."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_lab.verifying.chance import KeyedChance
from akunu_py.values.keyed_noise import Purpose

COUNT = 20_000


class Fixed(KeyedChance):
    """Every uniform number is the one given."""

    def __init__(self, uniform):
        super().__init__(0)
        self._fixed = uniform

    def uniform(self, purpose, position, attempt=0):
        return self._fixed


LAST = 1 - 2.0**-53


@given(
    st.lists(st.sampled_from([0.0, 1e-300, 1e-9, 0.1, 0.7, 3.0]), min_size=1, max_size=6),
    st.one_of(st.just(0.0), st.just(LAST), st.integers(0, 2**53 - 1).map(lambda k: k * 2.0**-53)),
)
def test_the_token_is_the_one_whose_share_of_the_line_is_hit(weights, uniform):
    if not sum(weights):
        return
    row = np.array(weights) / sum(weights)
    token = Fixed(uniform).token(row, 3)
    assert row[token] > 0
    below = math.fsum(row[:token])
    assert below - 1e-12 <= uniform <= below + row[token] + 1e-12


@pytest.mark.parametrize("size", [2, 9, 1000])
def test_ends_of_the_line_over_many_tokens(size):
    """Tokens of weight 0 at both ends are never drawn, whatever the sum's last bits."""
    rng = np.random.default_rng(size)
    for _ in range(50):
        inner = rng.random(size)
        row = np.concatenate([[0, 0], inner / inner.sum(), [0, 0]])
        assert Fixed(0.0).token(row, 0) == 2
        assert Fixed(LAST).token(row, 0) == size + 1


@pytest.mark.parametrize(("probability", "uniform", "accepted"), [
    (0.0, 0.0, False), (1.0, LAST, True), (0.5, 0.5, False), (0.5, 0.5 - 2**-53, True),
])  # fmt: skip
def test_certain_and_impossible(probability, uniform, accepted):
    assert Fixed(uniform).accepts(probability, 1, 0) == (accepted, uniform)


@pytest.mark.parametrize("count", [1, 3, 6])
def test_every_index_has_an_equal_part(count):
    assert Fixed(LAST).index(count, 0, 0) == count - 1
    assert [Fixed((k + 0.5) / count).index(count, 0, 0) for k in range(count)] == list(range(count))


@pytest.mark.parametrize("purpose", [Purpose.ACCEPTANCE, Purpose.RESIDUAL, Purpose.ORDER])
def test_uniform_over_positions_and_without_memory(purpose):
    chance = KeyedChance(12)
    drawn = np.array([chance.uniform(purpose, position) for position in range(COUNT)])
    assert drawn.min() >= 0
    assert drawn.max() < 1
    cells = np.bincount((drawn * 32).astype(int), minlength=32)
    # 31 degrees of freedom: above 71 in one case of 10,000 (the seed is fixed).
    assert float(((cells - COUNT / 32) ** 2 / (COUNT / 32)).sum()) < 71
    for lag in (1, 2, 5):
        correlation = np.corrcoef(drawn[:-lag], drawn[lag:])[0, 1]
        assert abs(correlation) < 4 / math.sqrt(COUNT)


def test_purposes_and_attempts_are_unrelated():
    chance = KeyedChance(5)
    columns = [
        [chance.uniform(purpose, position, attempt) for position in range(4000)]
        for purpose in (Purpose.ACCEPTANCE, Purpose.RESIDUAL, Purpose.ORDER)
        for attempt in (0, 1)
    ]
    correlations = np.corrcoef(columns) - np.eye(6)
    assert np.abs(correlations).max() < 4.5 / math.sqrt(4000)


def test_all_53_bits_vary():
    chance = KeyedChance(8)
    drawn = [int(chance.uniform(Purpose.RESIDUAL, position) * 2**53) for position in range(2000)]
    for bit in range(53):
        share = sum(value >> bit & 1 for value in drawn) / 2000
        assert abs(share - 0.5) < 5 * 0.5 / math.sqrt(2000)


def test_choices_are_functions_of_their_key():
    row = np.full(5, 0.2)
    first, again, other = KeyedChance(1), KeyedChance(1), KeyedChance(2)
    backwards = [again.token(row, position) for position in reversed(range(50))]
    assert [first.token(row, position) for position in range(50)] == backwards[::-1]
    assert [other.token(row, position) for position in range(50)] != backwards[::-1]


def test_tokens_are_drawn_as_often_as_they_are_likely():
    row = np.array([0.5, 0.25, 0.0, 0.2, 0.05])
    chance = KeyedChance(3)
    drawn = np.bincount([chance.token(row, position) for position in range(COUNT)], minlength=5)
    sigma = np.sqrt(COUNT * row * (1 - row))
    assert (np.abs(drawn - COUNT * row) <= 4 * sigma).all()
