"""What the session would draw from, and a draft model's drafts decided by it."""

import itertools

import mlx.core as mx
import numpy as np
import pytest
from family_models import build_family
from tiny_models import VOCABULARY, prompt_of, tiny

from akunu_py.drafting.draft_model import DraftModelDrafter
from akunu_py.errors import ContractError
from akunu_py.lab.verifying.chance import KeyedChance
from akunu_py.lab.verifying.law_loop import decode_by_law
from akunu_py.lab.verifying.verifiers import RejectionVerifier
from akunu_py.models.session import Session
from akunu_py.models.token_model import CachedTokenModel
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.types import Draft, GenerationConfig

CONFIGS = {
    "greedy": GenerationConfig(),
    "0.8": GenerationConfig(temperature=0.8, top_k=20),
    "1.2, penalties": GenerationConfig(
        temperature=1.2, repetition_penalty=1.3, presence_penalty=0.4, penalty_window=6
    ),
}


def begin(session, prompt, config, max_tokens=40, seed=7):
    size = session.vocabulary_size
    chain = TransformChain.from_config(config, size)
    session.begin(prompt, Sampler(chain, seed, size), max_tokens)
    return chain


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("family", ["llama", "llama, sliding", "qwen3_next"])
def test_rows_are_the_fresh_models_after_any_acceptance(family, name):
    config, text = CONFIGS[name], list(prompt_of(23))
    session = Session(build_family(family), context=300)
    chain = begin(session, text, config)
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


@pytest.mark.slow
def test_the_law_of_three_tokens_is_the_models():
    """Chi-squared over all texts of three tokens from a vocabulary of four, seeds 0 to 1999."""
    size, prompt, config = 4, [1, 2, 3, 0, 1], GenerationConfig(temperature=0.9)
    target = Session(tiny(seed=3, vocab_size=size), context=64)
    draft = tiny(seed=8, vocab_size=size)
    drafts = CachedTokenModel(draft, context=64, common=size, target_size=size)
    chain = begin(target, prompt, config, 3)
    law = {}
    for text in itertools.product(range(size), repeat=3):
        rows = mx.array(target.logits([*prompt, *text])[len(prompt) - 1 : -1])
        law[text] = 1.0
        for place, token in enumerate(text):
            row = mx.softmax(chain.log_probabilities(rows[place : place + 1])[0])
            law[text] *= float(row[token])
    counts = dict.fromkeys(law, 0)
    runs, accepted, tested = 2000, 0, 0
    for seed in range(runs):
        begin(target, prompt, config, 3, seed)
        drafter = DraftModelDrafter(drafts, rejection=True)
        drafter.begin_reply(config, seed)
        drafter.observe(prompt)
        steps = list(
            decode_by_law(
                target, drafter, prompt[-1], num_draft_tokens=2, max_tokens=3,
                rule=RejectionVerifier(KeyedChance(seed)), position=len(prompt),
            )
        )  # fmt: skip
        counts[tuple(token for step in steps for token in step.token_ids)] += 1
        accepted += sum(step.stats.num_accepted_tokens for step in steps)
        tested += sum(step.stats.num_tested_tokens for step in steps)
    assert 0.2 < accepted / tested < 0.98
    statistic = sum((counts[text] - runs * p) ** 2 / (runs * p) for text, p in law.items())
    # 63 degrees of freedom: mean 63, standard deviation 11.2; 4 of them above.
    assert statistic < 63 + 4 * 11.2
