"""Trees of a head's guesses: their nodes, and replies in which Medusa heads draft them.

Mutants that these tests kill: the children of a node from its own place; a sibling that is lost
behind one that is taken; a reach that leaves out a parent's.
"""

import itertools
import math

import pytest
from dflash_heads import BLOCK, random_medusa, write_parallel
from family_models import Variant, build_family
from hypothesis import given
from hypothesis import strategies as st
from model_folders import write_family_folder

from akunu_lab.drafting.draft_trees import reaches
from akunu_lab.drafting.head_tree import HeadTreeDrafter
from akunu_py import ConfigError, Engine
from akunu_py.drafting import check_drafter
from akunu_py.drafting.draft_model import DrawnToken
from akunu_py.values.types import GenerationConfig


class Guesses:
    """A head that guesses the same at every step, by places."""

    hidden = "normed"

    def __init__(self, places):
        self.places, self.at_once = places, max(2, len(places))

    def draw(self, limit, goes_on=None, guess=None, *, after=()):
        return [
            DrawnToken(*place[0], 0.5, tuple(place[1:])) for place in self.places[: max(0, limit)]
        ]


@st.composite
def falling(draw):
    """The likeliest tokens of a place; shares of 1 that no two nodes' reaches have in common."""
    odds = sorted(draw(st.lists(st.floats(0.01, 0.3), min_size=3, max_size=3, unique=True)))[::-1]
    return list(enumerate(odds))


@given(st.lists(falling(), max_size=4), st.integers(0, 20))
def test_the_nodes_are_those_of_largest_reach(places, limit):
    drafter = HeadTreeDrafter(Guesses(places), num_proposals=3, num_draft_tokens=12)
    draft = drafter.propose(limit)
    limit = min(limit, 12)
    every = [
        math.prod(odds for _, odds in path)
        for depth in range(len(places[:limit]))
        for path in itertools.product(*places[: depth + 1])
    ]
    assert reaches(draft, draft.confidence) == pytest.approx(sorted(every)[::-1][:limit])


def test_an_engine_drafts_them(tmp_path):
    path = write_family_folder(tmp_path / "model", "qwen3")
    target = build_family(Variant("qwen3", changes=(("vocab_size", 257),)))
    (tmp_path / "head").mkdir()
    heads = write_parallel(tmp_path / "head", random_medusa(target))
    options = {"draft_budget": "always", "num_proposals": 3, "max_tokens": 30}
    with Engine.load(path, heads=heads) as engine:
        for others in ({}, {"temperature": 0.9, "seed": 3}, {"repetition_penalty": 1.2}):
            plain = engine.generate("One, two", drafter="none", max_tokens=30, **others)
            # Options about a head's draws make it the drafter.
            found = engine.generate("One, two", **options, **others)
            assert found.token_ids == plain.token_ids
            (source,) = found.stats.sources
            assert source.source == "mtp"
            assert source.drafted > (BLOCK - 1) * found.stats.steps / 2


def test_rejection_sampling_is_refused():
    config = GenerationConfig(
        temperature=1.0, draft_options={"num_proposals": 2, "draft_sampling": "rejection"}
    )
    with pytest.raises(ConfigError, match="trees of a prediction head are verified by match"):
        check_drafter("mtp", config=config)
