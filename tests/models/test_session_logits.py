"""Logits of a session, what it would draw from, and a draft model's drafts decided by it."""

import mlx.core as mx
import numpy as np
import pytest
from family_models import build_family
from pairwise import each_value
from tiny_models import VOCABULARY, begin, generate, prompt_of, sampler_of, tiny

from akunu_py import ConfigError
from akunu_py.drafting import PlainDrafter
from akunu_py.engine.engine import Engine
from akunu_py.models.cached_rows import PREFILL_CHUNK
from akunu_py.models.session import Session
from akunu_py.system.errors import ContractError
from akunu_py.values.types import Draft, GenerationConfig

GREEDY = GenerationConfig()


@pytest.fixture(scope="module")
def model():
    return tiny()


def fed_rows(monkeypatch, session):
    """Return a list of the rows of each pass over the conversation's caches."""
    sizes = []
    rows = session.rows
    feed = type(rows).feed

    def counted(self, tokens):
        if self is rows:
            sizes.append(tokens.size)
        return feed(self, tokens)

    monkeypatch.setattr(type(rows), "feed", counted)
    return sizes


@pytest.mark.parametrize(
    "start",
    [
        PREFILL_CHUNK - 1,
        *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 7, PREFILL_CHUNK + 30)),
    ],
)
def test_they_are_those_of_the_whole_text(model, start):
    session = Session(model, context=3 * PREFILL_CHUNK)
    ids = prompt_of(2 * PREFILL_CHUNK + 40)
    whole = session.logits(ids)
    found = session.logits(ids, start)
    assert found.shape == (len(ids) - start, whole.shape[1])
    np.testing.assert_allclose(found, whole[start:], atol=1e-4 * np.abs(whole).max())
    assert found.dtype == np.float32


def test_what_the_conversation_holds_is_not_fed_again(model, monkeypatch):
    session = Session(model, context=200)
    prompt = prompt_of(30)
    reply = generate(session, prompt, GREEDY, PlainDrafter(), max_tokens=12)
    sizes = fed_rows(monkeypatch, session)
    rows = session.logits([*prompt, *reply][:-1], len(prompt) - 1)
    assert sizes == [12]
    assert rows.argmax(axis=-1).tolist() == reply
    # Another reply to the same prompt; then the conversation goes on as if nothing had happened.
    session.logits([*prompt, 5, 6, 7], len(prompt))
    assert sizes == [12, 3]
    assert generate(session, prompt, GREEDY, PlainDrafter(), max_tokens=12) == reply


def test_a_place_outside_the_text_is_refused(tiny_gguf):
    with Engine.load(tiny_gguf) as engine:
        for start in (-1, 3):
            with pytest.raises(ConfigError, match="give 0 to 2, a place in the text"):
                engine.logits([1, 2, 3], start)
        assert engine.logits([1, 2, 3], 2).shape == (1, engine.vocabulary_size)


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
