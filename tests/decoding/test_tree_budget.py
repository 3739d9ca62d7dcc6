"""Which part of a tree pays, against all its parts by brute force.

Mutants that these tests kill, by hand: with a step in flight the first level counted as rows of the
pass; a first token kept below which nothing pays; the check's price left out or counted for each
child; reach not taken relative to the first token; siblings not shared out; a tree cut to the
nodes that come first.
"""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_draft_trees import trees

from akunu_py.decoding.tree_budget import paying_part
from akunu_py.draft_trees import reaches, shared_out, subtree
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
