"""Where drafted and accepted tokens come from, counted step by step and summed up."""

from dataclasses import replace

import pytest

from akunu_py.decoding.stats import StatsRecorder, cut_step, step_stats
from akunu_py.values.decode_stats import SourceStats
from akunu_py.values.types import DecodeStats, Draft, Verification

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
