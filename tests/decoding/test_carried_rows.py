"""Rows fed again after a rejection: carried in front of the next pass, or in one of their own.

On a simulated target whose caches drop no rows. A pass of their own reads the weights once more for
no token; carried rows may be fed several times, until a plain step takes them in. That is dearer
where rows are dear and drafts of a fixed size are verified all the same; with the size that pays it
is not.
"""

from dataclasses import dataclass

import pytest
from budget_simulation import SimulatedTarget, simulate
from pairwise import each_value
from test_budget import CURVES, FIXED, constant

from akunu_py.decoding.budget import BudgetState

MOST_CARRIED = 8


@dataclass
class Replaying(SimulatedTarget):
    """As `Session` over recurrent states; `at_once` feeds the rows to keep in a pass of their own."""

    at_once: bool = False
    own_rows: int = 0
    drafted: int = 0

    def max_draft_tokens(self):
        return 0 if self.carried_rows >= MOST_CARRIED else 64

    def replay_rows(self, num_accepted=0):
        return self.carried_rows + num_accepted + (0 if self.in_flight else 1)

    def plain_pass(self):
        if not self.carried_rows:
            super().plain_pass()
            return
        self.pass_over(1)
        self.carried_rows, self.in_flight = 0, self.pipelined

    def choose(self, last, draft):
        self.drafted = self.own_rows = 0
        if not draft.tokens:
            return super().choose(last, draft)
        self.own_rows = 0 if self.in_flight else 1
        choices = super().choose(last, draft)
        # With a step in flight a wrong first token leaves it in flight: no pass was run.
        self.drafted = 0 if self.in_flight else len(draft)
        return choices

    def pass_over(self, rows):
        super().pass_over(self.carried_rows + rows)

    def commit(self, accepted):
        if len(accepted) == self.drafted:
            if self.drafted:
                self.carried_rows = 0
        elif self.at_once:
            if self.own_rows + len(accepted):
                super().pass_over(self.own_rows + len(accepted))
        else:
            self.carried_rows += self.own_rows + len(accepted)
        super().commit(accepted)


def cost(name, rate, budget, *, at_once=False, tokens=500, state=None):
    return simulate(
        CURVES[name], constant(rate), tokens=tokens, budget=budget, state=state, kind=Replaying,
        at_once=at_once,
    )[0]  # fmt: skip


@pytest.mark.fast_every(2)
@pytest.mark.parametrize(("name", "rate"), each_value(tuple(CURVES), (0.3, 0.7, 0.9, 0.97)))
def test_with_the_size_that_pays_carrying_costs_less(name, rate):
    carried = min(cost(name, rate, size) for size in FIXED)
    at_once = min(cost(name, rate, size, at_once=True) for size in FIXED)
    assert carried <= at_once * 1.002
    state = BudgetState()
    cost(name, rate, "auto", tokens=1500, state=state)
    known = cost(name, rate, "auto", tokens=1500, state=state)
    assert known <= min(1.015, at_once * 1.05)


def test_drafts_that_do_not_pay_can_cost_more_carried():
    """Why the budget is told of the rows: drafts of four on a curve where none pays."""
    assert cost("steep", 0.5, 4) > 1.05 * cost("steep", 0.5, 4, at_once=True)
    assert cost("steep", 0.5, 4, at_once=True) > 1.5
