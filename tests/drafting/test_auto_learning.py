"""What `auto` learns, and how it reckons: calibration, length, pace, buckets."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_py.cost_curve import CostCurve
from akunu_py.drafting import AutoDrafter, AutoState
from akunu_py.drafting.auto import calibration, features
from akunu_py.drafting.auto.calibration import Calibration
from akunu_py.drafting.auto.length import LengthRule, Pace

CURVES = st.sampled_from(
    [
        CostCurve({1: 1.0, 64: 1.0}),
        CostCurve({1: 1.0, 2: 1.05, 21: 2.0}),
        CostCurve({1: 1.0, 2: 2.0, 3: 3.0}),
    ]
)


def test_estimates_become_right():
    """A prediction that holds two times in three gets that probability."""
    rng = random.Random(5)
    known = Calibration([0.0] * features.NUM_WEIGHTS)
    of_token = (features.MATCH_SHARE, features.STREAK, features.POINTER)
    estimates = []
    for _ in range(4000):
        p = calibration.sigmoid(sum(known.weights[i] for i in of_token))
        estimates.append(p)
        known.learn([1], [p], [of_token], [1 if rng.random() < 2 / 3 else 0], 9, 0.0)
    late = estimates[1000:]
    assert abs(sum(late) / len(late) - 2 / 3) < 0.05


def test_learning_stops_at_the_first_wrong_token_and_counts_deep_ones_fourfold():
    rows = [(features.EARLIER_DEEP + k,) for k in range(20)]
    known = Calibration([0.0] * features.NUM_WEIGHTS)
    tokens, halves = list(range(20)), [0.5] * 20
    right, _ = known.learn(tokens, halves, rows, [*range(13), 99, 14, 15], 0, 0.0)
    assert right == 13
    step = calibration.WEIGHT_RATE * 0.5
    moved = [known.weights[row[0]] for row in rows]
    expected = [step] * 8 + [4 * step, 0, 0, 0, 4 * step] + [0] * 7
    assert moved == pytest.approx(expected)
    # Position 13 was wrong, and is none of those learned from; 12 wrong moves it down.
    known.learn(tokens, halves, rows, [*range(12), 99], 0, 0.0)
    assert known.weights[rows[12][0]] == pytest.approx(0)


def test_the_bias_is_bounded_and_of_one_reply():
    known = Calibration([0.0] * features.NUM_WEIGHTS)
    bias = 0.0
    for _ in range(100):
        _, bias = known.learn([1], [0.9], [(0,)], [2], 0, bias)
    assert bias == -calibration.BIAS_LIMIT
    state = AutoState()
    drafter = AutoDrafter(state=state)
    for tokens in ([1, 2] * 9, *([token] for token in range(50, 90))):
        drafter.observe(tokens)
        drafter.propose(9)
    assert AutoDrafter(state=state)._at.bias == 0


@given(st.lists(st.floats(0, 1), max_size=12), st.floats(1, 5), st.integers(0, 9), CURVES)
def test_the_length_is_the_best_one(probabilities, pace, limit, curve):
    rule = LengthRule(curve, 12)
    values, expected, reach = [1 - pace * curve.cost(1)], 1.0, 1.0
    for k, p in enumerate(probabilities[:limit], start=1):
        reach *= p
        expected += reach
        values.append(expected - pace * curve.cost(1 + k))
    length = rule.best_length(probabilities, pace, limit)
    assert length <= min(limit, len(probabilities))
    assert values[length] == pytest.approx(max(values))


def test_costs_are_relative_to_a_pass_over_one_row():
    relative, absolute = CostCurve({1: 1.0, 3: 1.5}), CostCurve({1: 20.0, 3: 30.0})
    assert LengthRule(absolute, 8).costs == pytest.approx(LengthRule(relative, 8).costs)
    assert LengthRule(absolute, 8).slopes == pytest.approx(LengthRule(relative, 8).slopes)


def test_the_pace_is_the_tokens_a_unit_of_cost_brings():
    pace = Pace()
    for _ in range(1000):
        pace.add(6, 2.0)
    assert pace.tokens_per_cost == pytest.approx(3, rel=1e-3)
    pace.begin_reply()
    assert pace.tokens_per_cost == pytest.approx(3, rel=1e-3)
    for _ in range(100):
        pace.add(1, 1.0)
    assert pace.tokens_per_cost < 1.2
    for _ in range(1000):
        pace.add(1, 5.0)
    assert pace.tokens_per_cost == 1.0


def test_outcomes_are_those_of_each_place_after_the_token_before_it():
    known = Calibration([0.0] * features.NUM_WEIGHTS)
    known.learn([1, 2, 3], [0.5] * 3, [(0,)] * 3, [1, 2, 9], 7, 0.0)
    assert set(known.by_token) == {1, 2, 3}
    assert set(known.by_previous) == {7, 1, 2}
    hits = [(outcome.hits, outcome.uses) for outcome in known.by_token.values()]
    assert hits == [(1, 1), (1, 1), (0, 1)]
    before = known.outcome_features(2, 3)
    for _ in range(6):
        known.learn([3], [0.5], [(0,)], [3], 2, 0.0)
    after = known.outcome_features(2, 3)
    # In each table better outcomes are further on, and more uses too.
    assert all(a > b for a, b in zip(after, before, strict=True))
    assert known.outcome_features(50, 60) == (
        features.OUTCOMES,
        features.OUTCOMES + 16,
        features.OUTCOMES + 32,
    )


def test_weights_of_another_size_are_refused():
    with pytest.raises(ValueError, match="start weights"):
        Calibration([0.0])


def test_buckets_cover_all_values_and_runs_end_with_them():
    for value in range(features.MAX_MATCH + features.MAX_POSITION):
        run = features.match_run[value]
        rows = {
            (features.match_row[v], features.coarse_match[v], features.middle_match[v])
            for v in range(value, min(value + run, len(features.match_row)))
        }
        assert len(rows) == 1
    assert len(AutoState().calibration.weights) == features.NUM_WEIGHTS
