"""Trees of several drafters and of the target's candidates.

Mutants that these tests kill, by hand: candidates of the committed row counted as outcomes of it;
only the taken node counted; a limit ignored by candidates; candidates of nodes but not of the last
token; the oldest candidates kept; rates never moved; sources not told what was committed.
"""

import pytest
from toy_drafters import ScriptedDrafter

from akunu_lab.drafting import tree as tree_module
from akunu_lab.drafting.draft_trees import reaches
from akunu_lab.drafting.recycling import RecyclingDrafter
from akunu_lab.drafting.tree import TreeDrafter
from akunu_py import Engine
from akunu_py.models.passes.forward import Forward
from akunu_py.protocols import Drafter
from akunu_py.values.types import Draft


def paths(draft):
    found = []
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        found.append((*(found[parent] if parent >= 0 else ()), token))
    return found


def test_it_is_a_drafter_that_learns_candidates():
    drafter = TreeDrafter()
    assert isinstance(drafter, Drafter)
    assert drafter.reads_candidates
    assert drafter.propose(4) == Draft.empty("tree")
    drafter.observe([])
    drafter.observe([1])
    assert drafter.propose(4).tokens == ()


def test_chains_of_sources_become_one_tree():
    sources = [ScriptedDrafter([[1, 2, 3]]), ScriptedDrafter([[1, 4]]), ScriptedDrafter()]
    drafter = TreeDrafter(sources)
    drafter.observe([9])
    assert set(paths(drafter.propose(8))) == {(1,), (1, 2), (1, 2, 3), (1, 4)}
    assert all(source.observed == [9] for source in sources)


def test_candidates_follow_the_last_token_and_each_node():
    drafter = TreeDrafter([ScriptedDrafter([[5]])], num_branches=2)
    drafter.observe_candidates([(9, (6, 7, 8)), (5, (1,)), (6, (2,)), (2, ())])
    drafter.observe([9])
    assert set(paths(drafter.propose(16))) == {(5,), (5, 1), (6,), (6, 2), (7,)}


def test_each_node_has_the_names_of_those_who_drafted_it():
    class First(ScriptedDrafter):
        def propose(self, limit):
            return Draft.chain((1, 2), "first")

    class Second(ScriptedDrafter):
        def propose(self, limit):
            return Draft.chain((1, 4), "second")

    drafter = TreeDrafter([First(), Second()])
    drafter.observe_candidates([(9, (1, 5)), (4, (6,))])
    drafter.observe([9])
    draft = drafter.propose(16)
    found = dict(zip(paths(draft), draft.origins, strict=True))
    assert found == {
        (1,): "first+second+candidate", (1, 2): "first", (1, 4): "second", (5,): "candidate",
        (1, 4, 6): "candidate",
    }  # fmt: skip
    # Also of a part of it.
    kept = draft.part([0, draft.tokens.index(4)])
    assert kept.origins == ("first+second+candidate", "second")


def test_the_likeliest_nodes_come_first_and_no_more_than_the_limit():
    drafter = TreeDrafter([], num_draft_tokens=12)
    drafter.observe_candidates([(token, (token + 1, token + 2, token + 3)) for token in range(40)])
    drafter.observe([0])
    whole = drafter.propose(99)
    assert len(whole) == 12
    reach = reaches(whole, whole.confidence)
    assert reach == sorted(reach, reverse=True)
    assert reach[-1] >= 0.02
    assert drafter.propose(5) == whole.first(5)
    assert paths(whole.first(2)) == [(1,), (1, 2)]
    assert drafter.propose(0) == Draft.empty("tree")


def test_later_candidates_replace_earlier_ones_and_the_oldest_go(monkeypatch):
    monkeypatch.setattr(tree_module, "MAX_TOKENS", 2)
    drafter = TreeDrafter([], num_branches=1)
    drafter.observe_candidates([(1, (5,)), (2, (6,)), (1, (7,)), (3, (8,))])
    for last, expected in ((1, (7,)), (2, ()), (3, (8,))):
        drafter.observe([last])
        assert drafter.propose(1).tokens == expected


def rate(drafter, kind):
    return drafter._rates.rate(kind)


def test_ranks_are_learned_from_what_was_committed():
    drafter = TreeDrafter([], num_branches=2)
    before = [rate(drafter, ("candidate", rank)) for rank in range(2)]
    drafter.observe_candidates([(9, (1, 2))])
    for _ in range(40):
        drafter.observe([9])
        drafter.propose(4)
        # What the target now says after 9 is no outcome: it was not drafted from.
        drafter.observe_candidates([(9, (2, 1))])
        drafter.observe_candidates([(9, (1, 2))])
        drafter.observe([2])
    after = [rate(drafter, ("candidate", rank)) for rank in range(2)]
    assert after[0] < before[0] / 2
    assert after[1] > 0.8
    drafter.observe([9])
    assert paths(drafter.propose(4))[0] == (2,)


def test_sources_are_learned_by_place():
    class Source(ScriptedDrafter):
        def propose(self, limit):
            return Draft.chain((1, 2), "source")

    drafter = TreeDrafter([Source()])
    for _ in range(60):
        drafter.observe([9])
        drafter.propose(4)
        drafter.observe([1, 3])
    assert rate(drafter, ("source", 0)) > 0.9
    assert rate(drafter, ("source", 1)) < 0.1


def test_a_source_that_knows_its_confidence_is_believed():
    class Source(ScriptedDrafter):
        def propose(self, limit):
            return Draft.chain((1, 2), "source", 7, (0.9, 0.3))

    drafter = TreeDrafter([Source()])
    drafter.observe([9])
    draft = drafter.propose(4)
    assert draft.confidence == (0.9, 0.3)
    assert draft.match_length == 7
    assert draft.origins == ("source", "source")


def test_sources_are_told_candidates():
    source = RecyclingDrafter()
    drafter = TreeDrafter([source])
    drafter.observe_candidates([(9, (1,))])
    drafter.observe([9])
    assert source.propose(1).tokens == (1,)


def test_rows_of_trees_are_not_compared_with_single_ones(tiny_gguf):
    """Trees have other kernels than the chains that are compared with single rows."""
    with Engine.load(tiny_gguf) as engine:
        options = {"max_tokens": 24, "seed": 1, "draft_budget": "always"}
        for drafter, bits in (("tree", "unknown"), ("ngram", "equal")):
            result = engine.generate("a b a c a b a d a b a c a b a", drafter=drafter, **options)
            assert result.row_bits == bits


@pytest.mark.slow
def test_trees_are_verified_in_one_pass_and_change_nothing(default_model, monkeypatch):
    passes = []
    whole = Forward.__call__

    def counting(forward, plan):
        passes.extend(part.tokens.size for part in plan.parts if part.tree is not None)
        return whole(forward, plan)

    monkeypatch.setattr(Forward, "__call__", counting)
    with Engine.load(default_model) as engine:
        prompt = "class Stack:\n"
        never = dict.fromkeys(engine.tokenizer.end_ids, -1e6)
        options = {"max_tokens": 32, "logit_bias": never, "temperature": 0.8, "seed": 6}
        plain = engine.generate(prompt, drafter="none", **options)
        result = engine.generate(prompt, drafter="tree", draft_budget="always", **options)
    assert result.token_ids == plain.token_ids
    assert len(passes) >= 2
    assert max(passes) <= 17
    assert result.stats.accepted > 0
