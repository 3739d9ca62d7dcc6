"""Trees of drafted tokens, against all their subtrees by brute force.

Mutants that these tests kill, by hand: reach without the parent's; siblings not shared out; the
largest single reach for the best chain; equal siblings kept apart; the smaller confidence kept;
nodes in the order they were added.
"""

from itertools import combinations

import pytest
from drafted_trees import trees
from hypothesis import given
from hypothesis import strategies as st

from akunu_py.decoding.loop import verify_match
from akunu_py.values.draft_trees import (
    best_chain,
    depths,
    merge,
    part,
    reaches,
    scale_siblings,
    subtree,
    walk,
)
from akunu_py.values.types import Draft

TREE = Draft((5, 6, 7, 5, 8, 9), (-1, -1, 0, 0, 1, 4), "t", 3, (0.5, 0.4, 0.9, 0.1, 0.5, 0.5))


def closed_parts(draft, size):
    for nodes in combinations(range(len(draft)), size):
        if all(draft.parents[node] in (-1, *nodes) for node in nodes):
            yield nodes


def test_depths_reaches_and_subtrees():
    assert depths(TREE) == [0, 0, 1, 1, 1, 2]
    assert reaches(TREE, TREE.confidence) == pytest.approx([0.5, 0.4, 0.45, 0.05, 0.2, 0.1])
    assert subtree(TREE, 0) == [0, 2, 3]
    assert subtree(TREE, 1) == [1, 4, 5]
    assert subtree(TREE, 5) == [5]


def test_siblings_share_one():
    draft = Draft((1, 2, 3, 4), (-1, -1, 0, 0), "", 0, (0.9, 0.9, 0.3, 0.3))
    assert scale_siblings(draft, draft.confidence) == pytest.approx([0.5, 0.5, 0.3, 0.3])


def test_a_part_keeps_shape_and_confidence():
    assert part(TREE, [4, 1, 5]) == Draft((6, 8, 9), (-1, 0, 1), "t", 3, (0.4, 0.5, 0.5))
    assert part(TREE, range(6)) is TREE
    assert part(Draft((1, 2), (-1, -1)), [1]) == Draft((2,), (-1,))
    assert part(Draft.chain((1, 2, 3), drawn=2), [0, 1]).drawn == 1


def test_the_best_chain_is_the_path_that_brings_most():
    assert best_chain(TREE).tokens == (5, 7)
    bare = Draft(TREE.tokens, TREE.parents)
    assert best_chain(bare).tokens == (6, 8, 9)
    assert best_chain(Draft((1, 2), (-1, -1))).tokens == (1,)
    chain = Draft.chain((1, 2, 3))
    assert best_chain(chain) is chain


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

    chain = best_chain(draft)
    assert chain.is_chain
    gathered = sum(reaches(chain, chain.confidence))
    assert gathered == pytest.approx(max(brings(node) for node in range(len(draft))))


def test_drafts_become_a_prefix_tree():
    drafts = [
        Draft.chain((1, 2, 3), "a", 4, (0.6, 0.9, 0.9)),
        Draft.chain((1, 4), "b", 2, (0.5, 0.05)),
        Draft.chain((5,), "c", 0, (0.3,)),
    ]
    tree = merge(drafts, 9, "tree")
    assert tree.match_length == 4
    assert dict(zip(paths(tree), tree.confidence, strict=True)) == pytest.approx(
        {(1,): 0.6, (1, 2): 0.9, (1, 2, 3): 0.9, (5,): 0.3, (1, 4): 0.05}
    )
    # The first nodes of the tree are the best tree of that size.
    assert paths(tree) == [(1,), (1, 2), (1, 2, 3), (5,), (1, 4)]
    assert merge(drafts, 2, "tree") == tree.first(2)
    assert merge([Draft.chain((1, 2)), Draft.chain((1, 3))], 9, "").confidence == (1.0, 0.5, 0.5)
    assert merge([], 9, "tree") == Draft.empty("tree")
    assert merge(drafts, 0, "tree").tokens == ()


def paths(draft):
    found = []
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        found.append((*(found[parent] if parent >= 0 else ()), token))
    return found


@given(st.lists(st.lists(st.integers(0, 2), max_size=5), max_size=5), st.integers(0, 12))
def test_a_merged_tree_holds_the_drafts_and_is_the_best_of_its_size(chains, limit):
    drafts = [Draft.chain(chain, "", 0, (0.7,) * len(chain)) for chain in chains]
    whole = merge(drafts, 99, "")
    expected = {tuple(chain[:end]) for chain in chains for end in range(1, len(chain) + 1)}
    assert set(paths(whole)) == expected
    cut = merge(drafts, limit, "")
    assert len(cut) == min(limit, len(whole))
    reach = reaches(whole, whole.confidence)
    most = max(
        (sum(reach[node] for node in nodes) for nodes in closed_parts(whole, len(cut))), default=0
    )
    assert sum(reaches(cut, cut.confidence)) == pytest.approx(most)


def test_a_walk_follows_the_tokens_to_where_they_leave_the_tree():
    assert list(walk(TREE, (6, 8, 9, 1))) == [([0, 1], 1), ([4], 4), ([5], 5)]
    assert list(walk(TREE, (5, 5, 9))) == [([0, 1], 0), ([2, 3], 3)]
    assert list(walk(TREE, (5, 9, 5))) == [([0, 1], 0), ([2, 3], None)]
    assert list(walk(TREE, (9,))) == [([0, 1], None)]
    assert list(walk(TREE, ())) == []
    chain = Draft.chain((1, 2, 3))
    assert list(walk(chain, (1, 2))) == [((0,), 0), ((1,), 1)]
    assert list(walk(chain, (1, 3, 3))) == [((0,), 0), ((1,), None)]


@given(trees(), st.lists(st.integers(0, 8), max_size=9))
def test_a_walk_is_what_verification_accepts(draft, chosen):
    accepted = [taken for _, taken in walk(draft, chosen) if taken is not None]
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
