"""Trees of drafted tokens: what a draft says of its shape, against all its paths.

Mutants that these tests kill, by hand: the largest single reach for the best chain, or the longest
path; a part with the parents of the whole; a walk that goes on behind a leaf.
"""

import math

import pytest
from drafted_trees import trees
from hypothesis import given
from hypothesis import strategies as st

from akunu_py.decoding.loop import verify_match
from akunu_py.values.types import Draft

TREE = Draft((5, 6, 7, 5, 8, 9), (-1, -1, 0, 0, 1, 4), "t", 3, (0.5, 0.4, 0.9, 0.1, 0.5, 0.5))


def test_depths():
    assert TREE.depths() == [0, 0, 1, 1, 1, 2]


def test_a_part_keeps_shape_and_confidence():
    assert TREE.part([4, 1, 5]) == Draft((6, 8, 9), (-1, 0, 1), "t", 3, (0.4, 0.5, 0.5))
    assert TREE.part(range(6)) is TREE
    assert Draft((1, 2), (-1, -1)).part([1]) == Draft((2,), (-1,))
    assert Draft.chain((1, 2, 3), drawn=2).part([0, 1]).drawn == 1


def test_the_best_chain_is_the_path_that_brings_most():
    assert TREE.best_chain().tokens == (5, 7)
    assert Draft(TREE.tokens, TREE.parents).best_chain().tokens == (6, 8, 9)
    assert Draft((1, 2), (-1, -1)).best_chain().tokens == (1,)
    chain = Draft.chain((1, 2, 3))
    assert chain.best_chain() is chain


@given(trees())
def test_the_best_chain_against_all_paths(draft):
    def brings(node):
        path, reach = [], 1.0
        while node >= 0:
            path.append(node)
            node = draft.parents[node]
        found = 0.0
        for node in reversed(path):
            reach *= draft.confidence[node]
            found += reach
        return found

    chain = draft.best_chain()
    assert chain.is_chain
    gathered = sum(math.prod(chain.confidence[: node + 1]) for node in range(len(chain)))
    assert gathered == pytest.approx(max(brings(node) for node in range(len(draft))))


def test_a_walk_follows_the_tokens_to_where_they_leave_the_tree():
    assert list(TREE.walk((6, 8, 9, 1))) == [([0, 1], 1), ([4], 4), ([5], 5)]
    assert list(TREE.walk((5, 5, 9))) == [([0, 1], 0), ([2, 3], 3)]
    assert list(TREE.walk((5, 9, 5))) == [([0, 1], 0), ([2, 3], None)]
    assert list(TREE.walk((9,))) == [([0, 1], None)]
    assert list(TREE.walk(())) == []
    chain = Draft.chain((1, 2, 3))
    assert list(chain.walk((1, 2))) == [((0,), 0), ((1,), 1)]
    assert list(chain.walk((1, 3, 3))) == [((0,), 0), ((1,), None)]


@given(trees(), st.lists(st.integers(0, 8), max_size=9))
def test_a_walk_is_what_verification_accepts(draft, chosen):
    accepted = [taken for _, taken in draft.walk(chosen) if taken is not None]
    following = dict.fromkeys(range(-1, len(draft)), -5)
    node = -1
    for token in chosen:
        following[node] = token
        node = next(
            (n for n in range(len(draft)) if draft.parents[n] == node and draft.tokens[n] == token),
            None,
        )
        if node is None:
            break
    verification = verify_match(draft, [following[node] for node in range(-1, len(draft))])
    assert list(verification.accepted) == accepted
