"""Rejection sampling through the engine: texts come with the model's own probabilities.

Chi-squared over the first two and the first three tokens of replies of five, from five tokens that a
bias leaves; seeds 0 to 349. A draft model over rows of its own, proposals as trees, guesses of n-grams
and combinations take part, with rules of length. A second line behind the enumerations of
`tests/decoding`, which see biases too small for this one, as of equal proposals that are not counted.
What it sees is shown by residuals left out; by hand, it was by a residual drawn with the number that
had decided to accept.

Two tokens see more with fewer runs. Without residuals chi-squared was so many standard deviations
above its mean: 37 with three tokens and 700 runs, 40 with two and 350, 14 with three and 350.
"""

import itertools

import mlx.core as mx
import pytest
from whole_replies import above_the_mean

from akunu_py import Engine, GenerationConfig
from akunu_py.sampling.transforms import TransformChain

RUNS, LENGTHS, MAX_TOKENS = 350, (2, 3), 5
LOWER_BOUND = {"draft_length": "lower-bound"}
ENTROPY = {"draft_length": "entropy", "draft_length_beta": 0.5}
DRAFTING = {
    "draft-model": {"num_draft_tokens": 3, **LOWER_BOUND},
    "draft-model, 2 proposals": {
        "num_draft_tokens": 6,
        "num_proposals": 2,
        "draft_temperature": 0.4,
    },
    "draft-model, 3 proposals": {"num_draft_tokens": 6, "num_proposals": 3, **LOWER_BOUND},
    "draft-model-ngram": {"num_draft_tokens": 3, **ENTROPY},
    "ngram-draft-model": {"num_draft_tokens": 3, **LOWER_BOUND},
    "tree": {"num_draft_tokens": 6},
}


@pytest.fixture(scope="module")
def engine(tiny_gguf, tiny_draft):
    with Engine.load(tiny_gguf, draft_model=tiny_draft) as engine:
        yield engine


@pytest.fixture(scope="module")
def ids(engine):
    found = engine.tokenizer.encode("abcde")[-5:]
    assert engine.tokenizer.decode(found) == "abcde"
    return found


@pytest.fixture(scope="module")
def prompt(ids):
    return [ids[place] for place in (0, 1, 2, 0, 3, 4, 1)]


def configured(engine, ids, name, **options):
    others = set(range(engine.vocabulary_size)) - set(ids)
    config = GenerationConfig(
        max_tokens=MAX_TOKENS, temperature=0.9, logit_bias=dict.fromkeys(others, -1e9),
        drafter=name.split(",")[0], draft_budget="always",
    )  # fmt: skip
    return config.with_values({**DRAFTING[name], **options, "draft_sampling": "rejection"})


@pytest.fixture(scope="module")
def law(engine, ids, prompt):
    """The probability of each text by the model's logits alone."""
    chain = TransformChain.from_config(
        configured(engine, ids, "draft-model"), engine.vocabulary_size
    )
    found = {}
    for text in itertools.product(ids, repeat=max(LENGTHS)):
        rows = mx.array(engine.logits([*prompt, *text])[len(prompt) - 1 : -1])
        found[text] = 1.0
        for place, token in enumerate(text):
            row = chain.log_probabilities(rows[place : place + 1])[0]
            found[text] *= float(mx.softmax(row)[token])
    assert sum(found.values()) == pytest.approx(1, abs=1e-5)
    return found


def excess(engine, prompt, law, config):
    """Chi-squared of `RUNS` texts, in standard deviations above its mean, for each length.

    And the share of draft tokens that were accepted.
    """
    texts = []
    accepted = tested = 0
    for seed in range(RUNS):
        found = engine.generate(prompt, config, seed=seed)
        texts.append(found.token_ids)
        accepted += found.stats.accepted
        tested += found.stats.tested
    return [above_the_mean(texts, law, length) for length in LENGTHS], accepted / tested


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAFTING)
def test_texts_come_by_the_models_law(engine, ids, prompt, law, name):
    above, share = excess(engine, prompt, law, configured(engine, ids, name))
    assert 0.1 < share < 0.95
    assert max(above) < 4


@pytest.mark.slow
def test_without_the_residual_they_do_not(engine, ids, prompt, law):
    config = configured(engine, ids, "draft-model, 2 proposals", adjust=False)
    (two, three), _ = excess(engine, prompt, law, config)
    assert two > 20
    assert three > 8
