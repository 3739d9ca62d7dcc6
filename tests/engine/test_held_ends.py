"""Replies that may not end yet: `min_tokens` and `ignore_eos`."""

import functools

import pytest

from akunu_py import Engine
from akunu_py.model_store.known_models import toy_model_path
from akunu_py.system.errors import ConfigError

ASK = [{"role": "user", "content": "one two three"}]
MANY = 30


@pytest.fixture(scope="module")
def engine():
    with Engine.load(toy_model_path()) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def without_end(engine):
    """Tokens of a reply whose end tokens are out of reach by `logit_bias`, by temperature."""
    biases = dict.fromkeys(engine.tokenizer.end_ids, -1e9)
    return functools.cache(
        lambda temperature: (
            engine.chat(
                ASK,
                logit_bias=biases,
                drafter="none",
                temperature=temperature,
                seed=5,
                max_tokens=MANY,
            ).token_ids
        )
    )


DRAFTERS = ["none", "auto", "ngram", pytest.param("tree", marks=pytest.mark.lab)]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_the_end_is_held_as_by_a_bias(engine, without_end, drafter, temperature):
    options = {"drafter": drafter, "draft_budget": "always", "temperature": temperature, "seed": 5}
    expected = without_end(temperature)
    ended = engine.chat(ASK, max_tokens=MANY, **options)
    assert ended.finish_reason == "stop"
    assert len(ended.token_ids) < MANY  # else it says nothing
    held = engine.chat(ASK, max_tokens=MANY, ignore_eos=True, **options)
    assert (held.token_ids, held.finish_reason) == (expected, "length")
    assert (held.stats.accepted > 0) == (drafter != "none")
    least = len(ended.token_ids) + 2
    reply = engine.chat(ASK, max_tokens=MANY, min_tokens=least, **options)
    assert reply.token_ids[:least] == expected[:least]
    as_before = engine.chat(ASK, max_tokens=MANY, min_tokens=len(ended.token_ids) - 1, **options)
    assert as_before.token_ids == ended.token_ids


def test_replies_made_together(engine):
    """Their choices are made elsewhere, after one pass over the rows of both."""
    options = {"max_tokens": MANY, "temperature": 0.0}
    biases = dict.fromkeys(engine.tokenizer.end_ids, -1e9)
    alone = engine.generate("Hello", logit_bias=biases, drafter="none", **options)
    assert engine.generate("Hello", **options).finish_reason == "stop"
    together = engine.generate_many(["Hello"] * 2, ignore_eos=True, **options)
    assert [reply.token_ids for _, reply in together] == [alone.token_ids] * 2


@pytest.mark.parametrize("drafter", ["none", "ngram"])
def test_a_form_is_gone_on_with_until_it_is_complete(engine, drafter):
    options = {"drafter": drafter, "draft_budget": "always", "temperature": 0.0, "max_tokens": MANY}
    for held in ({"min_tokens": 20}, {"ignore_eos": True}):
        assert engine.chat(ASK, regex="(one|two| ){2,30}", **options).text == "one two"
        reply = engine.chat(ASK, regex="(one|two| ){2,30}", **held, **options)
        assert reply.constraint_met
        assert len(reply.token_ids) >= 20
        assert engine.chat(ASK, choices=["yes"], **held, **options).text == "yes"


def test_loops_do_not_end_what_may_not_end(engine):
    options = {"regex": "(ab){300}", "stop_loops": True, "max_tokens": 200}
    assert engine.chat(ASK, **options).finish_reason == "loop"
    assert engine.chat(ASK, ignore_eos=True, **options).finish_reason == "length"


def test_more_tokens_than_the_limit_are_refused(engine):
    with pytest.raises(ConfigError, match="min_tokens is 5, more than max_tokens, 4"):
        engine.chat(ASK, min_tokens=5, max_tokens=4)
