"""A budget among replies that share passes: rows cost what they add to those of all."""

import pytest

from akunu_py.decoding.budget import Budget, BudgetState
from akunu_py.protocols import Target
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import Draft, SharedPasses, StepStats

COSTS = CostCurve({1: 1.0, 2: 1.1, 4: 1.3, 8: 1.9, 9: 2.4, 16: 5.9})
"""Rows beyond eight are expensive."""


class SharingTarget(Target):
    def __init__(self, shared):
        self.shared = shared


def budget_of(shared):
    state = BudgetState(COSTS)
    state.costs_alone.learn(100, (0.01,) * 8, dict(COSTS.points))
    return Budget(state, context=100, target=SharingTarget(shared))


def kept(shared, confidence):
    budget = budget_of(shared)
    for _ in range(60):
        # Passes as `shared` describes them make lambda.
        budget.observe(StepStats("x", 0, 0, 0, 1, "bonus", 0.0, 0.01, 0.0), (1,))
    budget.limit(8)
    draft = Draft.chain(range(8), "copy", 20, (confidence,) * 8)
    return len(budget.trim(draft))


@pytest.mark.parametrize("confidence", [0.9, 0.5])
def test_a_row_among_many_has_to_be_surer(confidence):
    alone = kept(None, confidence)
    few = kept(SharedPasses(replies=2, rows=2, tokens=2), confidence)
    many = kept(SharedPasses(replies=8, rows=8, tokens=8), confidence)
    assert alone >= few >= many
    assert alone > many


def test_one_reply_among_none_is_a_reply_alone():
    assert kept(SharedPasses(), 0.8) == kept(None, 0.8)


def test_lambda_is_the_tokens_of_all_for_the_time_of_a_pass():
    shared = SharedPasses(replies=4, rows=4, tokens=4)
    budget = budget_of(shared)
    for _ in range(400):
        budget.observe(StepStats("x", 0, 0, 0, 1, "bonus", 0.0, 9.0, 0.0), (1,))
    # A pass of four rows costs 1.3 plain steps, whatever the clock says of it.
    assert budget.rate == pytest.approx(4 / 1.3, rel=0.02)
    # And its time is no sample of a plain step.
    assert budget._costs.unit_s == pytest.approx(0.01)
