"""Rules for the length of a draft: exact values by hand, and what they may depend on."""

from dataclasses import dataclass

import numpy as np
import pytest
from drafting.scripted_token_model import CONFIG, Scripted, begun
from hypothesis import given
from hypothesis import strategies as st

from akunu_lab.counts.distribution import SparseDistribution
from akunu_lab.drafting.adaptive_length import (
    AfterDraws,
    AllOf,
    EntropyLength,
    FixedLength,
    LowerBoundStop,
)
from akunu_lab.drafting.shaped import ShapedDrafter
from akunu_py.drafting.draft_model import DrawnToken
from akunu_py.values.types import LengthTrace


def spread(*row):
    return SparseDistribution(np.arange(len(row)), np.array(row), 0.0, len(row))


UNIFORM = spread(0.25, 0.25, 0.25, 0.25)
HALVES = spread(0.5, 0.5, 0.0, 0.0)  # H = ln 2 / ln 4 = 1/2
ONE_HOT = spread(0.0, 1.0, 0.0, 0.0)


def length_of(rule, spreads):
    for place, shown in enumerate(spreads):
        if not rule.wants(place, shown, first=place == 0):
            return place
    return len(spreads)


@pytest.mark.parametrize(
    ("shown", "entropy", "gamma"), [(UNIFORM, 1.0, 2), (HALVES, 0.5, 5), (ONE_HOT, 0.0, 8)]
)
def test_gamma_falls_with_the_entropy(shown, entropy, gamma):
    rule = EntropyLength(shortest=2, longest=8)
    assert rule.trace is None
    assert length_of(rule, [shown] + [UNIFORM] * 19) == gamma
    assert rule.trace == LengthTrace(
        pytest.approx(entropy, abs=1e-15), pytest.approx(entropy), gamma
    )


def test_the_first_position_decides_and_later_ones_do_not():
    rule = EntropyLength(shortest=1, longest=6)
    assert length_of(rule, [ONE_HOT] + [UNIFORM] * 10) == 6
    assert length_of(rule, [UNIFORM] + [ONE_HOT] * 10) == 1


def test_halves_are_rounded_to_the_even_number():
    # 8 - 7 / 2 = 4.5 and 7 - 5 / 2 = 4.5; 6 - 5 / 2 = 3.5.
    assert length_of(EntropyLength(shortest=1, longest=8), [HALVES] * 20) == 4
    assert length_of(EntropyLength(shortest=2, longest=7), [HALVES] * 20) == 4
    assert length_of(EntropyLength(shortest=1, longest=6), [HALVES] * 20) == 4


def test_smoothing_by_hand():
    rule = EntropyLength(shortest=0, longest=8, beta=0.75)
    rule.wants(0, UNIFORM, first=True)
    assert rule.trace == LengthTrace(pytest.approx(1.0), pytest.approx(1.0), 0)
    rule.wants(0, ONE_HOT, first=True)  # h = 3/4
    assert rule.trace == LengthTrace(0.0, pytest.approx(0.75), 2)
    rule.wants(0, HALVES, first=True)  # h = 9/16 + 1/8 = 11/16: 8 - 5.5
    assert rule.trace == LengthTrace(pytest.approx(0.5), pytest.approx(11 / 16), 2)
    rule.wants(1, ONE_HOT, first=False)  # within the draft nothing moves
    assert rule.trace.smoothed == pytest.approx(11 / 16)


def test_without_beta_the_past_is_forgotten():
    rule = EntropyLength(shortest=0, longest=4)
    rule.wants(0, UNIFORM, first=True)
    rule.wants(0, ONE_HOT, first=True)
    assert rule.trace == LengthTrace(0.0, 0.0, 4)


def test_a_vocabulary_of_one_token_is_certain():
    assert length_of(EntropyLength(longest=5), [spread(1.0)] * 9) == 5


@given(
    st.lists(st.lists(st.floats(0, 1), min_size=2, max_size=6), min_size=1, max_size=8),
    st.integers(0, 4),
    st.integers(0, 8),
    st.floats(0, 0.99),
)
def test_gamma_stays_between_its_ends(rows, shortest, more, beta):
    rule = EntropyLength(shortest=shortest, longest=shortest + more, beta=beta)
    for weights in rows:
        row = np.array(weights) + 1e-3
        rule.wants(0, spread(*(row / row.sum())), first=True)
        assert shortest <= rule.trace.num_draft_tokens <= shortest + more
        assert 0 <= rule.trace.smoothed <= 1


def test_a_stop_on_the_largest_probability():
    rows = [spread(0.9, 0.1), spread(0.6, 0.4), spread(0.5, 0.5)]
    assert length_of(LowerBoundStop(0.6), rows) == 2
    assert length_of(LowerBoundStop(0.61), rows) == 1
    assert length_of(LowerBoundStop(0.0), rows) == 3
    assert length_of(LowerBoundStop(0.95), rows) == 0


def test_a_stop_on_the_product():
    rows = [spread(0.5, 0.5)] * 4
    rule = LowerBoundStop(0.125, whole=True)
    assert length_of(rule, rows) == 3
    assert length_of(rule, rows) == 3  # a new draft begins anew
    assert length_of(LowerBoundStop(0.126, whole=True), rows) == 2


