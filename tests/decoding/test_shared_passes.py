"""Passes that replies share: which drafts pay there, what is learned of them, and by whom.

Mutants that die here: rows taken in another order than by reach; a price at one reply's costs, or
without lambda; a checked row counted as certain; a round timed that was waited for, or a draft's
pass timed from the round's beginning; costs of a number of replies that another one's change.
"""

import itertools
import math

import pytest
from flight import FlightBudget, balance_of
from hypothesis import given
from hypothesis import strategies as st

from akunu_py.decoding.budget import BudgetState
from akunu_py.decoding.pass_costs import PassCosts
from akunu_py.decoding.shared_passes import Offer, SharedCosts, SharedPasses
from akunu_py.protocols import Target
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import Draft, PassReport, StepStats

LONE = CostCurve({1: 1.0, 2: 1.1, 4: 1.3, 8: 1.9, 9: 2.4, 16: 5.9})
"""Rows beyond eight are expensive."""


def passes(replies=4, slope=0.1, lone=LONE):
    """Shared passes whose plain one takes a second, and in which each row adds `slope`."""
    costs = SharedCosts(PassCosts(lone))
    shared = SharedPasses(costs)
    costs.of(replies, waits=False).costs.learn(
        0, (1.0,) * 5, {1 + rows: 1.0 + slope * rows for rows in range(1, 33)}
    )
    shared.begin(replies, waits=False)
    return shared


reaches = st.lists(st.floats(0.01, 1.0), max_size=4).map(
    lambda found: tuple(itertools.accumulate(found, lambda a, b: a * b))
)


@given(st.lists(reaches, min_size=1, max_size=3), st.floats(0.01, 0.4), st.integers(0, 5))
def test_no_other_rows_of_a_pass_have_a_larger_gain(offered, slope, taken):
    shared = passes(slope=slope)
    lambda_ = 4
    sizes = shared.share([Offer(each) for each in offered], taken)

    def gain(rows):
        tokens = sum(sum(each[:size]) for each, size in zip(offered, rows, strict=True))
        return tokens - lambda_ * slope * sum(rows)

    best = max(map(gain, itertools.product(*(range(len(each) + 1) for each in offered))))
    # What brings less than 4 % of the pass's four tokens is left to the plain pass.
    assert gain(sizes) >= (best if best > 0.1601 else min(best, 0)) - 1e-6


@pytest.mark.parametrize(("slope", "kept"), [(0.1, 5), (0.17, 3), (0.2, 0), (0.3, 0)])
def test_rows_have_to_bring_what_they_cost_all(slope, kept):
    """At four replies a row must bring 0.4, 0.68, 0.8 and 1.2 tokens, and all together 0.16 more."""
    offer = Offer(tuple(0.9**row for row in range(1, 6)))
    assert passes(slope=slope).share([offer]) == [kept]


def test_drafts_compete_for_the_rows_of_a_pass():
    shared = passes()
    shared.company.costs.learn(0, (1.0,) * 5, {4: 1.3, 5: 3.0})
    sure, hopeful = Offer((0.99, 0.98, 0.97)), Offer((0.9, 0.8))
    assert shared.share([hopeful, sure]) == [0, 3]
    assert shared.share([hopeful]) == [2]
    # Rows that are fed anyway leave less room.
    assert shared.share([hopeful], 3) == [0]


def test_a_row_behind_a_step_in_flight_costs_as_often_as_it_is_fed():
    """A row costs 0.4 tokens. Half of the time the first is refuted, and nothing is spent."""
    shared = passes()
    assert shared.share([Offer((0.71,), chance=0.5, checked=1)]) == [0]
    assert shared.share([Offer((0.73,), chance=0.5, checked=1)]) == [2]
    assert shared.share([Offer((0.55,), chance=1.0, checked=1)]) == [0]
    assert shared.share([Offer((0.57,), chance=1.0, checked=1)]) == [2]
    assert shared.share([Offer((0.1, 0.05), checked=1, least=2)]) == [2]


