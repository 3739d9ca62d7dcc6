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


def test_the_pass_of_all_tells_the_speed_where_no_reply_ran_alone():
    shared = SharedPasses()
    state = BudgetState(COSTS)
    budget = Budget(state, context=100, target=SharingTarget(shared))
    assert budget.limit(8) == 0
    shared.replies, shared.rows, shared.tokens, shared.seconds = 8, 8, 8, 0.19
    assert budget.limit(8) == 8
    # Eight rows cost 1.9 plain steps, so one takes 0.1 s.
    budget.observe(StepStats("x", 1, 1, 0, 2, "bonus", 0.05, 0.19, 0.0), (1, 2))
    assert list(state.times[""].drafts) == [pytest.approx(0.5)]
    # Another length of text is no reason to measure anew.
    assert Budget(state, context=9000, target=SharingTarget(shared)).limit(8) == 8
    shared.replies = 1
    assert budget.limit(8) == 0


def test_a_model_is_charged_what_its_tokens_add_to_the_rows_of_all():
    """Nine rows cost 0.5 plain steps more than eight; two cost 0.1 more than one."""
    shared = SharedPasses(replies=8, rows=9, tokens=8, seconds=0.1)
    state = BudgetState(COSTS)
    budget = Budget(state, context=100, target=SharingTarget(shared))
    before = state.drawing[""].account._balance
    budget._drawing.passes = 1
    budget.observe(StepStats("x", 1, 0, 0, 1, "residual", 0.0, 0.1, 0.0), (1,))
    spent = before - state.drawing[""].account._balance
    # At a lambda of one, and less the credit of a step.
    assert spent == pytest.approx(0.5, abs=0.01)
