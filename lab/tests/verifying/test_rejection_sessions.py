"""Verifiers by probability over a session: their tokens, their law, logits that are no numbers."""

import itertools

import mlx.core as mx
import pytest
from tiny_models import generate, prompt_of, tiny
from tree_matrix import TreeAdversary, Watched

from akunu_lab.verifying.chance import KeyedChance
from akunu_lab.verifying.law_loop import decode_by_law
from akunu_lab.verifying.verifiers import RejectionVerifier
from akunu_py.drafting import PlainDrafter
from akunu_py.drafting.draft_model import DraftModelDrafter
from akunu_py.models.session import Session
from akunu_py.models.token_model import CachedTokenModel
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.values.types import GenerationConfig


def begin(session, prompt, config, max_tokens=40, seed=7):
    size = session.vocabulary_size
    chain = TransformChain.from_config(config, size)
    session.begin(prompt, Sampler(chain, seed, size), max_tokens)
    return chain


def test_a_verifier_of_probabilities_takes_trees():
    """Greedy distributions are certain, so that rejection sampling too gives the plain text."""
    session, prompt, config = Session(tiny(), context=600), prompt_of(12), GenerationConfig()
    plain = generate(session, prompt, config, PlainDrafter(), max_tokens=40)
    drafter = TreeAdversary(prompt + plain, 4)
    drafter.observe(prompt)
    watched = Watched(session)
    begin(session, prompt, config)
    steps = decode_by_law(
        session, drafter, prompt[-1], num_draft_tokens=12, max_tokens=40,
        rule=RejectionVerifier(KeyedChance(7)), position=len(prompt),
    )  # fmt: skip
    assert [token for step in steps for token in step.token_ids] == plain
    assert len(drafter.given) > 5
    assert watched.accepted > 5


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
