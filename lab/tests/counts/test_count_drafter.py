"""Drafting from counts: which token each way of drawing takes, at which position, from which q."""

import math
from collections import Counter

import mlx.core as mx
import numpy as np
import pytest

from akunu_lab.adjustment import Adjustment
from akunu_lab.counts.drafter import CountDrafter, SampledCountDrafter
from akunu_lab.counts.ngram_model import NgramModel
from akunu_lab.drafting.adaptive_length import EntropyLength, LowerBoundStop
from akunu_py.protocols import Drafter
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.values.keyed_noise import NoiseKey, Purpose
from akunu_py.values.types import GenerationConfig

SIZE = 30
PROMPT = (np.random.default_rng(1).zipf(1.4, 200) % SIZE).tolist()


def drafter_of(kind=CountDrafter, config=None, seed=11, order=4, **fields):
    drafter = kind(NgramModel(SIZE, order=order), **fields)
    drafter.begin_reply(config or GenerationConfig(temperature=1.0), seed)
    return drafter


def model_of(tokens, order=4):
    model = NgramModel(SIZE, order=order)
    model.observe(tokens)
    return model


def test_protocols():
    drafter, sampled = drafter_of(), drafter_of(SampledCountDrafter)
    assert isinstance(drafter, Drafter)
    assert isinstance(sampled, Drafter)
    assert sampled.draws
    assert not drafter.draws  # its q is nothing a verifier should look at


@pytest.mark.parametrize("order", [1, 2, 4])
def test_greedy_takes_the_likeliest_after_each(order):
    drafter = drafter_of(draws="greedy", order=order, num_draft_tokens=6)
    drafter.observe(PROMPT)
    draft = drafter.propose(5)
    model, context = model_of(PROMPT, order), list(PROMPT)
    for token, confidence in zip(draft.tokens, draft.confidence, strict=True):
        row = model.distribution(context).dense()
        assert token == row.argmax()
        assert confidence == row[token]
        context.append(token)
    assert len(draft) == 5
    assert len(drafter.propose(9)) == 6
    assert len(drafter.propose(0)) == 0
    # What was drafted is not counted.
    drafter.observe([3])
    again = drafter_of(draws="greedy", order=order, num_draft_tokens=6)
    again.observe([*PROMPT, 3])
    assert drafter.propose(6) == again.propose(6)


def test_temperature_0_is_greedy():
    cold = drafter_of(config=GenerationConfig())
    greedy = drafter_of(draws="greedy", config=GenerationConfig(temperature=0.7, top_k=3))
    for drafter in (cold, greedy):
        drafter.observe(PROMPT)
    assert cold.propose(4) == greedy.propose(4)
    assert min(cold.propose(4).confidence) > 0
    assert max(cold.propose(4).confidence) < 1


