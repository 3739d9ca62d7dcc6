"""Further proposals of a draft model change nothing of what it goes on behind."""

import numpy as np
import pytest
from models.fresh_draws import CONFIGS, SEED, expected, made
from tiny_models import VOCABULARY, prompt_of, tiny

from akunu_lab.drafting.proposals import ProposalsDrafter
from akunu_py.drafting.draft_model import DrawSettings


@pytest.fixture(scope="module")
def llama():
    return tiny()


def begun(llama, config, num_proposals, *, independent=False):
    drafts = made(llama)
    list(drafts.beginning(prompt_of(21), DrawSettings(config, SEED, independent, num_proposals)))
    return drafts


@pytest.mark.parametrize("name", CONFIGS)
def test_the_trunk_is_the_draft_without_further_proposals(llama, name):
    config, text = CONFIGS[name], list(prompt_of(21))
    drafts = begun(llama, config, 3)
    for taken in (3, 0, 2):
        drawn = drafts.draw(4)
        assert [token.token for token in drawn] == expected(llama, text, 4, config)
        for token in drawn:
            likely = [other for other, q in token.others if q > 0 and other != token.token]
            assert len(set(likely)) == len(likely)
            # A nucleus may have a single token.
            assert len(likely) == 2 or config.top_p < 1
        # One of the other proposals is what the target said: that row was never fed.
        output = [*(token.token for token in drawn[:taken]), drawn[taken].others[1][0]]
        text += output
        drafts.extend(output)


def test_rows_of_q_are_those_of_the_trunk_and_sum_to_one(llama):
    drafter = ProposalsDrafter(made(llama), num_proposals=3, rejection=True)
    drafter.begin_reply(CONFIGS["0.7"], SEED)
    drafter.observe(prompt_of(21))
    draft = drafter.propose(9)
    rows = drafter.draft_probabilities()
    assert rows.shape == (len(draft), VOCABULARY)
    assert np.allclose(rows.sum(axis=1), 1)
    assert sum(drafter.draw_counts()) == 6
    # num_draft_tokens is 8: two positions of three draws.
    assert len({row.tobytes() for row in rows}) == 2
    one = begun(llama, CONFIGS["0.7"], 1, independent=True)
    first = one.draw(2)
    assert np.array_equal(one.probabilities()[0], rows[0])
    assert draft.tokens[0] == first[0].token
