"""Chains from several drafters: who drafts which token, and what a verifier is told of it."""

import numpy as np
import pytest

from akunu_lab.counts.drafter import SampledCountDrafter
from akunu_lab.counts.ngram_model import NgramModel
from akunu_lab.drafting.assisted import AssistedNgramDrafter
from akunu_lab.drafting.combined import CombinedDrafter
from akunu_lab.drafting.combined import CombinedSource as Source
from akunu_py.drafting import LookupDrafter
from akunu_py.drafting.draft_model import DrawnToken
from akunu_py.protocols import Drafter
from akunu_py.system.errors import ConfigError, ContractError
from akunu_py.values.types import Draft, GenerationConfig, LengthTrace

SIZE = 12
PROMPT = [1, 2, 3, 4, 1, 2, 5, 6, 1, 2, 3]


class Table:
    """Drafts by a table from the last token; says what it is asked."""

    def __init__(self, name, following, confidence=()):
        self.name, self.following, self.confidence = name, following, confidence
        self.observed, self.asked = [], []

    def observe(self, tokens):
        self.observed += tokens

    def propose(self, limit):
        return self.extend(Draft.empty(), limit)

    def extend(self, before, limit):
        self.asked.append((before.tokens, limit))
        text = [*self.observed, *before.tokens]
        tokens = []
        while len(tokens) < limit and (token := self.following.get(text[-1])) is not None:
            tokens.append(token)
            text.append(token)
        return Draft.chain(tokens, self.name, 3, tuple(self.confidence[: len(tokens)]))


class FirstOnly(Table):
    extend = None

    def propose(self, limit):
        return Table.extend(self, Draft.empty(), limit)


def drafted(*sources, room=8, num_draft_tokens=8, **fields):
    drafter = CombinedDrafter(sources, num_draft_tokens=num_draft_tokens, **fields)
    drafter.observe([0])
    return drafter, drafter.propose(room)


def test_the_first_begins_and_the_next_goes_on():
    copy = Table("copy", {0: 1, 1: 2})
    model = Table("model", {2: 3, 3: 4, 4: 5, 5: 6})
    drafter, draft = drafted(Source(copy), Source(model), room=5)
    assert draft.tokens == (1, 2, 3, 4, 5)
    assert draft.source == "copy+model"
    assert draft.match_length == 3
    assert draft.origins == ("copy", "copy", "model", "model", "model")
    # It had ended its piece itself, so it was not asked once more.
    assert copy.asked == [((), 5)]
    assert model.asked == [((1, 2), 3)]
    assert isinstance(drafter, Drafter)
    drafter.observe([7, 8])
    assert copy.observed == model.observed == [0, 7, 8]


def test_the_first_takes_over_again():
    copy = Table("copy", {0: 1, 3: 4, 4: 5})
    model = Table("model", {1: 2, 2: 3, 3: 9})
    drafter, draft = drafted(Source(copy), Source(model, max_tokens=2), room=8)
    assert draft.tokens == (1, 2, 3, 4, 5)
    assert draft.origins == ("copy", "model", "model", "copy", "copy")
    assert draft.source == "copy+model"
    assert copy.asked == [((), 8), ((1, 2, 3), 5)]
    # Its first piece was as long as it may be; behind the copy it has nothing.
    assert model.asked == [((1,), 2), ((1, 2, 3, 4, 5), 2)]


def test_a_piece_ends_where_confidence_does():
    copy = Table("copy", {0: 1, 1: 2, 2: 3}, (0.9, 0.5, 0.4))
    model = Table("model", {2: 8, 8: 9}, (0.3, 0.2))
    drafter, draft = drafted(Source(copy, min_confidence=0.5), Source(model))
    assert draft.tokens == (1, 2, 8, 9)
    assert draft.confidence == (0.9, 0.5, 0.3, 0.2)
    _, draft = drafted(Source(copy, min_confidence=0.95), Source(Table("last", {0: 7})))
    assert (draft.tokens, draft.source, draft.confidence) == ((7,), "last", ())


def test_where_one_piece_has_no_confidence_the_draft_has_none():
    copy = Table("copy", {0: 1}, (0.9,))
    _, draft = drafted(Source(copy), Source(Table("model", {1: 2})))
    assert draft.confidence == ()


def test_drafters_that_cannot_extend_begin():
    _, draft = drafted(Source(FirstOnly("a", {0: 1, 1: 2})), Source(FirstOnly("b", {2: 3})))
    assert draft.tokens == (1, 2)
    _, draft = drafted(Source(Table("a", {1: 2})), Source(FirstOnly("b", {0: 1})))
    assert (draft.tokens, draft.source) == ((1, 2), "b+a")


def test_limits():
    endless = Table("a", dict.fromkeys(range(9), 0))
    for room, own, expected in [(3, 8, 3), (8, 2, 2), (0, 8, 0), (5, 0, 0), (-1, 8, 0)]:
        assert len(drafted(Source(endless), room=room, num_draft_tokens=own)[1]) == expected
    drafter, draft = drafted(Source(Table("a", {})))
    assert len(draft) == 0
    assert draft.origins == ()


