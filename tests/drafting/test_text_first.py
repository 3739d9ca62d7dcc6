"""`auto` with a model: who drafts which token, and what each part is told."""

import pytest
from drafting.scripted_token_model import CONFIG, Scripted

from akunu_py.drafting import AutoDrafter
from akunu_py.drafting.draft_model import DraftModelDrafter
from akunu_py.drafting.prediction_head import PredictionHeadDrafter
from akunu_py.drafting.registry import make_drafter
from akunu_py.drafting.text_first import TextFirstDrafter
from akunu_py.values.types import Draft, GenerationConfig

REPEATED = [7, 8, 9, 6, 7, 8, 9, 6, 7, 8, 9, 6, 7]
NEW = [20, 21, 22, 23]


class Rule:
    """Lets the model draw a number of tokens, and says whether in place of copies."""

    def __init__(self, most, *, instead=False):
        self.most, self.instead, self.asked = most, instead, []

    def pays(self, before, drawn, *, room, passes=1, further=1):
        self.asked.append((before.tokens, len(drawn), room, passes, further))
        return len(drawn) < self.most

    def draws_instead(self, copied, *, room, further=1):
        self.asked.append((copied.tokens, room, further))
        return self.instead


class Head(Scripted):
    """A scripted head: it takes states and has nothing to do with them."""

    hidden = "normed"
    at_once = 1

    def begin_states(self, prompt, held):
        self.calls.append(("begin states", prompt, held))

    def observe_states(self, states, start, end):
        self.calls.append(("states", states, start, end))


def begun(prompt, rule=None, kind=DraftModelDrafter, model=None, **options):
    model = model or Scripted()
    drafter = TextFirstDrafter(AutoDrafter(), kind(model, **options))
    drafter.begin_reply(CONFIG, 11)
    if rule is not None:
        drafter.use_rule(rule)
    drafter.observe(prompt)
    return model, drafter


def test_the_model_goes_on_behind_a_copy():
    rule = Rule(2)
    model, drafter = begun(REPEATED, rule, num_draft_tokens=3)
    copied = AutoDrafter()
    copied.observe(REPEATED)
    first = copied.propose(9).tokens
    assert first[:3] == (8, 9, 6)
    draft = drafter.propose(len(first) + 3)
    assert draft.tokens == (*first, 0, 1)
    assert draft.source == "auto"
    assert draft.origins == (*["prompt"] * len(first), "draft-model", "draft-model")
    assert len(draft.places) == len(draft.confidence) == len(draft)
    assert draft.places[-2:] == (-1, -1)
    assert draft.confidence[-2:] == pytest.approx((0.9, 0.7))
    assert draft.drawn == 2
    assert model.calls[-1] == ("draw", 3, *first)
    # Asked whether to draw instead, then before each token.
    assert rule.asked == [(first, 3, 1), *((first, n, 3 - n, 1, 1) for n in range(3))]
    assert drafter._text._num_drafted == len(draft)


def test_the_model_draws_in_place_of_a_copy_that_brings_less():
    model, drafter = begun(REPEATED, Rule(2, instead=True))
    draft = drafter.propose(9)
    assert (draft.tokens, draft.match_length, draft.drawn) == ((0, 1), 0, 2)
    assert model.calls[-1] == ("draw", 8)


def test_limits():
    _, drafter = begun(REPEATED)
    for limit in range(9):
        assert len(drafter.propose(limit)) <= limit


def test_a_head_goes_on_behind_short_copies_only():
    """Its states behind the committed text are guesses of guesses."""
    rule = Rule(9)
    _, drafter = begun(REPEATED, rule, PredictionHeadDrafter, Head(), num_draft_tokens=4)
    assert drafter.propose(2).drawn == 0
    assert drafter.extend(Draft.chain([1, 2, 3, 4]), 9).drawn == 0
    assert drafter.extend(Draft.chain([1, 2, 3]), 9).drawn == 1
    # Up to its first token it has to pass over the copied ones.
    assert rule.asked[-1] == ((1, 2, 3), 0, 1, 4, 1)


def test_a_pass_of_a_head_that_guesses_blocks_is_told_once():
    rule, head = Rule(2), Head()
    head.at_once = 6
    _, drafter = begun(REPEATED, rule, PredictionHeadDrafter, head)
    copied = drafter._text.propose(9).tokens
    assert len(copied) == 3
    assert drafter.propose(9).drawn == 2
    assert rule.asked == [
        (copied, 6, 0), (copied, 0, 3, 1, 0), (copied, 1, 2, 0, 0), (copied, 2, 1, 0, 0),
    ]  # fmt: skip


@pytest.mark.parametrize(("at_once", "most"), [(1, 4), (15, 15)])
def test_a_head_drafts_as_many_tokens_as_it_is_made_for(at_once, most):
    head = Head()
    head.at_once = at_once
    assert PredictionHeadDrafter(head).num_draft_tokens == most
    assert make_drafter("auto", head_model=head)._model.num_draft_tokens == most
    assert make_drafter("auto", num_draft_tokens=3, head_model=head)._model.num_draft_tokens == 3


def test_what_is_committed_reaches_both():
    model, drafter = begun(REPEATED)
    drafter.observe([8, 9])
    assert model.calls[-1] == ("extend", [8, 9])
    alone = AutoDrafter()
    alone.observe(REPEATED)
    alone.observe([8, 9])
    assert drafter._text._index.tokens == alone._index.tokens


def test_it_reads_what_its_model_reads():
    head = Head()
    _, with_head = begun(NEW, kind=PredictionHeadDrafter, model=head)
    _, with_model = begun(NEW)
    assert with_head.uses_curve
    assert with_model.uses_curve
    assert with_head.hidden == head.hidden
    assert with_model.hidden is None
    with_head.use_rows("rows")  # which this head does not read
    reader = Head()
    reader.use_rows = reader.calls.append
    _, with_reader = begun(NEW, kind=PredictionHeadDrafter, model=reader)
    with_reader.use_rows("rows")
    assert reader.calls[-1] == "rows"
    with_head.begin_states([1], 0)
    with_head.observe_states("states", 0, 1)
    assert head.calls[-2:] == [("begin states", [1], 0), ("states", "states", 0, 1)]


def test_auto_asks_the_model_that_is_there():
    assert type(make_drafter("auto")) is AutoDrafter
    for models, name in [
        ({"head_model": Head()}, "mtp"),
        ({"token_model": Scripted()}, "draft-model"),
        ({"head_model": Head(), "token_model": Scripted()}, "mtp"),
    ]:
        made = make_drafter("auto", **models)
        made.begin_reply(CONFIG, 1)
        made.observe(NEW)
        assert set(made.propose(9).origins) == {name}
        # Drafts by probability need q of every token.
        config = GenerationConfig(draft_options={"draft_sampling": "rejection"})
        assert type(make_drafter("auto", config=config, **models)) is AutoDrafter
