"""The logits of a text from some place on: those of the whole, on what the conversation holds."""

import numpy as np
import pytest
from tiny_models import generate, prompt_of, tiny

from akunu_py import ConfigError
from akunu_py.drafting import PlainDrafter
from akunu_py.engine.engine import Engine
from akunu_py.models.cached_rows import PREFILL_CHUNK
from akunu_py.models.session import Session
from akunu_py.values.types import GenerationConfig

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
