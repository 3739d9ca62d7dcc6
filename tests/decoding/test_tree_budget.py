"""The trees of plug-ins in a budget: cut by the rule that comes with the draft.

Mutants that these tests kill, by hand: only the nodes the target took counted as outcomes; a tree's
outcomes taken at the first step; a depth taken for the number of a node; a target asked of what is
cut off, or not asked; lambda left out of a price, or the check's price; a rule's part kept that gains
nothing; of the loop: a tree given to a target that does not take it, or a target asked before the
budget.
"""

import pytest
from flight import budget_of, observe
from test_budget_rule import UNIT_S, known_state, plain_step, step
from toy_drafters import ScriptedDrafter

from akunu_py.decoding.acceptance import Acceptance
from akunu_py.decoding.budget import Budget, BudgetState
from akunu_py.decoding.loop import decode
from akunu_py.testing import ToyTarget
from akunu_py.values.types import Draft

BUSHY = Draft((1, 2, 3, 4, 5, 6), (-1, -1, 0, 0, 1, 2), "", 0, (0.6, 0.35, 0.9, 0.05, 0.8, 0.9))


class Half(Draft):
    """A tree whose rule keeps the first half of its nodes, for a given gain."""

    gain = 1.0
    told = None

    def cut_tree(self, prices):
        type(self).told = prices
        return self.first(len(self) // 2), self.gain


def tree(gain=1.0):
    """A tree of six nodes, of a class of its own: its rule gains so many tokens."""
    kind = type("Ruled", (Half,), {"gain": gain})
    return kind(BUSHY.tokens, BUSHY.parents, "", 0, BUSHY.confidence)


def test_a_rule_is_told_what_rows_cost():
    budget = budget_of(known_state({1 + rows: 1 + 0.4 * rows for rows in range(1, 9)}))
    draft = tree()
    assert budget.trim(draft).tokens == (1, 2, 3)
    assert len(draft.told.probabilities) == 6
    assert [draft.told.price(rows) for rows in (0, 1, 2, 5)] == pytest.approx([0, 0.4, 0.8, 2])
    assert draft.told.checking is None
    budget.worth(2.0)
    plain_step(budget)
    assert budget.flight.in_flight
    budget.costs.check_cost = lambda _: 1.25
    budget.trim(draft)
    assert draft.told.price(5) == pytest.approx(2 * budget.rate, rel=1e-3)
    assert draft.told.checking == pytest.approx(0.25 * budget.rate)
    assert budget.rate > 1.5


@pytest.mark.parametrize("gain", [0.0, 0.01])
def test_what_gains_next_to_nothing_is_not_kept(gain):
    budget = budget_of(known_state({1 + rows: 1 + 0.4 * rows for rows in range(1, 9)}))
    budget.allowance = 0.0
    budget._acceptance.probabilities = lambda draft: list(draft.confidence)
    # The best chain of the whole tree is cut in its place.
    assert budget.trim(tree(gain)).tokens == (1, 3, 6)


@pytest.mark.parametrize("made", [BUSHY, tree()])
def test_of_a_tree_without_a_rule_the_best_chain_is_kept(made):
    budget = budget_of(known_state({1 + rows: 1 + 0.02 * rows for rows in range(1, 9)}))
    assert budget.trim(made).is_chain == (made is BUSHY)


def test_where_no_part_pays_a_chain_probes():
    budget = budget_of(known_state({2: 1.9, 3: 2.9, 9: 8.9}))
    budget._acceptance.probabilities = lambda draft: list(draft.confidence)
    assert {budget.trim(BUSHY).tokens for _ in range(20)} == {(), (1, 3)}


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
    budget = budget_of(known_state({2: 9.0, 9: 90.0}))
    observed = []
    monkeypatch.setattr(
        Acceptance, "observe", lambda self, draft, chosen: observed.append((draft, tuple(chosen)))
    )
    assert not budget.trim(BUSHY).tokens
    for output in outputs:
        assert not observed
        observe(budget, step(0, 0, UNIT_S), output)
    assert observed == [(BUSHY, seen)]


class Whole(Draft):
    """A tree that is kept whole."""

    def cut_tree(self, prices):
        return self, 1.0


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


@pytest.mark.parametrize("budget", ["none", "cold", "eager"])
def test_a_target_is_given_no_tree_that_it_does_not_take(monkeypatch, budget):
    odd = Whole((0, 1, 2), (-1, -1, 1), "odd")
    even = Whole((0, 1), (-1, -1), "even")
    target = Choosy([1, 2], rule=lambda context: 1)
    eager = Budget(known_state({2: 1.0, 9: 1.0}), context=2, target=target)
    monkeypatch.setattr(eager, "_measure", lambda *_: 1.0)
    cold = Budget(BudgetState(), context=2, target=target)
    budget = {"none": None, "cold": cold, "eager": eager}[budget]
    drafter = ScriptedDrafter([odd, even, [1, 1], odd])
    tokens = [
        token
        for step in decode(target, drafter, 2, num_draft_tokens=4, max_tokens=12, budget=budget)
        for token in step.token_ids
    ]
    assert tokens == [1] * 12
    assert all(draft.is_chain or len(draft) % 2 == 0 for draft in target.given)
    if budget is eager:
        assert not all(draft.is_chain for draft in target.given)
        assert target.given[0].tokens == (1, 2)  # the path of `odd`
    if budget is None:
        assert [(draft.tokens, draft.parents) for draft in target.given[:4]] == [
            ((1, 2), (-1, 0)), ((0, 1), (-1, -1)), ((1, 1), (-1, 0)), ((1, 2), (-1, 0)),
        ]  # fmt: skip


@pytest.mark.parametrize(("gain", "asked"), [(1.0, (3,)), (0.0, ())])
@pytest.mark.parametrize("taken", [True, False])
def test_a_target_is_asked_of_what_pays_alone(gain, asked, taken):
    class Asked:
        sizes = ()

        def takes_tree(self, draft):
            self.sizes += (len(draft),)
            return taken

    target = Asked()
    state = known_state({1 + rows: 1 + 0.02 * rows for rows in range(1, 9)})
    found = Budget(state, context=10, target=target).trim(tree(gain))
    assert target.sizes == asked
    assert found.tokens == ((1, 2, 3) if asked and taken else (1, 3, 6))
