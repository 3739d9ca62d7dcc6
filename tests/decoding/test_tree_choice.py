"""Why a tree was cut to what was verified: by hand, as the budget weighed it, and as it is told."""

import json

import pytest
from drafted_trees import trees
from flight import budget_of, known_state
from hypothesis import given
from hypothesis import strategies as st
from test_budget_rule import plain_step
from test_tree_budget import BUSHY, Choosy

from akunu_py.decoding.loop import decode
from akunu_py.decoding.tree_choice import TreeChoice, TreeCounts
from akunu_py.protocols import as_target
from akunu_py.testing import ScriptedDrafter, ToyTarget
from akunu_py.values.decode_stats import TreeCut, TreePart
from akunu_py.values.types import Draft


def sloped(slope, *, probes=False):
    budget = budget_of(known_state({1 + rows: 1 + slope * rows for rows in range(1, 9)}))
    budget._acceptance.probabilities = lambda draft: list(draft.confidence or BUSHY.confidence)
    if not probes:
        budget._allowance = -100.0
    return budget


def rounded(part):
    return part.nodes, round(part.tokens, 6), round(part.cost, 6)


@pytest.mark.parametrize(
    ("slope", "verified", "kept"),
    [
        (0.02, "tree", (6, 2.286, 0.12)),
        (0.3, "tree", (4, 1.976, 1.2)),
        (0.4, "chain", (3, 1.626, 1.2)),
        (0.8, "nothing", (0, 0.0, 0.0)),
    ],
)
def test_what_was_expected_by_hand(slope, verified, kept):
    """Reaches of BUSHY are 0.6, 0.35, 0.54, 0.03, 0.28 and 0.486, in all 2.286; a row costs slope."""
    budget = sloped(slope)
    budget.trim(BUSHY)
    cut = budget.tree.explain()
    assert (cut.nodes, cut.verified, cut.reason, cut.rate) == (6, verified, "gain", 1.0)
    assert rounded(cut.kept) == kept
    assert rounded(cut.whole) == (6, 2.286, round(6 * slope, 6))


def test_with_a_step_in_flight_the_first_level_is_free_and_one_branch_is_paid_for():
    budget = sloped(0.4)
    plain_step(budget)
    assert budget._in_flight
    budget.trim(BUSHY)
    cut = budget.tree.explain()
    checking = budget._costs.check_cost(budget._context) - 1
    # Below 1 two rows, of 0.4 plain steps each, below 2 one; 5 is not worth its row.
    assert cut.kept.nodes == 5
    assert cut.kept.tokens == pytest.approx(0.54 + 0.486 + 0.28)
    assert cut.kept.cost == pytest.approx(checking + 0.6 * 0.8 + 0.35 * 0.4)
    assert cut.whole.tokens == pytest.approx(0.54 + 0.486 + 0.28 + 0.03)
    assert cut.whole.cost == pytest.approx(checking + 0.6 * 1.2 + 0.35 * 0.4)


@given(trees(), st.floats(0.01, 1.2), st.booleans())
def test_what_was_verified_gained_most_by_what_is_told(draft, slope, in_flight):
    budget = sloped(slope)
    if in_flight:
        plain_step(budget)
    kept = budget.trim(draft)
    if draft.is_chain or not draft.tokens:
        assert budget.tree is None
        return
    cut = budget.tree.explain()

    def gain(part):
        return part.tokens - cut.rate * part.cost

    assert cut.kept.nodes == len(kept)
    if cut.verified != "nothing" and cut.reason == "gain":
        assert gain(cut.kept) > 0
        assert gain(cut.kept) >= gain(cut.whole) - 1e-9
    else:
        assert gain(cut.whole) <= 0.02 + 1e-9  # the least gain for which anything is drafted


def test_a_path_that_measures_and_a_target_without_trees_are_told_apart():
    budget = sloped(0.85, probes=True)
    reasons = set()
    for _ in range(20):
        budget.trim(BUSHY)
        reasons.add((budget.tree.verified, budget.tree.reason))
    assert reasons == {("nothing", "gain"), ("chain", "probe")}

    class Chains:
        def takes_tree(self, _draft):
            return False

    budget = sloped(0.02)
    budget._target = as_target(Chains())
    budget.trim(BUSHY)
    cut = budget.tree.explain()
    assert (cut.verified, cut.reason, cut.kept.nodes) == ("chain", "target", 3)
    assert cut.kept.tokens == pytest.approx(1.626)
    # A path is weighed by itself: in the tree siblings share what cannot be true of both.
    budget.trim(Draft((0, 1, 2), (-1, 0, -1), "sure", 0, (1.0, 1.0, 1.0)))
    cut = budget.tree.explain()
    assert (cut.kept, cut.whole.tokens) == (TreePart(2, 2.0, pytest.approx(0.04)), 1.5)


def test_the_loop_tells_with_a_budget_and_without():
    odd = Draft((0, 1, 2), (-1, -1, 1), "odd")
    even = Draft((0, 1), (-1, -1), "even")
    target = Choosy([1, 2], rule=lambda context: 1)
    drafter = ScriptedDrafter([odd, even, [1, 1]])
    steps = list(decode(target, drafter, 2, num_draft_tokens=4, max_tokens=7))
    found = [None if step.tree is None else step.tree.explain() for step in steps]
    assert found[:3] == [
        TreeCut(3, "chain", "target", TreePart(2), TreePart(3)),
        TreeCut(2, "tree", "all", TreePart(2), TreePart(2)),
        None,
    ]
    (step, *_) = decode(
        ToyTarget([1, 2], rule=lambda context: 1), ScriptedDrafter([BUSHY]), 2,
        num_draft_tokens=8, max_tokens=9, budget=sloped(0.02),
    )  # fmt: skip
    assert (step.tree.reason, step.tree.verified) == ("gain", "tree")


def test_a_step_has_it_in_json_without_what_nobody_weighed():
    target = Choosy([1, 2], rule=lambda context: 1)
    odd = Draft((0, 1, 2), (-1, -1, 1), "odd")
    (step, *_) = decode(target, ScriptedDrafter([odd]), 2, num_draft_tokens=4, max_tokens=7)
    record = step.stats.detail.to_dict()
    assert json.loads(json.dumps(record["tree"])) == {
        "nodes": 3, "verified": "chain", "reason": "target",
        "kept": {"nodes": 2}, "whole": {"nodes": 3},
    }  # fmt: skip


def choices(verified, reason="gain"):
    kept = {"tree": BUSHY, "chain": Draft.chain((1, 3)), "nothing": Draft.empty()}[verified]
    return TreeChoice(BUSHY, kept, reason)


def test_the_trees_of_a_reply_in_a_sentence():
    counts = TreeCounts()
    assert not str(counts)
    for verified in ("chain", "chain", "nothing"):
        counts.add(choices(verified))
    assert str(counts) == (
        "3 trees drafted: verified as trees 0, as chains 2, not at all 1; as much as paid"
    )
    counts.add(choices("tree"))
    counts.add(choices("chain", "target"))
    assert str(counts) == (
        "5 trees drafted: verified as trees 1, as chains 3, not at all 1; 1 of them since the "
        "model takes chains"
    )