def test_rows_that_look_too_expensive_are_tried_now_and_then():
    """They must pay at half the cost, and what they lose stays below 0.1 % of the tokens."""
    shared, tried = passes(slope=0.2), 0
    for _ in range(1000):
        tried += shared.share([Offer((0.5,)), Offer((0.39,))])[0]
        shared.observe(seconds=1, feeding_s=1, drafted=0, tokens=4, steady=True)
    # Of 4 tokens, at 0.3 each and the least gain, 0.16.
    assert tried == 8
    assert shared.share([Offer((0.39,))]) == [0]
    shared.begin(1)
    assert shared.share([Offer((0.99,), least=1)]) == [1]


def test_lambda_grows_with_what_drafts_bring():
    shared = passes()
    assert shared.company.rate.value == 4
    for _ in range(300):
        shared.observe(seconds=2, feeding_s=1.5, drafted=5, tokens=9, steady=False)
    assert shared.company.rate.value == pytest.approx(9 / 1.5, rel=0.01)
    assert shared.share([Offer((0.65,)), Offer((0.59,))]) == [1, 0]
    # Another number of replies has a lambda of its own.
    shared.begin(3)
    assert shared.company.rate.value == 3


def test_costs_begin_with_those_of_one_reply():
    costs = SharedCosts(PassCosts(LONE))
    assert costs.of(8, waits=False).costs.cost(0, 2) == pytest.approx(2.4 / 1.9)
    assert costs.of(2, waits=True).costs.cost(0, 3) == pytest.approx(1.3 / 1.1)


def test_only_rounds_with_all_in_flight_measure_a_plain_pass():
    shared = SharedPasses(SharedCosts(PassCosts(LONE)))
    shared.begin(2, waits=False)
    costs = shared.company.costs

    def plain(seconds, *, steady=True):
        shared.observe(seconds=seconds, feeding_s=9, drafted=0, tokens=2, steady=steady)

    plain(70, steady=False)
    for _ in range(3):
        plain(0.5)
    assert costs.plain_s == 0.5
    assert costs.unit_s == 0.5
    shared.observe(seconds=90, feeding_s=0.75, drafted=3, tokens=4, steady=True)
    assert costs.cost(0, 4) == pytest.approx(math.sqrt(1.5 * LONE.cost(5) / 1.1), rel=0.01)
    # The draft's pass was waited for: the round behind it is short.
    for _ in range(4):
        plain(0.01)
        assert costs.plain_s == 0.5
        shared.observe(seconds=90, feeding_s=0.75, drafted=3, tokens=4, steady=True)
    plain(0.01)
    # With penalties every pass is waited for.
    shared.begin(2, waits=True)
    assert shared.company.costs is not costs
    plain(0.6, steady=False)
    assert shared.company.costs.plain_s == 0.6


def test_what_was_measured_comes_back():
    costs = SharedCosts(PassCosts(LONE))
    costs.remember({4: {2: 1.25, 3: 1.5}})
    assert costs.to_dict() == {"4": {"2": 1.25, "3": 1.5}}
    assert costs.of(4, waits=True).costs.cost(0, 3) == 1.5
    assert costs.of(3, waits=False).costs.cost(0, 3) == pytest.approx(LONE.cost(5) / LONE.cost(3))


class SharingTarget(Target):
    pipelined = True
    in_flight = False


def budget_of(shared, **options):
    return FlightBudget(
        BudgetState(), context=100, target=SharingTarget(), shared=shared, **options
    )


def offered(budget, confidence=0.9, draft=None):
    budget.limit(8)
    draft = draft or Draft.chain(range(8), "copy", 20, (confidence,) * 8)
    return budget.trim(draft), budget.offer


def test_a_budget_in_company_offers_its_draft_as_a_whole():
    budget = budget_of(passes())
    assert budget.limit(8) == 8
    draft, offer = offered(budget)
    assert len(draft) == 8
    probabilities = budget.acceptance.probabilities(draft)
    assert offer.reaches == pytest.approx(
        tuple(itertools.accumulate(probabilities, lambda a, b: a * b))
    )
    assert (offer.chance, offer.checked) == (1.0, 0)
    budget.flight.in_flight = True
    draft, offer = offered(budget)
    assert len(offer.reaches) == 7
    assert (offer.chance, offer.checked) == (probabilities[0], 1)


