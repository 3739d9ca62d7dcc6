"""Passes counted by hand on tiny outputs."""

import pytest

from akunu_lab.replay.runner import ItemCounts, ReplayItem, replay_item
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import DecodeStats, Draft

CURVE = CostCurve({1: 1.0, 2: 1.5, 5: 3.0})


class Scripted:
    """Drafts what it is told to, pass by pass; keeps what it observed."""

    def __init__(self, *drafts):
        self.drafts = list(drafts)
        self.observed = []

    def observe(self, tokens):
        self.observed.append(tuple(tokens))

    def propose(self, limit):
        draft = self.drafts.pop(0)
        return draft if isinstance(draft, Draft) else Draft.chain(draft)


def item(output, prompt=(9,), session="x"):
    return ReplayItem("x", "code", session, 0, tuple(prompt), tuple(output))


def test_passes_by_hand():
    # 1 2 accepted, then 3 where 7 was drafted; nothing drafted; 5 6 accepted and 7 the target's own.
    drafter = Scripted([1, 2, 7, 8], [], [5, 6])
    counts = replay_item(item([1, 2, 3, 4, 5, 6, 7]), drafter, 4)
    assert drafter.observed == [(9,), (1, 2, 3), (4,), (5, 6, 7)]
    stats = counts.stats
    assert (stats.steps, stats.steps_with_draft, stats.output_tokens) == (3, 2, 7)
    assert (stats.drafted, stats.accepted, stats.tested) == (6, 4, 5)
    assert stats.drafted_per_position == (2, 2, 1, 1)
    assert stats.accepted_per_position == (2, 2, 0, 0)
    assert stats.tokens_per_pass == 7 / 3
    assert stats.fire_rate == 2 / 3
    assert stats.hit_rate == 4 / 6
    assert stats.alpha == 4 / 5
    # C(1 + 4), C(1) and C(1 + 2).
    assert counts.cost(CURVE) == 3.0 + 1.0 + 2.0


def test_what_is_drafted_beyond_the_end_costs_and_is_not_tested():
    counts = replay_item(item([1, 2]), Scripted([1, 2, 3, 4]), 4)
    assert (counts.stats.steps, counts.stats.output_tokens) == (1, 2)
    assert (counts.stats.drafted, counts.stats.accepted, counts.stats.tested) == (4, 2, 2)
    assert counts.cost(CURVE) == 3.0


def test_a_wrong_last_token_is_tested():
    counts = replay_item(item([1, 2]), Scripted([1, 3]), 4)
    assert (counts.stats.drafted, counts.stats.accepted, counts.stats.tested) == (2, 1, 2)


def test_without_drafts_each_token_is_a_pass():
    counts = replay_item(item([1, 2, 3]), Scripted(), 0)
    assert (counts.stats.steps, counts.cost(CURVE)) == (3, 3.0)
    assert counts.stats.hit_rate is None


def test_a_tree_is_walked_along_the_recorded_path():
    tree = Draft((5, 1, 2, 2), (-1, -1, 0, 1))
    counts = replay_item(item([1, 2, 3]), Scripted(tree), 4)
    assert (counts.stats.steps, counts.stats.accepted, counts.stats.drafted) == (1, 2, 4)


@pytest.mark.parametrize(
    ("drafted", "steps", "cost"), [((), 3, 3.0), ((2, 2, 1), 3, 1.0 + 2.0 + 2.5), ((1,), 1, 1.5)]
)
def test_the_cost_of_passes(drafted, steps, cost):
    stats = DecodeStats(steps=steps, drafted_per_position=drafted)
    assert ItemCounts(stats).cost(CURVE) == cost
