"""A model's account: each draft is charged what it cost and credited what it brought.

Mutants of `Budget._settle` and `DrawingAccount`, made by hand, that these tests kill (each was
tried): the copied tokens credited, too; the pass of a plain step charged; the check or its pass left
out; the model's own passes left out; an empty account that still draws; no upper limit; one lambda
for all drawn tokens, or the other.
"""

import pytest
from flight import UNIT_S, Flight, FlightBudget, balance_of, known_state, observe, step

from akunu_py.decoding.drafter_time import DrawingAccount, DrawingState
from akunu_py.values.types import Draft

COSTS = {2: 1.1, 3: 1.3, 4: 1.6, 5: 2.0, 6: 2.5}
OWN = 0.05
CHECK = 1.02


def balance_after(copied, drawn, accepted, *, in_flight, kept=None, passes=None):
    """Return what one step with a drawn draft did to the account."""
    state = known_state(COSTS)
    state.drawing["auto"] = DrawingState()
    state.drawing["auto"].times.tokens.append(OWN)
    for _ in range(60):
        state.acceptance.observe(Draft.chain([1] * 4, "auto", 0, (0.9,) * 4, drawn=4), [1] * 4)
    target = Flight()
    budget = FlightBudget(state, target=target, name="auto")
    budget.limit(9)
    target.in_flight = in_flight
    before = Draft.chain(range(copied), "auto", 9, (0.95,) * copied)
    tokens = []
    passes = drawn if passes is None else passes
    for number in range(passes):
        assert budget.pays(before, tokens, room=9, passes=1)
        if number < drawn:
            tokens.append(DRAWN)
    account = state.drawing["auto"].account
    account.add_draft(5.0, balance_of(account))
    draft = Draft.chain(range(copied + drawn), "auto", 9, (0.95,) * (copied + drawn), drawn=drawn)
    budget.trim(draft)
    kept = copied + drawn if kept is None else kept
    # Equal times, so that the model's time of a pass stays what it is.
    done = step(kept, accepted, UNIT_S, propose_s=passes * OWN * UNIT_S)
    observe(budget, done, tuple(range(accepted + 1)))
    assert budget.drawing.a_pass == pytest.approx(OWN)
    return balance_of(account) - 5.0 - 0.005


class DRAWN:
    token, probability = 7, 0.95


@pytest.mark.parametrize(
    ("copied", "drawn", "accepted", "in_flight", "brought", "cost"),
    [
        # Without a step in flight: the further rows and the model's passes.
        (0, 2, 2, False, 2, 0.3 + 2 * OWN),
        (0, 2, 0, False, 0, 0.3 + 2 * OWN),
        (0, 1, 1, False, 1, 0.1 + OWN),
        # Behind copies: only what lies behind them is brought and charged.
        (2, 2, 4, False, 2, (2.0 - 1.3) + 2 * OWN),
        (2, 2, 1, False, 0, (2.0 - 1.3) + 2 * OWN),
        # Behind a step in flight a right first token costs a pass more than a plain step.
        (0, 2, 2, True, 2, (CHECK - 1) + 1.1 + 2 * OWN),
        (0, 1, 1, True, 1, (CHECK - 1) + 1.0 + OWN),
        # The check alone was measured here, and took no longer than a plain step.
        (0, 2, 0, True, 0, 2 * OWN),
        (2, 2, 3, True, 1, (1.6 - 1.1) + 2 * OWN),
        (2, 2, 0, True, 0, 2 * OWN),
    ],
)
def test_what_a_draft_cost_and_brought(copied, drawn, accepted, in_flight, brought, cost):
    found = balance_after(copied, drawn, accepted, in_flight=in_flight)
    assert found == pytest.approx(brought - cost)


def test_passes_for_tokens_that_were_cut_are_charged():
    assert balance_after(0, 3, 0, in_flight=False, kept=0) == pytest.approx(-3 * OWN)
    assert balance_after(0, 3, 1, in_flight=False, kept=1) == pytest.approx(1 - 0.1 - 3 * OWN)
    assert balance_after(2, 2, 1, in_flight=False, kept=1) == pytest.approx(-2 * OWN)