CONFIGS = [
    GenerationConfig(temperature=1.0),
    GenerationConfig(temperature=0.7, top_k=5),
    GenerationConfig(temperature=1.3, top_p=0.8, min_p=0.01),
    GenerationConfig(temperature=1.0, repetition_penalty=1.3, penalty_window=7, logit_bias={2: 1}),
    GenerationConfig(temperature=1.0, presence_penalty=2.5, penalty_window=25),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_a_coupled_draft_is_what_the_targets_sampler_takes_of_q(config):
    """The same q, put through the device's own chain and noise, gives the same tokens."""
    sampler = Sampler(TransformChain.from_config(config, SIZE), 11, SIZE)
    model, context = model_of(PROMPT), list(PROMPT)
    drafter = drafter_of(config=config, num_draft_tokens=12)
    for token in PROMPT:
        drafter.observe([token])
    draft = drafter.propose(12)
    for token in draft.tokens:
        row = mx.array(np.log(model.distribution(context).dense())[None].astype(np.float32))
        assert token == sampler.choose(row, len(context), context).item()
        context.append(token)


def test_the_draft_temperature_takes_the_place_of_the_replys():
    config = GenerationConfig(temperature=0.4, top_k=6)
    drafter = drafter_of(config=config, draft_temperature=1.7)
    drafter.observe(PROMPT)
    draft = drafter.propose(1)
    row = model_of(PROMPT).distribution(PROMPT).dense()
    expected = Adjustment(temperature=1.7, top_k=6).probabilities(np.log(row))
    key = NoiseKey.at(11, len(PROMPT), Purpose.TARGET)
    with np.errstate(divide="ignore"):
        best = (np.log(expected) + key.gumbels(np.arange(SIZE))).argmax()
    assert draft.tokens == (best,)
    assert draft.confidence[0] == pytest.approx(expected[best])


@pytest.mark.slow
def test_independent_draws_have_the_frequencies_of_their_rows():
    config = GenerationConfig(temperature=1.2, top_p=0.95)
    counts = Counter()
    rows = {}
    for seed in range(1500):
        drafter = drafter_of(SampledCountDrafter, config, seed=seed, num_draft_tokens=2, order=2)
        drafter.observe(PROMPT[:40])
        draft = drafter.propose(2)
        assert draft.confidence == ()
        q = drafter.draft_probabilities()
        assert q.shape == (2, SIZE)
        assert q.dtype == np.float64
        np.testing.assert_allclose(q.sum(axis=1), 1, atol=1e-12)
        rows[()] = q[0]
        rows[draft.tokens[:1]] = q[1]
        for length in range(3):
            counts[draft.tokens[:length]] += 1
    commonest = max((prefix for prefix in rows if prefix), key=counts.__getitem__)
    for prefix in ((), commonest):
        q, number = rows[prefix], counts[prefix]
        for token in range(SIZE):
            spread = math.sqrt(number * q[token] * (1 - q[token]))
            assert abs(counts[*prefix, token] - number * q[token]) <= 4 * spread + 1e-9


def test_a_discarded_draw_has_nothing_to_do_with_the_next_at_its_position():
    same, runs = 0, 500
    for seed in range(runs):
        drafter = drafter_of(SampledCountDrafter, seed=seed, order=1, num_draft_tokens=2)
        drafter.model.observe(range(8))
        drafter.observe([0])
        first = drafter.propose(2).tokens[1]
        drafter.observe([1])
        same += drafter.propose(1).tokens[0] == first
    q = model_of([*range(8), 0, 1], 1).distribution([]).dense()
    expected = (q * q).sum()
    assert abs(same / runs - expected) < 4 * math.sqrt(expected / runs)


def test_rejection_at_temperature_0_is_certain():
    drafter = drafter_of(SampledCountDrafter, GenerationConfig())
    assert drafter.draft_probabilities().shape == (0, SIZE)
    drafter.observe(PROMPT)
    draft = drafter.propose(3)
    assert drafter.draft_probabilities().tolist() == np.eye(SIZE)[list(draft.tokens)].tolist()
    greedy = drafter_of(draws="greedy")
    greedy.observe(PROMPT)
    assert greedy.propose(3).tokens == draft.tokens
    drafter.propose(0)
    assert drafter.draft_probabilities().shape == (0, SIZE)


@pytest.mark.parametrize("kind", [CountDrafter, SampledCountDrafter])
def test_a_length_rule_ends_the_draft(kind):
    drafter = drafter_of(kind, length=LowerBoundStop(1.0))
    drafter.observe(PROMPT)
    assert len(drafter.propose(4)) == 0
    entropy = drafter_of(kind, length=EntropyLength(shortest=2, longest=2), num_draft_tokens=9)
    entropy.observe(PROMPT)
    draft = entropy.propose(9)
    assert len(draft) == 2
    share = model_of(PROMPT).distribution(PROMPT).entropy() / math.log(SIZE)
    assert draft.length.entropy == pytest.approx(share)
    fixed = drafter_of(kind)
    fixed.observe(PROMPT)
    assert fixed.propose(4).length is None


def test_extending_looks_at_what_was_drafted():
    drafter = drafter_of(num_draft_tokens=8)
    drafter.observe(PROMPT)
    whole = drafter.propose(6)
    assert drafter.extend(whole.first(4), 2).tokens == whole.tokens[4:]
