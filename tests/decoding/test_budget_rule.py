"""The rule of the budget, step by step, and what it learns from.

Mutants of the budget, made by hand, that these tests and those of test_budget.py and
test_pass_costs.py kill (each was tried):

1. lambda fixed at 1
2. a plain step costs C(1) of a pass alone instead of 1
3. with a step in flight the first token of a draft counted as part of the pass
4. an accepted draft's whole time taken for its pass, the step in flight before it included
5. drafts that were refused not compared with what the target chose
6. probing without an allowance
7. no probing
8. a pass's time added to the size of the draft as proposed instead of as cut
9. the mean of the samples instead of their median
10. a first pass that compiled its kernels counted
11. the pause of a dear drafter never ended by a draft that was right, or never begun
12. the price of a check left out, or the chance that nothing more than it is paid
13. a stall of the machine counted in full for lambda
14. drafts before the unit is known
15. a reply with penalties, or of a verifier, taken for one with a step in flight
16. the budget's answer ignored by the loop, or the loop's steps not told to the budget
17. stale costs kept that fresh ones of more rows refute; costs that fall with rows
18. outcomes counted behind the first wrong token; recent outcomes not counted
19. lambda below 1 where steps took longer than plain ones
20. tokens that must come left out where they do not pay, or learned from
21. a step that queues nothing taken for one that does
"""

import random

import pytest
from flight import UNIT_S, Flight, FlightBudget, budget_of, known_state, observe, step
from toy_drafters import OracleDrafter

from akunu_py.decoding.acceptance import Acceptance
from akunu_py.decoding.budget import Budget, BudgetState
from akunu_py.decoding.loop import decode
from akunu_py.drafting import PlainDrafter
from akunu_py.testing import ToyTarget
from akunu_py.values.types import Draft


def draft_of(size, confidence=None, source="test"):
    known = () if confidence is None else (confidence,) * size
    return Draft.chain(range(size), source, 3, known)


def plain_step(budget):
    observe(budget, step(0, 0, UNIT_S), (7,))


def taught(state, rate, size=8, times=400):
    """Teach the acceptance that each token of a draft is right with a rate."""
    acceptance = state.acceptance
    rng = random.Random(5)
    for _ in range(times):
        wrong = next((k for k in range(size) if rng.random() >= rate), size)
        chosen = [token if k < wrong else -2 for k, token in enumerate(range(size))]
        acceptance.recent = 0.5
        acceptance.observe(draft_of(size), chosen)
    acceptance.recent = 0.5


def test_lambda_is_1_at_least():
    """A plain step's time brings a token wherever it is spent."""
    budget = budget_of(known_state({2: 1.0, 9: 1.0}))
    for _ in range(50):
        observe(budget, step(0, 0, 3 * UNIT_S), (7,))
        assert budget.rate == 1.0
    for _ in range(50):
        observe(budget, step(3, 3, UNIT_S), (7, 7, 7, 7))
    assert budget.rate > 1.5


def test_nothing_is_drafted_before_the_unit_is_known():
    budget = budget_of(BudgetState())
    assert budget.limit(8) == 0
    for _ in range(4):
        plain_step(budget)
    assert budget.limit(8) == 8


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ({2: 1.0, 5: 1.0, 9: 1.0}, 8),
        ({2: 1.1, 3: 1.2, 4: 3.0, 9: 8.0}, 2),
        ({2: 2.5, 5: 5.5, 9: 9.5}, 0),
        ({2: 1.9, 3: 2.9, 4: 3.9, 5: 1.1, 6: 5.0}, 4),
    ],
)
def test_the_size_that_brings_most(points, expected):
    state = known_state(points)
    taught(state, 0.9)
    budget = budget_of(state)
    budget.allowance = 0.0
    assert len(budget.trim(draft_of(8))) == expected


@pytest.mark.parametrize("sure", [0, 3, 8])
def test_what_must_come_is_verified_whatever_it_costs(sure):
    """And nothing is learned of a drafter from a draft that leaves no choice."""
    state = known_state({2: 5.0, 9: 20.0})
    budget = budget_of(state)
    budget.allowance = 0.0
    before = state.acceptance.probabilities(draft_of(8))
    kept = budget.trim(Draft.chain(range(8), "test", 3, sure=sure))
    assert (len(kept), kept.sure) == (sure, sure)
    observe(budget, step(sure, sure, UNIT_S), (*range(sure), -2))
    assert (state.acceptance.probabilities(draft_of(8)) == before) == (sure == 8)
    assert kept.first(2).sure == min(sure, 2)


def test_a_short_draft_is_not_lengthened():
    state = known_state({2: 1.0, 9: 1.0})
    assert len(budget_of(state).trim(draft_of(1, 0.9))) == 1
    empty = Draft.empty("test")
    assert budget_of(state).trim(empty) is empty


