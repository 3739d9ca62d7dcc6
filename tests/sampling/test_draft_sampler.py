"""Draws from q, one or several at a position: coupled ones are the target's, independent ones follow q."""

import math
from collections import Counter

import mlx.core as mx
import numpy as np
import pytest

from akunu_py.sampling.draft_sampler import DraftSampler
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.values.keyed_noise import NoiseKey, Purpose
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


FEW = 12


def sampler_of(config, purpose, num_proposals):
    chain = TransformChain.from_config(config, FEW)
    return DraftSampler(chain, 5, FEW, purpose, num_proposals=num_proposals)


def few_logits(seed):
    return mx.array(np.random.default_rng(seed).normal(0, 1, (1, FEW)).astype(np.float32))


def q_of(drawn):
    row = np.exp(np.array(drawn.row[0], dtype=np.float64))
    return row / row.sum()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_coupled_proposals_are_those_that_row_and_noise_put_first(temperature):
    config = GenerationConfig(temperature=temperature, repetition_penalty=1.2)
    three = sampler_of(config, Purpose.TARGET, 3)
    for position in range(20):
        drawn = three.draw(few_logits(position), position, [1, 2])
        row = np.array(drawn.row[0], dtype=np.float64)
        if temperature:
            key = NoiseKey.at(5, position)
            row = row + [key.gumbel(token) for token in range(FEW)]
        assert drawn.tokens.tolist() == np.argsort(-row)[:3].tolist()
        q = q_of(drawn)
        assert drawn.measures.tolist()[:3] == pytest.approx(q[drawn.tokens.tolist()], rel=1e-4)
        entropy = -sum(p * math.log(p) for p in q if p > 0) / math.log(FEW)
        assert drawn.measures.tolist()[3] == pytest.approx(entropy, rel=1e-4)


@pytest.mark.parametrize("purpose", [Purpose.TARGET, Purpose.DRAFT])
def test_the_first_proposal_is_the_draw_without_others(purpose):
    config = GenerationConfig(temperature=1.0)
    one, four = (sampler_of(config, purpose, count) for count in (1, 4))
    for position in range(20):
        logits = few_logits(position)
        for sampler in (one, four):
            sampler.begin_draft(position // 4)
        assert (
            four.draw(logits, position).tokens.tolist()[0]
            == one.draw(logits, position).tokens.item()
        )


@pytest.mark.slow
def test_independent_proposals_follow_q_each_by_itself():
    config = GenerationConfig(temperature=1.0, top_k=4)
    sampler, logits, rounds = sampler_of(config, Purpose.DRAFT, 3), few_logits(1), 3000
    joint = np.zeros((3, FEW, FEW))
    for position in range(rounds):
        drawn = sampler.draw(logits, position)
        first, second, third = drawn.tokens.tolist()
        for place, pair in enumerate([(first, second), (first, third), (second, third)]):
            joint[(place, *pair)] += 1
    q = q_of(drawn)
    expected = np.outer(q, q) * rounds
    sigma = np.sqrt(expected * (1 - np.outer(q, q)))
    assert (np.abs(joint - expected) <= 4 * sigma + 1e-9).all()


def test_tokens_that_cannot_come_are_none_or_seen_before():
    config = GenerationConfig(temperature=0.7, top_k=2)
    drawn = sampler_of(config, Purpose.TARGET, 4).draw(few_logits(3), 9)
    tokens, chances = drawn.tokens.tolist(), drawn.measures.tolist()[:4]
    assert sum(chances[:2]) == pytest.approx(1.0, rel=1e-4)
    for token, chance in zip(tokens[2:], chances[2:], strict=True):
        assert token in tokens[:2] or chance == 0