def test_a_stop_on_the_entropy_bound():
    # 1 - sqrt(0.2 ln 2) = 0.6277
    rows = [spread(0.5, 0.5)] * 3
    assert length_of(LowerBoundStop(0.627, estimate="entropy"), rows) == 3
    assert length_of(LowerBoundStop(0.628, estimate="entropy"), rows) == 0
    # The product: 0.6277 squared is 0.3940.
    assert length_of(LowerBoundStop(0.393, estimate="entropy", whole=True), rows) == 2
    assert length_of(LowerBoundStop(0.395, estimate="entropy", whole=True), rows) == 1
    # Where the bound says nothing it is 0.
    assert length_of(LowerBoundStop(0.0, estimate="entropy", scale=9.0), rows) == 3


def test_all_of_is_the_shortest_and_asks_each_rule():
    entropy = EntropyLength(shortest=1, longest=6)
    rule = AllOf([FixedLength(4), LowerBoundStop(0.4), entropy])
    assert length_of(rule, [HALVES] * 9) == 4
    assert rule.trace == entropy.trace
    assert length_of(rule, [UNIFORM] * 9) == 0
    assert rule.trace.num_draft_tokens == 1
    assert AllOf([FixedLength(1)]).trace is None


@dataclass
class Token:
    probability: float
    entropy: float


def drawn_length(rule, tokens, size=4):
    goes_on = AfterDraws(rule, size)
    for count in range(len(tokens)):
        if not goes_on(tokens[:count]):
            return count
    return len(tokens)


def test_rules_for_models_whose_next_q_costs_a_pass():
    sure, unsure = Token(0.9, 0.0), Token(0.3, 1.0)
    assert drawn_length(FixedLength(3), [sure] * 9) == 3
    assert drawn_length(EntropyLength(shortest=2, longest=6), [sure] * 9) == 6
    assert drawn_length(EntropyLength(shortest=2, longest=6), [unsure] + [sure] * 9) == 2
    assert drawn_length(EntropyLength(shortest=2, longest=6), [Token(0.1, 0.5)] * 9) == 4
    # q at the first place is known once its token is drawn.
    assert drawn_length(EntropyLength(shortest=0, longest=6), [unsure] * 9) == 1
    assert drawn_length(LowerBoundStop(0.5), [sure, sure, unsure, sure]) == 3
    assert drawn_length(LowerBoundStop(0.8, whole=True), [sure] * 9) == 3
    # Entropies are in units of ln V: 1 - sqrt(0.2 ln 4) = 0.473.
    assert drawn_length(LowerBoundStop(0.47, estimate="entropy"), [unsure] * 9) == 9
    assert drawn_length(LowerBoundStop(0.48, estimate="entropy"), [unsure] * 9) == 1
    assert drawn_length(AllOf([FixedLength(5), LowerBoundStop(0.5)]), [sure, unsure] * 9) == 2


def test_the_trace_of_a_rule_for_models():
    rule = EntropyLength(shortest=0, longest=8, beta=0.5)
    drawn_length(rule, [Token(0.1, 1.0)] * 9)
    assert drawn_length(rule, [Token(0.1, 0.25)] * 9) == 3
    assert rule.trace == LengthTrace(pytest.approx(0.25), pytest.approx(0.625), 3)


def test_a_pass_that_drew_several_tokens_is_cut_where_the_rule_ends():
    rule = AfterDraws(LowerBoundStop(0.5), 4)
    tokens = [Token(probability, 0.5) for probability in (0.9, 0.4, 0.9, 0.9)]
    assert rule(())
    assert not rule(tokens)
    assert rule.length(tokens) == 2
    # Those before the end of the room were drawn, and not asked for.
    assert rule(())
    assert rule.length(tokens) == 2
    assert rule(())
    assert rule(tokens[:1])
    assert rule.length(tokens[:2]) == 2
    assert rule.length(()) == 0


def test_a_draft_of_one_token_tells_h():
    rule = AfterDraws(EntropyLength(shortest=1, longest=8), 4)
    assert rule.trace is None
    rule(())
    assert rule.length([Token(0.9, 0.25)]) == 1
    assert rule.trace == LengthTrace(pytest.approx(0.25), pytest.approx(0.25), 6)
    rule(())
    assert rule.trace is None


class Likely:
    """Goes on after likely tokens."""

    def pays(self, before, drawn, *, room, passes, further):
        return not drawn or drawn[-1].probability > 0.6


def test_every_rule_can_end_a_draft():
    _, drafter = begun(ShapedDrafter, length=AfterDraws(FixedLength(4), 4))
    assert len(drafter.propose(5)) == 4
    drafter.use_rule(Likely())
    assert len(drafter.propose(5)) == 3


class ThreeAPass(Scripted):
    """Draws three tokens before it asks again, as where guesses of n-grams are right."""

    def draw(self, limit, goes_on=None, guess=None, *, after=()):
        drawn = []
        while len(drawn) < limit and (goes_on is None or goes_on(drawn)):
            drawn += [DrawnToken(len(drawn) + n, 0.9, 0.5) for n in range(3)]
        return drawn[:limit]

    def probabilities(self):
        return np.eye(8)[:6]


@pytest.mark.parametrize("rejection", [False, True])
def test_what_a_pass_drew_beyond_the_rule_is_dropped(rejection):
    drafter = ShapedDrafter(ThreeAPass(), rejection=rejection, length=AfterDraws(FixedLength(4), 8))
    drafter.begin_reply(CONFIG, 11)
    drafter.observe([5, 6])
    assert drafter.propose(8).tokens == (0, 1, 2, 3)
    if rejection:
        assert drafter.draft_probabilities().shape == (4, 8)
