"""Verification on integers, chains and trees; values that check themselves."""

import pytest
from drafted_trees import bare_trees
from hypothesis import given
from hypothesis import strategies as st

from akunu_py.decoding.loop import verify_match
from akunu_py.protocols import NO_CHOICE
from akunu_py.system.errors import ContractError
from akunu_py.values.types import Draft, Verification


@pytest.mark.parametrize(
    ("tokens", "choices", "accepted", "next_token", "kind"),
    [
        ((), [4], (), 4, "bonus"),
        ((5,), [5, 6], (0,), 6, "bonus"),
        ((5,), [7, 6], (), 7, "recovered"),
        ((5, 6, 7), [5, 6, 8, 9], (0, 1), 8, "recovered"),
        ((5, 6, 7), [5, 6, 7, 9], (0, 1, 2), 9, "bonus"),
        ((5, 6), [6, 6, 6], (), 6, "recovered"),
        # Behind the second token nothing can be chosen: it is said, and the next pass begins there.
        ((5, 6, 7), [5, 6, NO_CHOICE, 9], (0,), 6, "recovered"),
        ((5,), [5, NO_CHOICE], (), 5, "recovered"),
        ((5,), [4, NO_CHOICE], (), 4, "recovered"),
    ],
)
def test_chains(tokens, choices, accepted, next_token, kind):
    draft = Draft.chain(tokens)
    verification = verify_match(draft, choices)
    assert verification == Verification(accepted, next_token, kind)
    assert verification.output(draft) == (*tokens[: len(accepted)], next_token)


def test_a_tree_is_walked_along_the_choices():
    #  -1 -> 0:a -> 2:c ; -1 -> 1:b -> 3:c -> 4:d
    draft = Draft((10, 11, 12, 12, 13), (-1, -1, 0, 1, 3))
    verification = verify_match(draft, [11, 99, 12, 0, 13, 77])
    assert verification == Verification((1, 3, 4), 77, "bonus")
    assert verification.output(draft) == (11, 12, 13, 77)
    assert verify_match(draft, [12, 0, 0, 0, 0, 0]).kind == "recovered"


@given(bare_trees(vocabulary=3), st.data())
def test_the_output_is_the_targets_own_path(draft, data):
    choices = data.draw(
        st.lists(st.integers(0, 3), min_size=len(draft) + 1, max_size=len(draft) + 1)
    )
    verification = verify_match(draft, choices)
    node = -1
    for accepted in verification.accepted:
        assert draft.parents[accepted] == node
        assert draft.tokens[accepted] == choices[node + 1]
        node = accepted
    assert verification.next_token == choices[node + 1]
    children = [i for i, parent in enumerate(draft.parents) if parent == node]
    assert all(draft.tokens[child] != choices[node + 1] for child in children)
    assert verification.kind == ("recovered" if children else "bonus")


def test_choices_must_cover_every_node():
    with pytest.raises(ContractError, match="2 choices for a draft of 2"):
        verify_match(Draft.chain([1, 2]), [1, 2])


@pytest.mark.parametrize(
    ("tokens", "parents"),
    [((1,), (0,)), ((1,), (-2,)), ((1, 2), (-1, 1)), ((1, 1), (-1, -1)), ((1, 2), (-1,))],
)
def test_drafts_refuse_what_is_no_tree(tokens, parents):
    with pytest.raises(ContractError):
        Draft(tokens, parents)


def test_long_chains_and_confidences():
    draft = Draft.chain(range(200))
    assert draft.is_chain
    assert len(draft) == 200
    assert not Draft((1, 2), (-1, -1)).is_chain


def test_a_chain_is_one_whatever_holds_its_parents():
    """As a plug-in may give them; taken for a tree it would be cut, and told of, as one."""
    assert Draft([1, 2], [-1, 0]).is_chain
    assert Draft([1] * 70, list(range(-1, 69))).is_chain
    assert not Draft([1, 2], [-1, -1]).is_chain
    with pytest.raises(ContractError, match="confidences"):
        Draft.chain([1, 2], confidence=(0.5,))
