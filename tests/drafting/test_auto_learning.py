"""What `auto` learns, and how it reckons: calibration, length, pace, buckets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_py.drafting import AutoDrafter, AutoState
from akunu_py.drafting.auto import calibration, features
from akunu_py.drafting.auto.calibration import Calibration
from akunu_py.drafting.auto.drafter import PayingLength, TokenRate
from akunu_py.values.cost_curve import CostCurve

CURVES = st.sampled_from(
    [
        CostCurve({1: 1.0, 64: 1.0}),
        CostCurve({1: 1.0, 2: 1.05, 21: 2.0}),
        CostCurve({1: 1.0, 2: 2.0, 3: 3.0}),
    ]
)


def test_learning_stops_at_the_first_wrong_token():
    rows = [(features.EARLIER + k,) for k in range(20)]
    known = Calibration([0.0] * features.NUM_WEIGHTS)
    tokens, halves = list(range(20)), [0.5] * 20
    right, bias = known.learn(tokens, halves, rows, [*range(13), 99, 14, 15], 0, 0.0)
    assert right == 13
    step = calibration.WEIGHT_RATE * 0.5
    moved = [known.weights[features.EARLIER + k] for k in range(20)]
    assert moved == pytest.approx([step] * 13 + [-step] + [0] * 6)
    assert bias == pytest.approx(calibration.BIAS_RATE * 0.5 * 12)
    # What the target has not decided on teaches nothing, nor does an output beyond the chain.
    right, _ = known.learn(tokens, halves, rows, [0, 1], 0, 0.0)
    assert right == 2
    assert known.weights[features.EARLIER + 2] == pytest.approx(step)
    assert known.learn([0, 1], halves[:2], rows[:2], [0, 1, 2, 3], 0, 0.0)[0] == 2


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
    rule = PayingLength(curve, 12)
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
    assert PayingLength(absolute, 8).costs == pytest.approx(PayingLength(relative, 8).costs)
    assert PayingLength(absolute, 8).slopes == pytest.approx(PayingLength(relative, 8).slopes)


def test_the_pace_is_the_tokens_a_unit_of_cost_brings():
    pace = TokenRate()
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


def one_each(count):
    return [(0,)] * count


def test_outcomes_are_those_of_each_place_after_the_token_before_it():
    known = Calibration([0.0] * features.NUM_WEIGHTS)
    known.learn([1, 2, 3], [0.5] * 3, one_each(3), [1, 2, 9], 7, 0.0)
    assert known.by_token == {1: 0b11, 2: 0b11, 3: 0b10}
    assert known.by_previous == {7: 0b11, 1: 0b11, 2: 0b10}
    for outcome in (1, 0, 1):
        known.learn([3], [0.5], one_each(1), [3 * outcome], 2, 0.0)
    assert known.by_token[3] == known.by_previous[2] == 0b10101
    assert known.by_token[1] == 0b11
    # Of pairs, each its own.
    known.learn([3], [0.5], one_each(1), [3], 9, 0.0)
    assert known.by_token[3] == 0b101011
    assert sorted(known.by_pair.values()) == [0b11, 0b11, 0b11, 0b10101]
    # The tokens after the first wrong one are not known.
    known.learn([30, 31, 32], [0.5] * 3, one_each(3), [30, 39, 32], 2, 0.0)
    assert {token for token in known.by_token if token >= 30} == {30, 31}


def test_a_full_history_forgets_its_oldest_outcome():
    known = Calibration([0.0] * features.NUM_WEIGHTS)
    outcomes = [number % 3 == 0 for number in range(25)]
    for right in outcomes:
        known.learn([3], [0.5], one_each(1), [3 if right else 4], 2, 0.0)
    last = "".join(str(int(right)) for right in outcomes[-12:])
    assert known.by_token[3] == int("1" + last, 2)


def test_weights_of_another_size_are_refused():
    with pytest.raises(ValueError, match="start weights"):
        Calibration([0.0])


def test_outcomes_are_forgotten_where_they_are_too_many(monkeypatch):
    monkeypatch.setattr(calibration, "MAX_OUTCOMES", 8)
    known = Calibration([0.0] * features.NUM_WEIGHTS)
    for first in range(0, 60, 3):
        tokens = [first, first + 1, first + 2]
        known.learn(tokens, [0.5] * 3, one_each(3), tokens, 99, 0.0)
        assert len(known.by_pair) <= 8
        assert known.by_token[first + 2] == 0b11