def test_a_step_is_in_flight_until_a_plain_pass_of_all_is_known():
    """Only such steps measure it, and without it no model is asked."""
    shared = passes()
    budget = budget_of(shared)
    budget.drawing.asked = True
    step = StepStats("x", 0, 0, 0, 1, "bonus", 0.0, 0.1, 0.0)
    budget.observe(step, (1,))
    assert not budget.flight.look_ahead
    shared.begin(5)
    budget.observe(step, (1,))
    assert budget.flight.look_ahead


@pytest.mark.parametrize(("confidence", "least", "most"), [(0.05, 40, 75), (0.95, 200, 200)])
def test_a_drafter_whose_time_does_not_pay_in_company_is_asked_less_often(confidence, least, most):
    """It takes 0.2 % of a pass, and so 0.8 % of the time of a token of four replies."""
    budget, asked = budget_of(passes()), 0
    step = StepStats("x", 0, 0, 0, 1, "bonus", 0.002, 0.1, 0.0)
    for _ in range(200):
        if budget.limit(8):
            asked += 1
            budget.trim(Draft.chain((1,), "copy", 2, (confidence,)))
        budget.forget_draft()
        budget.observe(step, (7,))
    assert least <= asked <= most


def test_a_pause_tells_nothing_of_the_time_that_a_token_takes():
    budget = budget_of(passes())
    offered(budget, draft=Draft.chain((1, 2), "copy", 2, (0.9, 0.9)))
    for propose_s in (0.02, 0.001, 0.001):
        budget.observe(StepStats("x", 0, 0, 0, 1, "bonus", propose_s, 0.1, 0.0), (7,))
        assert budget.drafter_time.a_token == pytest.approx(0.01)
        assert budget.limit(0) == 0


def test_a_tree_is_offered_by_its_best_path():
    tree = Draft((5, 6, 7), (-1, -1, 1), "tree", 9, (0.2, 0.9, 0.9))
    draft, offer = offered(budget_of(passes()), draft=tree)
    assert draft.tokens == (6, 7)
    assert len(offer.reaches) == 2


def test_nothing_is_drafted_before_a_plain_pass_is_known():
    shared = SharedPasses(SharedCosts(PassCosts(LONE)))
    shared.begin(4, waits=False)
    assert budget_of(shared).limit(8) == 0


def test_a_step_in_company_teaches_nothing_about_a_reply_alone():
    shared = passes()
    budget = budget_of(shared)
    budget.observe(StepStats("x", 0, 0, 0, 1, "bonus", 0.0, 9.0, 0.0), (1,))
    assert budget.costs.unit_s is None
    assert budget.rate == 4
    shared.begin(1)
    assert budget.limit(8) == 0
    assert budget.rate == 1


def test_a_model_is_charged_what_its_tokens_add_to_the_rows_of_all():
    budget = budget_of(passes(slope=0.125))
    before = balance_of(budget.drawing.account)
    budget.drawing.passes = 1
    budget.flight.last_pass = PassReport(2)
    budget.observe(StepStats("x", 1, 0, 0, 1, "residual", 0.0, 0.1, 0.0), (1,))
    # At a lambda of four, and less the credit of a step.
    assert before - balance_of(budget.drawing.account) == pytest.approx(0.5, abs=0.01)


def test_a_drafter_is_told_the_price_of_its_rows_among_those_of_all():
    class Told:
        curve = None

        def propose(self, limit):
            return Draft.empty()

        def observe(self, tokens):
            pass

        def use_curve(self, curve):
            self.curve = curve

    drafter, shared = Told(), passes()
    budget_of(shared, drafter=drafter)
    assert drafter.curve.cost(3) == pytest.approx(1 + 4 * 0.2)


def test_recent_hits_are_those_of_a_reply_alone():
    state = BudgetState()
    budgets = [FlightBudget(state, context=1, target=SharingTarget()) for _ in range(2)]
    for budget in budgets:
        budget.acceptance.observe(Draft.chain((1, 2), "x", 5), (1, 2))
    assert budgets[0].acceptance.recent == budgets[1].acceptance.recent > 0.6
    assert state.acceptance.recent == 0.5
