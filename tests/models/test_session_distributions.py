"""What the session would draw from, and a draft model's drafts decided by it."""

import mlx.core as mx
import numpy as np
import pytest
from family_models import build_family
from pairwise import each_value
from tiny_models import VOCABULARY, begin, prompt_of, sampler_of, tiny

from akunu_py.models.session import Session
from akunu_py.system.errors import ContractError
from akunu_py.values.types import Draft, GenerationConfig

CONFIGS = {
    "greedy": GenerationConfig(),
    "0.8": GenerationConfig(temperature=0.8, top_k=20),
    "1.2, penalties": GenerationConfig(
        temperature=1.2, repetition_penalty=1.3, presence_penalty=0.4, penalty_window=6
    ),
}


@pytest.mark.parametrize(
    ("family", "name"), each_value(("llama", "llama, sliding", "qwen3_next"), list(CONFIGS))
)
def test_rows_are_the_fresh_models_after_any_acceptance(family, name):
    config, text = CONFIGS[name], list(prompt_of(23))
    session = Session(build_family(family), context=300)
    begin(session, text, config)
    chain = sampler_of(config).chain
    for drafted, taken in [((3, 4, 5), 2), ((), 0), ((6, 7), 0), ((8,), 1), ((1, 2, 3, 4), 4)]:
        rows = session.distributions(text[-1], Draft.chain(drafted))
        assert rows.shape == (len(drafted) + 1, VOCABULARY)
        assert np.abs(rows.sum(axis=1) - 1).max() < 1e-12
        for place, row in enumerate(rows):
            before = [*text, *drafted[:place]]
            logits = mx.array(session.logits(before)[-1:])
            adjusted = chain.log_probabilities(logits, before[-chain.window :])
            if chain.greedy:
                assert row.tolist() == np.eye(VOCABULARY)[int(adjusted.argmax())].tolist()
            else:
                assert np.abs(row - np.array(mx.softmax(adjusted[0]))).max() < 1e-4
        session.commit(range(taken))
        text += [*drafted[:taken], 9]


def test_distributions_and_choices_do_not_mix():
    session, prompt = Session(tiny(), context=300), prompt_of(9)
    begin(session, prompt, CONFIGS["0.8"])
    token = session.choose(prompt[-1], Draft.empty())[0]
    session.commit(())
    with pytest.raises(ContractError, match="every step of a reply, or in none"):
        session.distributions(token, Draft.empty())
    begin(session, prompt, CONFIGS["0.8"])
    with pytest.raises(ContractError, match=f"ids go from 0 to {VOCABULARY - 1}"):
        session.distributions(prompt[-1], Draft.chain([VOCABULARY]))