def test_with_a_step_in_flight_the_first_token_is_free():
    """One token: it is checked for nothing, and a pass would bring no more than a plain step."""
    state = known_state({0: 1.0, 1: 1.0, 2: 1.3, 3: 1.6})
    taught(state, 0.9)
    cold = budget_of(state)
    cold.allowance = 0.0
    assert len(cold.trim(draft_of(1))) == 1
    hot = budget_of(state)
    hot.allowance = 0.0
    plain_step(hot)
    assert len(hot.trim(draft_of(1))) == 0
    plain_step(hot)
    assert len(hot.trim(draft_of(2))) == 2
    alone = budget_of(state, pipelined=False)
    alone.allowance = 0.0
    plain_step(alone)
    assert len(alone.trim(draft_of(1))) == 1


def test_a_dear_check_needs_a_first_token_that_is_likely():
    for check, expected in ((1.0, 8), (2.5, 0)):
        state = known_state({0: check, 2: 1.2, 9: 1.3})
        taught(state, 0.6)
        budget = budget_of(state)
        budget.allowance = 0.0
        plain_step(budget)
        assert len(budget.trim(draft_of(8))) == expected


def test_lambda_is_the_ratio_of_tokens_to_cost():
    budget = budget_of(known_state({2: 1.0, 5: 1.25}), pipelined=False)
    assert budget.rate == 1.0
    for _ in range(400):
        observe(budget, step(4, 4, 1.25 * UNIT_S), (0, 1, 2, 3, 4))
    assert budget.rate == pytest.approx(4.0, rel=0.02)
    for _ in range(400):
        plain_step(budget)
    assert budget.rate == pytest.approx(1.0, rel=0.02)
    # A stall of a hundred steps does not make the time of one less worth.
    for _ in range(100):
        observe(budget, step(4, 4, 1.25 * UNIT_S), (0, 1, 2, 3, 4))
    before = budget.rate
    observe(budget, step(4, 4, 100 * UNIT_S), (0, 1, 2, 3, 4))
    assert budget.rate > 0.85 * before


def test_where_time_is_worth_more_less_is_drafted():
    state = known_state({2: 1.3, 3: 1.6, 4: 1.9, 5: 2.2, 9: 3.4})
    taught(state, 0.8)
    sizes = []
    for rate in (1.0, 1.6, 2.2):
        budget = budget_of(state)
        budget.allowance = 0.0
        budget.worth(rate)
        sizes.append(len(budget.trim(draft_of(8))))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]


def test_times_go_to_the_size_that_was_verified():
    state = known_state({2: 1.1, 3: 1.1, 4: 9.0, 9: 20.0})
    budget = budget_of(state)
    assert len(budget.trim(draft_of(8, 0.9))) == 2
    for _ in range(9):
        budget.flight.in_flight = False
        observe(budget, step(2, 2, 1.5 * UNIT_S), (0, 1, 2))
    assert state.costs.cost(10, 3) == pytest.approx(1.5)
    assert state.costs.cost(10, 9) == 20.0


def test_the_step_in_flight_is_not_part_of_the_pass():
    state = known_state({0: 1.0, 4: 2.0})
    budget = budget_of(state)
    for _ in range(15):
        plain_step(budget)
        observe(budget, step(4, 4, 2.2 * UNIT_S), (0, 1, 2, 3, 9))
    assert state.costs.cost(10, 4) == pytest.approx(1.2)
    # Where a restart waits for the step it puts in flight, nobody waits for that step again.
    for _ in range(15):
        budget.flight.in_flight = False
        observe(budget, step(0, 0, 2.0 * UNIT_S), (7,))
        observe(budget, step(4, 4, 1.6 * UNIT_S), (0, 1, 2, 3, 9))
    assert state.costs.cost(10, 4) == pytest.approx(1.6, rel=0.05)
    for _ in range(9):
        plain_step(budget)
        observe(budget, step(4, 0, 1.3 * UNIT_S), (9,))
    assert state.costs.check_cost(10) == pytest.approx(1.3)
    assert budget.flight.in_flight


def test_a_step_that_queues_the_next_one_waits_for_a_part_of_it():
    """And one that queues nothing tells nothing of the unit, or of that part."""
    state = known_state({4: 2.0})
    budget = budget_of(state)
    target, costs = budget.flight, state.costs
    for _ in range(5):
        target.in_flight = False
        observe(budget, step(0, 0, 1.6 * UNIT_S), (7,))
    assert costs.prepaid == pytest.approx(0.6)
    for found, pass_s in ((True, 0.4 * UNIT_S), (False, UNIT_S)):
        for _ in range(9):
            target.in_flight, target.look_ahead = found, False
            observe(budget, step(0, 0, pass_s), (7,))
    assert (costs.prepaid, costs.unit_s) == pytest.approx((0.6, UNIT_S))


def test_a_step_shorter_than_the_one_in_flight_makes_no_time_negative():
    state = known_state({0: 1.0, 4: 2.0})
    budget = budget_of(state)
    for _ in range(15):
        budget.flight.in_flight = True
        observe(budget, step(4, 4, 0.5 * UNIT_S), (0, 1, 2, 3, 9))
        assert state.costs.unit_s > 0