def test_candidates_reach_those_who_want_them():
    observer, other = AssistedNgramDrafter(), LookupDrafter()
    drafter = CombinedDrafter([Source(other), Source(observer)], num_draft_tokens=4)
    assert drafter.reads_candidates
    assert not CombinedDrafter([Source(other)], num_draft_tokens=4).reads_candidates
    drafter.observe([1, 2])
    drafter.observe_candidates([(2, [7])])
    assert drafter.propose(4).tokens == (7,)


def counts(kind, **fields):
    return kind(NgramModel(SIZE), **fields)


def test_in_rejection_mode_every_token_has_its_q():
    copy = Table("copy", {0: 1, 1: 2}, (0.9, 0.8))
    model = counts(SampledCountDrafter, num_draft_tokens=2)
    drafter = CombinedDrafter(
        [Source(copy), Source(model)], num_draft_tokens=6, vocabulary_size=SIZE
    )
    assert drafter.draws
    assert drafter.draft_probabilities().shape == (0, SIZE)
    drafter.begin_reply(GenerationConfig(temperature=1.0), 3)
    drafter.observe([*PROMPT, 0])
    draft = drafter.propose(4)
    assert draft.tokens[:2] == (1, 2)
    assert draft.origins == ("copy", "copy", "counts", "counts")
    # A budget must not cut by what was drawn.
    assert draft.confidence == ()
    rows = drafter.draft_probabilities()
    assert rows.shape == (4, SIZE)
    assert rows[:2].tolist() == np.eye(SIZE)[[1, 2]].tolist()
    alone = NgramModel(SIZE)
    alone.observe([*PROMPT, 0])
    for place in (2, 3):
        context = [*PROMPT, 0, *draft.tokens[:place]]
        np.testing.assert_array_equal(rows[place], alone.distribution(context).dense())
    drafter.propose(0)
    assert drafter.draft_probabilities().shape == (0, SIZE)


def test_in_rejection_mode_draws_are_not_cut_by_confidence():
    model = counts(SampledCountDrafter)
    with pytest.raises(ConfigError, match="cannot be cut"):
        CombinedDrafter([Source(model, 0.5)], num_draft_tokens=4, vocabulary_size=SIZE)


def test_both_at_once():
    sources = [Source(AssistedNgramDrafter()), Source(counts(SampledCountDrafter))]
    drafter = CombinedDrafter(sources, num_draft_tokens=4, vocabulary_size=SIZE)
    assert drafter.draws
    assert drafter.reads_candidates
    assert not CombinedDrafter(sources, num_draft_tokens=4).draws


class Tree(Table):
    def extend(self, before, limit):
        return Draft((1, 2), (-1, -1), "tree")


class TooLong(Table):
    def extend(self, before, limit):
        return Draft.chain(range(limit + 1), "long")


@pytest.mark.parametrize("kind", [Tree, TooLong])
def test_trees_and_drafts_beyond_the_limit_are_refused(kind):
    with pytest.raises(ContractError, match="chains within their limit"):
        drafted(Source(kind("x", {})))


class Asking(Table):
    """Asks its rule before each token, as a draft model does."""

    def use_rule(self, rule):
        self.rule = rule

    def extend(self, before, limit):
        whole, tokens = super().extend(before, limit), []
        for token, odds in zip(whole.tokens, whole.confidence, strict=True):
            if not self.rule.pays(before, tokens, room=limit - len(tokens)):
                break
            tokens.append(DrawnToken(token, odds, 0.5))
        return Draft.chain(
            (token.token for token in tokens), self.name, 0, tuple(t.probability for t in tokens),
            length=LengthTrace(0.5, 0.5, len(tokens)) if tokens else None,
        )  # fmt: skip


class UpTo:
    """Lets drafts grow to four tokens, and keeps what it was shown."""

    def __init__(self):
        self.shown = []

    def pays(self, before, drawn, *, room, passes=1, further=1):
        probabilities = [token.probability for token in drawn]
        self.shown.append((before.tokens, before.confidence, probabilities))
        return len(before) + len(drawn) < 4


@pytest.mark.parametrize("confidence", [(0.9, 0.8), ()])
def test_a_rule_is_shown_the_whole_draft(confidence):
    copy = Table("copy", {0: 1, 1: 2}, confidence)
    model = Asking("model", {2: 3, 3: 4, 4: 5, 5: 6}, (0.7, 0.6, 0.5, 0.4))
    drafter = CombinedDrafter((Source(copy), Source(model)), num_draft_tokens=8)
    rule = UpTo()
    drafter.use_rule(rule)
    drafter.observe([0])
    assert drafter.propose(8).tokens == (1, 2, 3, 4)
    before = ((1, 2), confidence)
    assert rule.shown == [(*before, []), (*before, [0.7]), (*before, [0.7, 0.6])]


def test_what_a_length_came_from_is_the_sources_that_has_a_rule():
    copy = Table("copy", {0: 1, 1: 2, 9: 1})
    model = Asking("model", {2: 3, 3: 4}, (0.7, 0.6))
    drafter = CombinedDrafter((Source(copy), Source(model)), num_draft_tokens=8)
    drafter.use_rule(UpTo())
    drafter.observe([0])
    assert drafter.propose(8).length.num_draft_tokens == 2
    # Nothing of the model's in this one.
    assert drafter.propose(2).length is None
