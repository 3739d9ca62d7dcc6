"""Several proposals at a position: the best ones with the target's noise, or draws that are independent."""

import math

import mlx.core as mx
import numpy as np
import pytest

from akunu_py.sampling.draft_sampler import DraftSampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.values.keyed_noise import NoiseKey, Purpose
from akunu_py.values.types import GenerationConfig

VOCABULARY = 12


def sampler_of(config, purpose, num_proposals):
    chain = TransformChain.from_config(config, VOCABULARY)
    return DraftSampler(chain, 5, VOCABULARY, purpose, num_proposals=num_proposals)


def logits_of(seed):
    return mx.array(np.random.default_rng(seed).normal(0, 1, (1, VOCABULARY)).astype(np.float32))


def q_of(drawn):
    row = np.exp(np.array(drawn.row[0], dtype=np.float64))
    return row / row.sum()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_coupled_proposals_are_those_that_row_and_noise_put_first(temperature):
    config = GenerationConfig(temperature=temperature, repetition_penalty=1.2)
    three = sampler_of(config, Purpose.TARGET, 3)
    for position in range(20):
        drawn = three.draw(logits_of(position), position, [1, 2])
        row = np.array(drawn.row[0], dtype=np.float64)
        if temperature:
            key = NoiseKey.at(5, position)
            row = row + [key.gumbel(token) for token in range(VOCABULARY)]
        assert drawn.tokens.tolist() == np.argsort(-row)[:3].tolist()
        q = q_of(drawn)
        assert drawn.measures.tolist()[:3] == pytest.approx(q[drawn.tokens.tolist()], rel=1e-4)
        entropy = -sum(p * math.log(p) for p in q if p > 0) / math.log(VOCABULARY)
        assert drawn.measures.tolist()[3] == pytest.approx(entropy, rel=1e-4)


@pytest.mark.parametrize("purpose", [Purpose.TARGET, Purpose.DRAFT])
def test_the_first_proposal_is_the_draw_without_others(purpose):
    config = GenerationConfig(temperature=1.0)
    one, four = (sampler_of(config, purpose, count) for count in (1, 4))
    for position in range(20):
        logits = logits_of(position)
        for sampler in (one, four):
            sampler.begin_draft(position // 4)
        assert (
            four.draw(logits, position).tokens.tolist()[0]
            == one.draw(logits, position).tokens.item()
        )


@pytest.mark.slow
def test_independent_proposals_follow_q_each_by_itself():
    config = GenerationConfig(temperature=1.0, top_k=4)
    sampler, logits, rounds = sampler_of(config, Purpose.DRAFT, 3), logits_of(1), 3000
    joint = np.zeros((3, VOCABULARY, VOCABULARY))
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
    drawn = sampler_of(config, Purpose.TARGET, 4).draw(logits_of(3), 9)
    tokens, chances = drawn.tokens.tolist(), drawn.measures.tolist()[:4]
    assert sum(chances[:2]) == pytest.approx(1.0, rel=1e-4)
    for token, chance in zip(tokens[2:], chances[2:], strict=True):
        assert token in tokens[:2] or chance == 0
