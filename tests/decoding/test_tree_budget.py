"""Which part of a tree pays, against all its parts by brute force.

Mutants that these tests kill, by hand: with a step in flight the first level counted as rows of the
pass; a first token kept below which nothing pays; the check's price left out or counted for each
child; reach not taken relative to the first token; siblings not shared out; a tree cut to the
nodes that come first.

Of the budget: a tree's rows behind the step in flight counted as those of the whole; only the nodes
the target took counted as outcomes; a tree's outcomes taken at the first step; a depth taken for the
number of a node; of the loop: a tree given to a target that does not take it.
"""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_budget_rule import UNIT_S, known_state, plain_step, step
from test_draft_trees import trees

from akunu_py.decoding.acceptance import Acceptance
from akunu_py.decoding.budget import Budget, BudgetState
from akunu_py.decoding.loop import decode
from akunu_py.decoding.tree_budget import paying_part
from akunu_py.draft_trees import reaches, shared_out, subtree
from akunu_py.testing import ScriptedDrafter, ToyTarget
from akunu_py.types import Draft

BUSHY = Draft((1, 2, 3, 4, 5, 6), (-1, -1, 0, 0, 1, 2), "", 0, (0.6, 0.35, 0.9, 0.05, 0.8, 0.9))


def closed(draft):
    for size in range(len(draft) + 1):
        for nodes in combinations(range(len(draft)), size):
            if all(draft.parents[node] in (-1, *nodes) for node in nodes):
                yield nodes


@given(trees(), st.floats(0.0, 0.6), st.floats(0.5, 2.0))
def test_alone_it_is_the_best_of_all_parts(draft, slope, power):
    def price(rows):
        return slope * rows**power

    reach = reaches(draft, shared_out(draft, draft.confidence))

    def gain(nodes):
        return sum(reach[node] for node in nodes) - (price(len(nodes)) if nodes else 0.0)

    best = paying_part(draft, draft.confidence, price, in_flight=False)
    assert best.nodes in closed(draft)
    assert best.gain == pytest.approx(gain(best.nodes))
    assert best.gain == pytest.approx(max(gain(nodes) for nodes in closed(draft)))


@given(trees(7), st.floats(0.0, 0.6), st.floats(0.0, 0.3))
def test_in_flight_it_is_the_best_of_all_parts(draft, slope, checking):
    """The pass has the right first token's row, as a plain step has, and the nodes below it."""

    def price(rows):
        return slope * rows

    chances = shared_out(draft, draft.confidence)
    reach = reaches(draft, chances)

    def gain(nodes):
        if not nodes:
            return 0.0
        found = -checking
        for root in (node for node in nodes if draft.parents[node] < 0):
            below = [node for node in subtree(draft, root)[1:] if node in nodes]
            found += sum(reach[node] for node in below) - chances[root] * price(len(below))
        return found

    best = paying_part(draft, draft.confidence, price, in_flight=True, checking=checking)
    assert best.nodes in closed(draft)
    assert best.gain == pytest.approx(gain(best.nodes))
    assert best.gain == pytest.approx(max(gain(nodes) for nodes in closed(draft)))
    # What ends the pipeline brings more than that.
    for root in (node for node in best.nodes if draft.parents[node] < 0):
        assert any(draft.parents[node] == root for node in best.nodes)


@pytest.mark.parametrize(
    ("slope", "expected"),
    [(0.02, (0, 1, 2, 3, 4, 5)), (0.3, (0, 1, 2, 5)), (0.4, (0, 2, 5)), (0.7, ())],
)
def test_the_dearer_a_row_the_narrower_the_tree(slope, expected):
    """Down to a chain, and to nothing."""
    best = paying_part(BUSHY, BUSHY.confidence, lambda rows: slope * rows, in_flight=False)
    assert best.nodes == expected


@pytest.mark.parametrize(
    ("slope", "expected"), [(0.02, BUSHY.tokens), (0.3, (1, 2, 3, 6)), (0.4, (1, 3, 6)), (0.8, ())]
)
def test_the_budget_keeps_the_part_that_pays(slope, expected):
    budget = Budget(known_state({1 + rows: 1 + slope * rows for rows in range(1, 9)}), context=10)
    budget._allowance = 0.0
    budget._acceptance.probabilities = lambda draft: list(draft.confidence)
    assert budget.trim(BUSHY).tokens == expected


def test_where_no_part_pays_a_chain_probes():
    budget = Budget(known_state({2: 1.9, 3: 2.9, 9: 8.9}), context=10)
    budget._acceptance.probabilities = lambda draft: list(draft.confidence)
    cuts = {budget.trim(BUSHY).tokens for _ in range(20)}
    assert cuts == {(), (1, 3)}


