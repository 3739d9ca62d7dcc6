"""Replies by rejection through the engine: the model's distribution, another text than by match."""

import json

import pytest
from whole_replies import PROMPT, details, endless

from akunu_py import ConfigError, Engine
from akunu_py.model_store.known_models import toy_model_path

REJECTION = {"temperature": 0.9, "seed": 4, "draft_sampling": "rejection"}


@pytest.mark.fast_every(2)
@pytest.mark.parametrize("drafter", ["draft-model", "draft-model-ngram", "ngram", "none"])
def test_rejection_at_temperature_0_is_greedy_decoding(tiny_pair, drafter):
    plain = tiny_pair.generate(PROMPT, max_tokens=24, drafter="none")
    for budget in ("always", "auto"):
        found = tiny_pair.generate(
            PROMPT, max_tokens=24, drafter=drafter, draft_sampling="rejection", draft_budget=budget
        )
        assert found.token_ids == plain.token_ids
        assert budget == "auto" or (found.stats.drafted > 0) == (drafter != "none")


def test_the_model_as_its_own_draft_model_by_rejection(tiny_gguf):
    with Engine.load(tiny_gguf, draft_model=tiny_gguf) as engine:
        options = endless(engine, max_tokens=60, **REJECTION)
        result, steps = details(engine, **options)
        # p and q are one distribution, computed in passes of other sizes.
        assert result.stats.alpha == 1.0
        assert {step.origin for step in steps} == {"target"}


@pytest.mark.parametrize("drafter", ["ngram", "lookup", "recycling", "tree", "auto"])
def test_rejection_with_a_drafter_without_probabilities(tiny_pair, drafter):
    """What it drafts is certain: accepted with p, and drawn from p without it otherwise."""
    options = endless(tiny_pair, max_tokens=40, drafter=drafter, **REJECTION)
    result, steps = details(tiny_pair, **options)
    assert result.exactness == "distribution"
    trials = [drafted for step in steps for drafted in step.drafted if drafted.accepted is not None]
    assert trials
    for drafted in trials:
        assert drafted.q == 1.0
        assert drafted.accepted == (drafted.uniform < drafted.p)
    recovered = [step for step in steps if step.kind == "recovered"]
    assert {step.origin for step in recovered} == {"residual"}


@pytest.fixture(scope="module")
def toy():
    with Engine.load(toy_model_path()) as engine:
        yield engine


@pytest.mark.slow
def test_a_verifier_by_probability_keeps_to_the_form(toy):
    """It must see every token that was drawn, so nothing that must come is drafted."""
    properties = {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["alpha", "beta"]},
    }
    schema = {
        "type": "object", "properties": properties, "required": list(properties),
        "additionalProperties": False,
    }  # fmt: skip
    events = list(toy.stream_chat(
        [{"role": "user", "content": "Bob is 12, of kind alpha."}], json_schema=schema, draft_sampling="rejection", temperature=1.0, drafter="ngram",
        draft_budget="always", seed=1, max_tokens=100,
    ))  # fmt: skip
    assert set(json.loads(events[-1].result.text)) == set(properties)
    assert "grammar" not in {piece.source for event in events for piece in event.pieces}


def test_an_end_is_held(toy):
    reply = toy.chat(
        [{"role": "user", "content": "one two three"}], ignore_eos=True, draft_sampling="rejection", temperature=1.0, seed=1, max_tokens=30,
        drafter="ngram", draft_budget="always",
    )  # fmt: skip
    assert reply.finish_reason == "length"
    assert not toy.tokenizer.end_ids & set(reply.token_ids)


def test_rules_that_accept_by_probability_have_none(engine):
    with pytest.raises(
        ConfigError,
        match="logprobs is about the model's own choices; leave it out, or leave out draft_sampling",
    ):
        engine.generate(PROMPT, logprobs=1, temperature=1, draft_sampling="rejection")
