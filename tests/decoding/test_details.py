"""What a step did, token by token: in match mode, in trees, with an adaptive length."""

import pytest

from akunu_py.decoding.loop import decode
from akunu_py.decoding.stats import step_detail
from akunu_py.system.errors import ContractError
from akunu_py.testing import ScriptedDrafter, ToyTarget
from akunu_py.values.decode_stats import DraftedToken
from akunu_py.values.types import Draft, LengthTrace, Verification


def detail_of(draft, accepted, token, position, *, kind="recovered", length=None):
    return step_detail(draft, Verification(accepted, token, kind), position, length)


def test_a_chain_compared_with_choices():
    draft = Draft.chain((5, 6, 7), "lookup", 2, (0.9, 0.5, 0.1))
    detail = detail_of(draft, (0,), 9, 40)
    assert detail.drafted == (
        DraftedToken(5, -1, True, 0.9),
        DraftedToken(6, 0, False, 0.5),
        DraftedToken(7, 1, None, 0.1),
    )
    assert (detail.position, detail.source, detail.match_length) == (40, "lookup", 2)
    assert (detail.accepted, detail.token) == ((5,), 9)
    assert (detail.kind, detail.origin) == ("recovered", "target")
    # What is not known is left out of JSON, and zeros are not.
    assert detail.to_dict() == {
        "position": 40, "source": "lookup", "match_length": 2, "accepted": 1, "token": 9,
        "kind": "recovered", "origin": "target",
        "drafted": [
            {"token": 5, "parent": -1, "accepted": True, "confidence": 0.9},
            {"token": 6, "parent": 0, "accepted": False, "confidence": 0.5},
            {"token": 7, "parent": 1, "confidence": 0.1},
        ],
    }  # fmt: skip


def test_who_drafted_each_token_is_told_where_several_did():
    draft = Draft.chain((5, 6, 7), "copy+model", origins=("copy", "copy", "model"))
    for kept in (draft, draft.first(2)):
        detail = detail_of(kept, (0,), 9, 40)
        assert [drafted.source for drafted in detail.drafted] == ["copy", "copy", "model"][
            : len(kept)
        ]
    alone = Draft.chain((5,), "copy", origins=("copy",))
    assert detail_of(alone, (0,), 9, 40).drafted[0].source is None
    with pytest.raises(ContractError, match="a draft of 2 tokens has 1 origins"):
        Draft.chain((5, 6), "copy", origins=("copy",))


def test_a_tree_compared_with_choices():
    """Siblings of an accepted token were tested: the target chose another one."""
    draft = Draft((1, 2, 3, 4, 5), (-1, -1, 1, 1, 0), "tree")
    detail = detail_of(draft, (1, 3), 8, 0, kind="bonus")
    assert [drafted.accepted for drafted in detail.drafted] == [False, True, False, True, None]
    assert detail.accepted == (2, 4)


def test_what_an_adaptive_length_came_from():
    detail = detail_of(Draft.chain((1,)), (), 2, 0, length=LengthTrace(0.25, 0.5, 6))
    assert (detail.entropy, detail.gamma) == (0.25, 6)
    assert detail.to_dict()["gamma"] == 6
    alone = detail_of(Draft.chain((1,)), (), 2, 0)
    assert (alone.entropy, alone.gamma) == (None, None)


def test_the_loop_hands_over_what_was_verified():
    target = ToyTarget([1], rule=lambda context: context[-1] + 1)
    drafter = ScriptedDrafter([(2, 3, 9), (), (6, 7)])
    steps = list(decode(target, drafter, 1, num_draft_tokens=4, max_tokens=7, position=1))
    details = [step.stats.detail for step in steps]
    # 2 3 and 4 instead of 9; 5; then 6 and 7 and 8.
    assert [detail.position for detail in details] == [1, 4, 5]
    assert [detail.accepted for detail in details] == [(2, 3), (), (6, 7)]
    assert [detail.token for detail in details] == [4, 5, 8]
    assert [detail.kind for detail in details] == ["recovered", "bonus", "bonus"]
    assert [drafted.token for drafted in details[0].drafted] == [2, 3, 9]


@pytest.mark.parametrize(("p", "q", "ratio"), [(0.5, 0.25, 2), (None, 0.5, None), (0.5, 0.0, None)])
def test_ratios_that_are_none(p, q, ratio):
    assert DraftedToken(1, -1, True, None, p, q).ratio == ratio