def test_an_empty_account_draws_nothing():
    state = known_state(COSTS)
    state.drawing["auto"] = DrawingState()
    for _ in range(60):
        state.acceptance.observe(Draft.chain([1] * 4, "auto", 0, (0.9,) * 4, drawn=4), [1] * 4)
    budget = FlightBudget(state, name="auto")
    budget.limit(9)
    vague = Draft.chain([1], "auto", 1, (0.05,))
    assert budget.pays(Draft.empty(), (), room=4)
    assert budget.draws_instead(vague, room=4)
    state.drawing["auto"].account.add_draft(0.0, 2.0)
    assert not budget.pays(Draft.empty(), (), room=4)
    assert not budget.draws_instead(vague, room=4)
    budget.trim(Draft.empty())
    observe(budget, step(0, 0, UNIT_S), (1,))
    assert budget.pays(Draft.empty(), (), room=4)


@pytest.mark.parametrize(
    ("everywhere", "elsewhere", "draws"), [(4.0, 1.0, True), (1.0, 4.0, False)]
)
def test_a_token_is_worth_what_it_costs_where_nothing_is_copied(everywhere, elsewhere, draws):
    """A drawn token brings 0.9 here and costs 0.2 and 0.3 of a pass: that pays at 1, not at 4."""
    state = known_state({2: 1.3, 3: 3.0})
    state.drawing["auto"] = DrawingState()
    state.drawing["auto"].times.tokens.append(0.2)
    drawn = Draft.chain([1], "auto", 0, (0.9,), drawn=1)
    for _ in range(60):
        state.acceptance.observe(drawn, [1])
    budget = FlightBudget(state, name="auto")
    budget.allowance = 0.0
    budget.worth(everywhere, elsewhere)
    budget.limit(9)
    assert budget.pays(Draft.empty(), (), room=1)
    state.drawing["auto"].account.add_draft(0.0, 1.95)
    assert budget.pays(Draft.empty(), (), room=1) == draws
    assert len(budget.trim(drawn)) == draws


@pytest.mark.parametrize(
    ("everywhere", "elsewhere", "draws"), [(4.0, 1.0, False), (1.0, 4.0, True)]
)
def test_behind_copies_a_token_is_worth_what_it_is_everywhere(everywhere, elsewhere, draws):
    """A drawn token brings 0.9 and costs 0.1 and 0.2 of a pass: that pays at 1, not at 4."""
    state = known_state({2: 1.05, 3: 1.15, 4: 3.0})
    state.drawing["auto"] = DrawingState()
    account = state.drawing["auto"].account
    state.drawing["auto"].times.tokens.append(0.2)
    draft = Draft.chain([1, 1], "auto", 9, (0.95, 0.9), drawn=1)
    for _ in range(200):
        state.acceptance.observe(draft, [1, 1])
    budget = FlightBudget(state, name="auto")
    budget.allowance = 0.0
    budget.worth(everywhere, elsewhere)
    budget.limit(9)
    assert budget.pays(draft.first(1), (), room=1) == draws
    # Drawn all the same, it is charged at this value.
    budget.drawing.passes = 1
    budget.trim(draft)
    before = balance_of(account)
    observe(budget, step(2, 1, UNIT_S, propose_s=0.2 * UNIT_S), (1, 1))
    assert balance_of(account) - before - 0.005 == pytest.approx(-everywhere * (0.1 + 0.2))


def test_only_steps_without_copies_tell_what_a_drawn_token_is_worth():
    budget = FlightBudget(known_state(COSTS), target=Flight(pipelined=False), name="auto")
    before = budget.drawing.rate.value
    for draft, grows in (
        (Draft.chain(range(4), "auto", 9, (0.95,) * 4), False),
        (Draft.chain(range(4), "auto", 9, (0.95,) * 4, drawn=2), False),
        (Draft.chain(range(4), "auto", 9, (0.95,) * 4, drawn=4), True),
    ):
        budget.limit(9)
        budget.trim(draft)
        observe(budget, step(4, 4, UNIT_S), tuple(range(5)))
        assert (budget.drawing.rate.value > before) == grows
        assert budget.rate > 1.2


def test_the_account_forgets_old_gains():
    account = DrawingAccount()
    for _ in range(100):
        account.add_draft(1.0, 0.0)
    account.add_draft(0.0, 15.0)
    assert account.covers(0.9)
    assert not account.covers(1.0)
