"""Passes of one size: the same tokens as without the padding, whatever was drafted."""

import mlx.core as mx
import pytest
from tiny_models import generate

from akunu_py import ConfigError, Engine
from akunu_py.drafting import NgramDrafter, PlainDrafter
from akunu_py.models.load import load_model
from akunu_py.models.padded import PADDED_ROWS, PaddedModel
from akunu_py.models.session import Session
from akunu_py.types import GenerationConfig

PROMPT = "def hello(world):\n    return world"


@pytest.fixture(scope="module")
def padded(tiny_gguf):
    with Engine.load(tiny_gguf, reproducible=True) as engine:
        yield engine


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_the_text_is_that_without_padding(tiny_gguf, padded, temperature, penalty):
    options = {
        "max_tokens": 60, "temperature": temperature, "seed": 4, "repetition_penalty": penalty,
    }  # fmt: skip
    with Engine.load(tiny_gguf) as engine:
        expected = engine.generate(PROMPT, drafter="none", **options).token_ids
    for drafter, budget in (("none", "auto"), ("ngram", "always"), ("ngram", "auto")):
        found = padded.generate(PROMPT, drafter=drafter, draft_budget=budget, **options)
        assert found.token_ids == expected


def test_every_pass_of_decoding_has_one_number_of_rows(tiny_gguf):
    model = load_model(tiny_gguf).model
    seen = []

    class Watched(PaddedModel):
        def _logits(self, inputs, cache):
            seen.append(inputs.shape[1])
            return super()._logits(inputs, cache)

    session = Session(Watched(model), context=200)
    prompt = [1, 5, 9, 5, 9, 5, 9, 5]
    for drafter in (PlainDrafter(), NgramDrafter(num_draft_tokens=7)):
        generate(session, prompt, GenerationConfig(), drafter, num_draft_tokens=7, max_tokens=30)
    assert set(seen) == {PADDED_ROWS}
    # Rows of the padding are gone: the caches hold the text.
    assert {cache.offset for cache in session._rows.caches} == {len(session._rows.tokens)}


def test_longer_passes_are_left_as_they_are(tiny_gguf):
    model = load_model(tiny_gguf).model
    padded = PaddedModel(model)
    tokens = mx.array([[3, 4, 5, 6, 7, 8, 9, 10, 11, 12]])
    caches = padded.make_cache()
    logits = padded(tokens, caches)
    assert mx.array_equal(logits, model(tokens, cache=PaddedModel(model).make_cache()))
    assert caches[0].offset == 10
    few = padded(tokens[:, :3], padded.make_cache())
    assert few.shape[1] == 3


def test_no_more_is_drafted_than_a_pass_has_rows(padded):
    result = padded.generate(PROMPT, num_draft_tokens=64, draft_budget="always", max_tokens=60)
    assert len(result.stats.drafted_per_position) <= PADDED_ROWS - 1


def test_the_rows_of_the_padding_have_positions(tiny_gguf, padded):
    with Engine.load(tiny_gguf) as engine:
        assert padded.context == engine.context - PADDED_ROWS
    with pytest.raises(ConfigError, match="this model allows 2 to"):
        Engine.load(tiny_gguf, reproducible=True, context=engine.context)


def test_models_that_cannot_drop_rows_are_refused():
    class Unknown:
        pass

    class Recurrent:
        layers = ()

        def make_cache(self):
            return [Unknown()]

    with pytest.raises(ConfigError, match="leave reproducible out"):
        PaddedModel(Recurrent())