@pytest.mark.parametrize(
    ("in_flight", "output", "rows"),
    [(True, (2, 9), 2), (True, (1, 3, 9), 4), (False, (2, 9), 7), (False, (9,), 7)],
)
def test_a_pass_behind_the_step_in_flight_has_the_rows_of_one_branch(
    monkeypatch, in_flight, output, rows
):
    state = known_state({2: 1.0, 9: 1.0})
    budget = Budget(state, context=10)
    budget._acceptance.probabilities = lambda draft: list(draft.confidence)
    plain_step(budget)
    budget._in_flight = in_flight
    assert budget.trim(BUSHY) == BUSHY
    measured = []
    monkeypatch.setattr(state.costs, "add_pass", lambda context, rows, _: measured.append(rows))
    budget.observe(step(6, len(output) - 1, UNIT_S), output)
    assert measured == [rows]


def outcomes(acceptance):
    """By class of confidence, where there is one, and of depth."""
    return {
        (key[1], key[2]): tuple(cell)
        for key, cell in acceptance._tables[""].items()
        if len(key) == 4 and key[1] >= 0
    }


def test_all_children_of_an_accepted_node_are_outcomes():
    tree = Draft((1, 2, 3, 4), (-1, -1, 1, 1), "", 0, (0.9, 0.5, 0.7, 0.1))
    acceptance = Acceptance()
    acceptance.observe(tree, (2, 4))
    # By confidence, then depth: at the first level the second is right, at the next the last.
    assert outcomes(acceptance) == {
        (3, 0): (0.0, 1.0), (1, 0): (1.0, 1.0), (2, 1): (0.0, 1.0), (0, 1): (1.0, 1.0)
    }  # fmt: skip
    acceptance.observe(tree, (1, 4))
    assert outcomes(acceptance)[2, 1] == (0.0, 1.0)


def test_a_node_is_estimated_by_its_depth():
    acceptance = Acceptance()
    chain = Draft.chain((1, 2), "", 0, (0.5, 0.5))
    for _ in range(50):
        acceptance.recent = 0.5
        acceptance.observe(chain, (1, 9))
    acceptance.recent = 0.5
    first, second, below = acceptance.probabilities(
        Draft((1, 2, 3), (-1, -1, 0), "", 0, (0.5, 0.5, 0.5))
    )
    assert first == second > 0.8
    assert below < 0.2


@pytest.mark.parametrize(
    ("outputs", "seen"),
    [(((1, 3, 9),), (1, 3, 9)), (((1,), (3,), (6,)), (1, 3, 6)), (((1,), (9,)), (1, 9))],
)
def test_a_tree_not_verified_is_compared_with_what_came_instead(monkeypatch, outputs, seen):
    budget = Budget(known_state({2: 9.0, 9: 90.0}), context=10)
    observed = []
    monkeypatch.setattr(
        Acceptance, "observe", lambda self, draft, chosen: observed.append((draft, tuple(chosen)))
    )
    assert not budget.trim(BUSHY).tokens
    for output in outputs:
        assert not observed
        budget.observe(step(0, 0, UNIT_S), output)
    assert observed == [(BUSHY, seen)]


class Choosy(ToyTarget):
    """Takes trees of an even number of nodes; counts what it was given."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.given = []

    def takes_tree(self, draft):
        assert not draft.is_chain
        return len(draft) % 2 == 0

    def choose(self, last, draft):
        self.given.append(draft)
        return super().choose(last, draft)


@pytest.mark.parametrize("budget", [None, Budget(BudgetState(), context=2)])
def test_a_target_is_given_no_tree_that_it_does_not_take(budget):
    odd = Draft((0, 1, 2), (-1, -1, 1), "odd")
    even = Draft((0, 1), (-1, -1), "even")
    target = Choosy([1, 2], rule=lambda context: 1)
    drafter = ScriptedDrafter([odd, even, [1, 1], odd])
    tokens = [
        token
        for step in decode(target, drafter, 2, num_draft_tokens=4, max_tokens=12, budget=budget)
        for token in step.token_ids
    ]
    assert tokens == [1] * 12
    if budget is None:
        assert target.given[:4] == [
            Draft.chain((1, 2), "scripted"), Draft(even.tokens, even.parents, "scripted"), Draft.chain((1, 1), "scripted"),
            Draft.chain((1, 2), "scripted"),
        ]  # fmt: skip
