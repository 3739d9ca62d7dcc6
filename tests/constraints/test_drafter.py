"""Drafts of constrained replies: what must come, what fits, and how they go on."""

import mlx.core as mx
import numpy as np
import pytest
from matched import allowed, ids_of, tiny

from akunu_py.constraints import ConstrainedDrafter, make_matcher
from akunu_py.sampling.transforms import only
from akunu_py.values.constraint import Constraint
from akunu_py.values.types import Draft, LengthTrace

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}


class Scripted:
    def __init__(self, draft):
        self.draft, self.seen = draft, []

    def observe(self, tokens):
        self.seen += tokens

    def propose(self, limit):
        return self.draft.first(limit)


class Extending(Scripted):
    def extend(self, before, limit):
        self.drafted = before.tokens
        return self.draft.first(limit)


def drafter(inner, constraint=None, most=8):
    matcher = make_matcher(constraint or Constraint.json_schema(SCHEMA), tiny()[1])
    return ConstrainedDrafter(inner, matcher, most), matcher


def test_what_must_come_is_the_draft():
    made, matcher = drafter(Scripted(Draft.chain(ids_of("{"), "inner")))
    draft = made.propose(32)
    assert draft.tokens == matcher.forced_tokens()
    assert draft.sure == len(draft) == made.num_sure()
    assert draft.source == "grammar"
    assert made.propose(2).tokens == draft.tokens[:2]


def test_an_extender_adds_no_more_than_its_limit():
    inner = Extending(Draft.chain(ids_of(' "Bobby Baker"'), "inner"))
    made, matcher = drafter(inner, most=2)
    assert len(made.propose(32)) == len(matcher.forced_tokens()) + 2


def test_a_draft_is_within_its_limit():
    inner = Extending(Draft.chain(ids_of(' "Bobby Baker"'), "inner"))
    made, matcher = drafter(inner)
    sure = len(matcher.forced_tokens())
    assert len(made.propose(sure + 1)) == sure + 1
    inner.drafted = None
    assert len(made.propose(sure)) == sure
    assert inner.drafted is None
    free, _ = drafter(Scripted(Draft.chain(ids_of("yyyyyyyy"), "inner")), Constraint.regex("y*"), 2)
    assert len(free.propose(32)) == 2


def test_what_an_extender_says_of_its_tokens_stays_theirs():
    tokens = ids_of(' "Bob')
    places, confidence = tuple(range(len(tokens))), (0.5,) * len(tokens)
    length = LengthTrace(entropy=0.5, smoothed=0.4, num_draft_tokens=7)
    more = Draft.chain(
        tokens, "inner", 3, confidence, ("memory",) * len(tokens), length=length, places=places,
        drawn=2,
    )  # fmt: skip
    made, matcher = drafter(Extending(more))
    sure = len(matcher.forced_tokens())
    draft = made.propose(32)
    assert draft.places == (-1,) * sure + places
    assert draft.confidence == (1.0,) * sure + confidence
    assert draft.origins == ("grammar",) * sure + ("memory",) * len(tokens)
    assert (draft.match_length, draft.length, draft.sure) == (3, length, sure)
    assert draft.drawn == 2


def test_the_inner_draft_is_cut_by_the_form():
    (y, n), wrong = (ids_of("y")[0], ids_of("n")[0]), ids_of("x")[0]
    choices = Constraint.choices(["y", "nn"])
    chain, _ = drafter(Scripted(Draft.chain([n, n, wrong], "inner")), choices)
    assert chain.propose(8).tokens == (n, n)
    tree = Draft((y, n, wrong, n, y), (-1, -1, -1, 1, 1), "inner")
    branching, _ = drafter(Scripted(tree), choices)
    assert (branching.propose(8).tokens, branching.propose(8).parents) == ((y, n, n), (-1, -1, 1))


TOLD = {
    "observe": ([1],),
    "begin_reply": (None, 7, None),
    "observe_candidates": ([],),
    "begin_states": ([1], 0),
    "observe_states": ("states", 0, 1),
    "use_rows": ("rows",),
    "use_rule": ("rule",),
    "use_curve": ("curve",),
    "reading": ([1],),
}


@pytest.mark.parametrize("name", TOLD)
def test_what_a_drafter_is_told_goes_on_to_the_inner_one(name):
    inner, told = Scripted(Draft.empty()), []
    setattr(inner, name, lambda *arguments: told.append(arguments))
    made, _ = drafter(inner)
    getattr(made, name)(*TOLD[name])
    assert told == [TOLD[name]]
    assert made.reads_candidates == (name == "observe_candidates")
    assert made.uses_curve == (name == "use_curve")


def test_a_mask_on_the_device_is_the_one_on_the_host():
    rng = np.random.default_rng(3)
    for size in (1, 31, 32, 33, 4096, 49_153):
        mask = rng.integers(0, 2**32, -(-size // 32), dtype=np.uint32)
        row = only(mx.zeros((1, size)), mx.array(mask))
        kept = set(np.flatnonzero(np.array(row)[0] == 0).tolist())
        assert kept == {id_ for id_ in allowed(mask) if id_ < size}
