"""What a step did, token by token, and where drafted and accepted tokens come from."""

from dataclasses import replace

import pytest
from toy_drafters import ScriptedDrafter

from akunu_py.decoding.loop import decode
from akunu_py.decoding.stats import StatsRecorder, cut_step, step_detail, step_stats
from akunu_py.system.errors import ContractError
from akunu_py.testing import ToyTarget
from akunu_py.values.decode_stats import DraftedToken, SourceStats
from akunu_py.values.types import DecodeStats, Draft, LengthTrace, Verification


def detail_of(draft, accepted, token, position, *, kind="recovered", length=None):
    return step_detail(draft, Verification(accepted, token, kind), position, length)


def test_a_chain_compared_with_choices():
    detail = detail_of(Draft.chain((5, 6, 7), "lookup", 2, (0.9, 0.5, 0.1)), (0,), 9, 40)
    tokens = [(5, -1, True, 0.9), (6, 0, False, 0.5), (7, 1, None, 0.1)]
    assert detail.drafted == tuple(DraftedToken(*token) for token in tokens)
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


MIXED = Draft.chain((5, 6, 7, 8), "auto", origins=("prompt", "prompt", "head", "head"))


def step(draft, accepted, num_output=None):
    """A step that accepted these nodes and ended in a token of the target's own."""
    kind = "bonus" if len(accepted) == len(draft) else "recovered"
    output = [draft.tokens[node] for node in accepted] + [9]
    return step_stats(
        draft, Verification(tuple(accepted), 9, kind), output[:num_output],
        propose_s=0.0, target_s=0.0, commit_s=0.0,
    )  # fmt: skip


def sources(*steps):
    recorder = StatsRecorder()
    for one in steps:
        recorder.add(one)
    found = {one.source: (one.drafted, one.accepted) for one in recorder.stats.sources}
    assert sum(drafted for drafted, _ in found.values()) == recorder.stats.drafted
    assert sum(accepted for _, accepted in found.values()) == recorder.stats.accepted
    return found


def test_tokens_count_for_their_own_origins():
    assert sources(step(MIXED, (0, 1, 2)), step(MIXED, (0,))) == {"prompt": (4, 3), "head": (4, 1)}


def test_a_draft_of_one_source_counts_for_that():
    drafts = [Draft.chain((1, 2), "ngram"), Draft.chain((1,)), Draft.empty("auto")]
    found = sources(*(step(draft, range(len(draft))[:1]) for draft in drafts))
    assert found == {"ngram": (2, 1), "drafter": (1, 1)}


def test_the_accepted_path_of_a_tree_counts_node_by_node():
    tree = Draft((1, 2, 3, 4), (-1, -1, 1, 1), "auto", origins=("reply", "head", "reply", "memory"))
    assert sources(step(tree, (1, 3))) == {"reply": (2, 0), "head": (1, 1), "memory": (1, 1)}


def test_accepted_tokens_past_the_end_do_not_count():
    whole = step(MIXED, (0, 1, 2, 3))
    assert sources(step(MIXED, (0, 1, 2, 3), num_output=3)) == {"prompt": (2, 2), "head": (2, 1)}
    assert sources(cut_step(whole, 1)) == {"prompt": (2, 1), "head": (2, 0)}


def test_replies_are_added_up_by_name():
    one = DecodeStats(sources=(SourceStats("head", 4, 1), SourceStats("prompt", 2, 2)))
    other = DecodeStats(sources=(SourceStats("memory", 3, 0), SourceStats("prompt", 5, 3)))
    found = (one + other).sources
    assert found == (
        SourceStats("head", 4, 1), SourceStats("memory", 3, 0), SourceStats("prompt", 7, 5),
    )  # fmt: skip
    assert replace(one, sources=found).to_dict()["sources"]["prompt"] == {
        "drafted": 7, "accepted": 5, "hit_rate": pytest.approx(5 / 7),
    }  # fmt: skip
    assert SourceStats("grammar", 0, 0).hit_rate is None