def test_refused_drafts_teach_what_they_were_worth():
    state = known_state({2: 5.0, 9: 20.0})
    budget = budget_of(state)
    budget.allowance = 0.0
    for _ in range(30):
        draft = draft_of(4)
        assert len(budget.trim(draft)) == 0
        for token in draft.tokens:
            observe(budget, step(0, 0, UNIT_S), (token,))
            if token < 3:
                assert len(budget.trim(draft_of(4))) == 0
    state.acceptance.recent = 0.95
    assert min(state.acceptance.probabilities(draft_of(4))) > 0.85


@pytest.mark.parametrize(("queues", "pipelined"), [(True, False), (False, True)])
def test_replies_without_a_step_in_flight_have_costs_of_their_own(queues, pipelined):
    """Penalties need each token first, and a verifier the distributions."""
    state = known_state({4: 2.0})
    target = Flight(pipelined=queues)
    budget = FlightBudget(state, target=target, pipelined=pipelined)
    for _ in range(9):
        target.look_ahead = False
        observe(budget, step(0, 0, 3 * UNIT_S), (7,))
        observe(budget, step(3, 3, 4.5 * UNIT_S), (0, 1, 2, 3))
    assert (state.costs.unit_s, state.costs.cost(10, 4)) == (UNIT_S, 2.0)
    costs = state.costs_alone
    assert (costs.unit_s, costs.cost(10, 4)) == pytest.approx((3 * UNIT_S, 1.5))


def test_a_probe_takes_from_what_may_be_lost():
    state = known_state({2: 1.9, 3: 2.9, 9: 8.5})
    taught(state, 0.7)
    budget = budget_of(state)
    sizes = [len(budget.trim(draft_of(8))) for _ in range(50)]
    assert 0 < sum(size > 0 for size in sizes) < 10
    for _ in range(1000):
        plain_step(budget)
    assert budget.allowance <= 4.0


@pytest.mark.parametrize("second", [1, 9])
def test_the_pause_of_a_dear_drafter_ends_when_it_was_right(second):
    budget = budget_of(known_state({2: 5.0, 9: 20.0}))
    budget.allowance = 0.0
    budget.drafter_time.add(0.5, 2, drafted=True)
    assert len(budget.trim(draft_of(2))) == 0
    assert budget.drafter_time.resting
    for token in (0, second):
        observe(budget, step(0, 0, UNIT_S), (token,))
    assert budget.drafter_time.resting == (second != 1)


class Listening(PlainDrafter):
    def __init__(self, told):
        self.told = told

    def use_curve(self, curve):
        self.told.append(curve)


def test_drafters_that_look_at_costs_are_told_them():
    told = []
    budget = FlightBudget(known_state({2: 1.1, 5: 1.7}), drafter=Listening(told))
    assert [told[-1].cost(rows) for rows in (1, 2, 5)] == pytest.approx([1, 1.1, 1.7])
    for _ in range(32):
        budget.flight.in_flight = False
        observe(budget, step(4, 4, 3.0 * UNIT_S), (0, 1, 2, 3, 4))
    assert told[-1].cost(5) == pytest.approx(3.0)


@pytest.mark.parametrize("seed", range(5))
def test_a_budget_changes_no_token(seed):
    prompt = [1, 2, 3]
    target = ToyTarget(prompt, vocabulary_size=5, seed=seed)
    drafter = OracleDrafter(target.rule, 6)
    drafter.observe(prompt)
    budget = Budget(BudgetState(), context=3, target=target)
    steps = decode(
        target, drafter, 3, num_draft_tokens=6, max_tokens=100, budget=budget
    )  # fmt: skip
    assert [t for step in steps for t in step.token_ids] == target.plain(prompt, 100)


def test_estimates_of_acceptance():
    acceptance = Acceptance()
    long_match = Draft.chain([1] * 4, "a", 30)
    short_match = Draft.chain([1] * 4, "a", 1)
    assert acceptance.probabilities(long_match)[0] > acceptance.probabilities(short_match)[0]
    sure, unsure = draft_of(4, 0.99, "b"), draft_of(4, 0.2, "b")
    assert acceptance.probabilities(sure)[0] > acceptance.probabilities(unsure)[0] + 0.3
    for _ in range(100):
        acceptance.recent = 0.5
        acceptance.observe(long_match, [9])
        acceptance.recent = 0.5
        acceptance.observe(short_match, [1, 1, 1, 1])
    acceptance.recent = 0.5
    assert acceptance.probabilities(long_match)[0] < 0.1
    assert min(acceptance.probabilities(short_match)) > 0.9
    # Another source starts afresh, and positions that were never tested stay near the prior.
    assert acceptance.probabilities(Draft.chain([1], "c", 30))[0] > 0.8
