"""Draws from q: coupled ones are the target's, independent ones follow q; probability and entropy."""

import math
from collections import Counter

import mlx.core as mx
import numpy as np
import pytest

from akunu_py.sampling.draft_sampler import DraftSampler
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.values.keyed_noise import Purpose
from akunu_py.values.types import GenerationConfig

VOCABULARY = 50
CONFIGS = [
    GenerationConfig(),
    GenerationConfig(temperature=0.7),
    GenerationConfig(temperature=1.3, top_p=0.9, top_k=20),
    GenerationConfig(temperature=0.9, repetition_penalty=1.3, frequency_penalty=0.4),
]


def logits_of(seed, size=VOCABULARY):
    return mx.array(np.random.default_rng(seed).normal(0, 2, (1, size)).astype(np.float32))


@pytest.mark.parametrize("config", CONFIGS)
def test_coupled_draws_are_the_targets_choices(config):
    chain = TransformChain.from_config(config, VOCABULARY)
    target = Sampler(chain, 11, VOCABULARY)
    draft = DraftSampler(chain, 11, VOCABULARY, Purpose.TARGET)
    for position in range(40):
        logits = logits_of(position)
        draft.begin_draft(position // 3)
        drawn = draft.draw(logits, position, [1, 2, 2, 3])
        assert drawn.tokens.item() == target.choose(logits, position, [1, 2, 2, 3]).item()


@pytest.mark.parametrize("config", CONFIGS)
def test_probability_and_entropy_are_those_of_the_adjusted_row(config):
    chain = TransformChain.from_config(config, VOCABULARY)
    sampler = DraftSampler(chain, 3, VOCABULARY, Purpose.DRAFT)
    unmeasured = DraftSampler(chain, 3, VOCABULARY, Purpose.DRAFT, entropy=False)
    for position in range(10):
        logits = logits_of(position)
        drawn = sampler.draw(logits, position, [4, 4, 5])
        row = np.array(chain.log_probabilities(logits, [4, 4, 5])[0], dtype=np.float64)
        q = np.exp(row) / np.exp(row).sum()
        entropy = -sum(p * math.log(p) for p in q if p > 0) / math.log(VOCABULARY)
        probability, share = drawn.measures.tolist()
        assert probability == pytest.approx(q[drawn.tokens.item()], rel=1e-4)
        assert share == pytest.approx(entropy, rel=1e-4)
        assert np.allclose(np.array(drawn.row[0]), row, atol=1e-5)
        assert unmeasured.draw(logits, position, [4, 4, 5]).measures.tolist() == [probability, 0]


@pytest.mark.parametrize("purpose", [Purpose.TARGET, Purpose.DRAFT])
@pytest.mark.parametrize("config", [*CONFIGS, GenerationConfig(temperature=0.0)])
def test_draws_among_some_tokens_are_those_from_logits_of_minus_infinity_elsewhere(config, purpose):
    chain = TransformChain.from_config(config, VOCABULARY)
    ids = np.array([0, 2, 3, 7, 8, 21, 22, 40, 41, 48])
    for count in (1, 3):
        whole, some = (
            DraftSampler(chain, 7, VOCABULARY, purpose, num_proposals=count, drawable=drawable)
            for drawable in (None, mx.array(ids, dtype=mx.int32))
        )
        for position in range(20):
            logits = np.full((1, VOCABULARY), -np.inf, np.float32)
            logits[:, ids] = np.array(logits_of(position))[:, ids]
            one, two = (s.draw(mx.array(logits), position, [4, 8, 8]) for s in (whole, some))
            assert one.tokens.tolist() == two.tokens.tolist()
            np.testing.assert_allclose(np.array(one.measures), np.array(two.measures), rtol=1e-5)
            np.testing.assert_allclose(np.array(one.row)[:, ids], np.array(two.row), atol=1e-5)


def test_independent_draws_follow_q_and_not_the_targets_noise():
    config = GenerationConfig(temperature=1.0, top_k=6)
    chain = TransformChain.from_config(config, VOCABULARY)
    sampler = DraftSampler(chain, 5, VOCABULARY, Purpose.DRAFT)
    target = Sampler(chain, 5, VOCABULARY)
    logits, rounds = logits_of(1), 1500
    row = np.array(chain.log_probabilities(logits)[0], dtype=np.float64)
    q = np.exp(row) / np.exp(row).sum()
    counts, equal = Counter(), 0
    for position in range(rounds):
        token = sampler.draw(logits, position).tokens.item()
        counts[token] += 1
        equal += token == target.choose(logits, position).item()
    for token in range(VOCABULARY):
        sigma = math.sqrt(rounds * q[token] * (1 - q[token]))
        assert abs(counts[token] - rounds * q[token]) <= 4 * sigma + 1e-9
    agree = float((q * q).sum())
    assert abs(equal - rounds * agree) < 4 * math.sqrt(rounds * agree * (1 - agree))


def test_a_position_is_drawn_anew_in_every_draft():
    chain = TransformChain.from_config(GenerationConfig(temperature=1.0), VOCABULARY)
    sampler = DraftSampler(chain, 5, VOCABULARY, Purpose.DRAFT)
    logits = mx.zeros((1, VOCABULARY))
    found = []
    for start in range(30):
        sampler.begin_draft(start)
        found.append(sampler.draw(logits, 30).tokens.item())
    assert len(set(found)) > 10
    sampler.begin_draft(4)
    assert sampler.draw(logits, 30).tokens.item() == found[4]


def test_rows_that_are_one_token_have_no_entropy():
    chain = TransformChain.from_config(GenerationConfig(temperature=0.5, top_k=1), VOCABULARY)
    sampler = DraftSampler(chain, 5, VOCABULARY, Purpose.TARGET)
    for low in (-1e4, -math.inf):
        logits = mx.array([[low] * 7 + [3.0] + [low] * (VOCABULARY - 8)])
        drawn = sampler.draw(logits, 9)
        assert drawn.tokens.item() == 7
        assert drawn.measures.tolist() == [1.0, 0.0]
