"""The draft-model drafter over a scripted token model: what it asks for, and when."""

from unittest.mock import Mock

import numpy as np
import pytest
from drafting.scripted_token_model import CONFIG, Scripted, begun

from akunu_py.drafting.draft_model import DraftModelDrafter
from akunu_py.system.errors import ConfigError, ContractError
from akunu_py.values.types import Draft


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
    assert drafter.extend(Draft.chain([8, 9]), 2).tokens == (0, 1)
    assert model.calls[-1] == ("draw", 2, 8, 9)


def test_nothing_is_asked_for_where_nothing_may_be_drafted():
    model, drafter = begun()
    assert not drafter.propose(0)
    assert [call[0] for call in model.calls] == ["begin"]


def test_rejection_gives_rows_and_no_confidence():
    """Cutting a draft by what its tokens' probabilities are would bias the law."""
    model, drafter = begun(rejection=True)
    assert model.calls[0][2].independent
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
    drafter.begin_reply(CONFIG, 1, Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        drafter.observe([1, 2])
