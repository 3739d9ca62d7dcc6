"""The draft-model drafter over a scripted token model: what it asks for, and when."""

import numpy as np
import pytest

from akunu_py.drafting.draft_model import DraftModelDrafter, DrawnToken
from akunu_py.errors import ConfigError, ContractError
from akunu_py.lab.drafting.adaptive_length import AfterDraws, FixedLength
from akunu_py.lab.drafting.hierarchical import NUM_GUESSES, NgramGuesses
from akunu_py.types import GenerationConfig

CONFIG = GenerationConfig(temperature=0.7, top_k=5)


class Scripted:
    """Draws 0, 1, 2, ... with falling probabilities; records what it was given."""

    def __init__(self):
        self.calls = []

    def begin(self, prompt, sampling, check):
        check()
        self.calls.append(("begin", list(prompt), sampling))

    def extend(self, tokens):
        self.calls.append(("extend", list(tokens)))

    def draw(self, limit, goes_on=None, guess=None, *, after=()):
        self.calls.append(("draw", limit, *after))
        drawn = []
        while len(drawn) < limit and (goes_on is None or goes_on(drawn)):
            drawn.append(DrawnToken(len(drawn), 0.9 - 0.2 * len(drawn), 0.5))
        self.guess = guess
        return drawn

    def probabilities(self):
        return np.full((3, 4), 0.25)


def begun(**options):
    model = Scripted()
    drafter = DraftModelDrafter(model, **options)
    drafter.begin_reply(CONFIG, 11)
    drafter.observe([5, 6])
    return model, drafter


def test_the_prompt_comes_first_then_what_was_committed():
    model, drafter = begun()
    drafter.observe([])
    drafter.observe([7])
    kind, prompt, sampling = model.calls[0]
    assert (kind, prompt, sampling.config, sampling.seed) == ("begin", [5, 6], CONFIG, 11)
    assert not sampling.independent
    assert model.calls[1:] == [("extend", [7])]


def test_drafts_have_the_probabilities_of_q():
    _, drafter = begun(num_draft_tokens=3)
    draft = drafter.propose(9)
    assert draft.tokens == (0, 1, 2)
    assert draft.source == "draft-model"
    assert draft.confidence == pytest.approx((0.9, 0.7, 0.5))
    assert len(drafter.propose(2)) == 2


def test_a_draft_may_follow_what_another_drafter_proposed():
    model, drafter = begun()
    assert drafter.extend([8, 9], 2).tokens == (0, 1)
    assert model.calls[-1] == ("draw", 2, 8, 9)


def test_nothing_is_asked_for_where_nothing_may_be_drafted():
    model, drafter = begun()
    assert not drafter.propose(0)
    assert [call[0] for call in model.calls] == ["begin"]


def test_every_rule_can_end_a_draft():
    _, drafter = begun(length=AfterDraws(FixedLength(4), 4))
    assert len(drafter.propose(5)) == 4
    drafter.add_rule(lambda drawn: not drawn or drawn[-1].probability > 0.6)
    assert len(drafter.propose(5)) == 3


def test_rejection_gives_rows_and_no_confidence():
    """Cutting a draft by what its tokens' probabilities are would bias the law."""
    model, drafter = begun(rejection=True, draft_temperature=1.5)
    assert model.calls[0][2].independent
    assert model.calls[0][2].config == GenerationConfig(temperature=1.5, top_k=5)
    assert drafter.propose(3).confidence == ()
    assert drafter.draft_probabilities().tolist() == np.full((3, 4), 0.25).tolist()
    drafter.propose(0)
    assert drafter.draft_probabilities().size == 0


def test_coupled_drafts_are_no_draws_of_q():
    _, drafter = begun()
    drafter.propose(3)
    with pytest.raises(ContractError, match="own choices"):
        drafter.draft_probabilities()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_draft_tokens": -1}, "num_draft_tokens is -1; give 0 to 64"),
        ({"num_draft_tokens": 65}, "num_draft_tokens is 65"),
        ({"draft_temperature": -0.5}, "draft_temperature is -0.5"),
        ({"draft_temperature": float("nan")}, "draft_temperature is nan"),
        ({"draft_temperature": 0.0001}, "draft_temperature is 0.0001"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(ConfigError, match=message):
        DraftModelDrafter(Scripted(), **options)


def test_the_reply_must_be_known_before_its_prompt():
    with pytest.raises(ContractError, match="was not told how the reply is sampled"):
        DraftModelDrafter(Scripted()).observe([1])


def test_a_check_that_raises_ends_the_prompt():
    drafter = DraftModelDrafter(Scripted())

    def check():
        raise KeyboardInterrupt

    drafter.begin_reply(CONFIG, 1, check)
    with pytest.raises(KeyboardInterrupt):
        drafter.observe([1, 2])


def test_guesses_follow_what_was_drawn():
    guesses = NgramGuesses()
    guesses.observe([1, 2, 3, 4, 5, 6, 1, 2])
    assert guesses.guess([], 9) == (3, 4, 5, 6)[:NUM_GUESSES]
    assert guesses.guess([3, 4], 2) == (5, 6)
    assert guesses.guess([90], 9) == ()
    # What was drawn is looked up alone: the tables and their place in the text stay.
    assert guesses.guess([], 9) == (3, 4, 5, 6)[:NUM_GUESSES]
    guesses.observe([3])
    assert guesses.guess([], 1) == (4,)


def test_guesses_below_even_odds_are_not_made():
    guesses = NgramGuesses()
    guesses.observe([1, 2, 1, 3, 1, 4])
    # After 1 came 2, 3 and 4, once each; after 1, 2 came 1, and after 2, 1 came 3.
    assert guesses.guess([1], 4) == ()
    assert guesses.guess([1, 2], 2) == (1, 3)


def test_a_hierarchical_drafter_lets_its_guesses_be_checked():
    model, drafter = begun(guesses=NgramGuesses())
    drafter.observe([5])
    drafter.propose(4)
    assert model.guess([], 1) == (6,)
    model, drafter = begun()
    drafter.propose(4)
    assert model.guess is None


class ThreeAPass(Scripted):
    """Draws three tokens before it asks again, as where guesses of n-grams are right."""

    def draw(self, limit, goes_on=None, guess=None, *, after=()):
        drawn = []
        while len(drawn) < limit and (goes_on is None or goes_on(drawn)):
            drawn += [DrawnToken(len(drawn) + n, 0.9, 0.5) for n in range(3)]
        return drawn[:limit]

    def probabilities(self):
        return np.eye(8)[:6]


@pytest.mark.parametrize("rejection", [False, True])
def test_what_a_pass_drew_beyond_the_rule_is_dropped(rejection):
    drafter = DraftModelDrafter(
        ThreeAPass(), rejection=rejection, length=AfterDraws(FixedLength(4), 8)
    )
    drafter.begin_reply(CONFIG, 11)
    drafter.observe([5, 6])
    assert drafter.propose(8).tokens == (0, 1, 2, 3)
    if rejection:
        assert drafter.draft_probabilities().shape == (4, 8)
