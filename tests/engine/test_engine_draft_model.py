"""An engine with a draft model: the shipped pair, a smaller model, and what is refused.

What holds for every model that drafts is in test_engine_heads.py.
"""

import logging

import pytest
from engine_inside import drafting_model
from gguf_files import write_tiny_llama

from akunu_py import ConfigError, Engine

PROMPT = "def hello(world):\n    return world"
MESSAGES = [{"role": "user", "content": "Write a function that adds two numbers."}]
PENALTIES = {"repetition_penalty": 1.15, "frequency_penalty": 0.1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "drafter"),
    [
        ({}, "draft-model"),
        ({"temperature": 0.7, "seed": 5}, "draft-model"),
        ({"temperature": 1.3, "seed": 6, **PENALTIES}, "draft-model"),
        pytest.param(
            {"temperature": 0.7, "seed": 7, "top_p": 0.9}, "draft-model-ngram",
            marks=pytest.mark.lab,
        ),
    ],
    ids=["greedy", "0.7", "1.3, penalties", "0.7, hierarchical"],
)  # fmt: skip
def test_the_shipped_pair_says_what_the_model_says_alone(pair, options, drafter):
    options = {"max_tokens": 20, **options}
    plain = pair.chat(MESSAGES, drafter="none", **options)
    for budget in ("always", "auto"):
        drafted = pair.chat(MESSAGES, drafter=drafter, draft_budget=budget, **options)
        assert drafted.token_ids == plain.token_ids
        assert drafted.exactness == "stream"
        if budget == "always":
            assert drafted.stats.accepted > 2
            assert drafted.stats.tokens_per_pass > 1.05


def test_a_misspelt_name_is_named(tiny_pair):
    with pytest.raises(ConfigError, match="did you mean 'draft-model'"):
        tiny_pair.generate(PROMPT, drafter="draft_model")


@pytest.mark.parametrize("options", [{}, {"temperature": 0.8, "seed": 4, **PENALTIES}])
def test_auto_with_a_draft_model_leaves_the_text_as_it_is(tiny_pair, options):
    plain = tiny_pair.generate(PROMPT, max_tokens=40, drafter="none", **options)
    for budget in ("always", "auto"):
        drafted = tiny_pair.generate(PROMPT, max_tokens=40, draft_budget=budget, **options)
        assert drafted.token_ids == plain.token_ids
        assert drafted.exactness == "stream"


def test_a_draft_model_as_large_as_the_model_is_warned_of(tiny_gguf, caplog):
    with caplog.at_level(logging.WARNING), Engine.load(tiny_gguf, draft_model=tiny_gguf):
        assert "drafting with it will hardly pay" in caplog.text


def test_a_prompt_is_fed_to_the_draft_model_once(tiny_pair):
    """A conversation goes on: the draft model, too, feeds what is new alone."""
    drafts = drafting_model(tiny_pair)
    first = tiny_pair.generate(PROMPT, max_tokens=20, draft_budget="always")
    ids = [*tiny_pair.tokenizer.encode(PROMPT, parse_special=True), *first.token_ids]
    fed, feed = [], drafts._rows.feed_apart
    drafts._rows.feed_apart = lambda tokens: (fed.append(len(tokens)), feed(tokens))[1]
    try:
        tiny_pair.generate([*ids, 7, 8, 9], max_tokens=4, draft_budget="always")
    finally:
        drafts._rows.feed_apart = feed
    assert sum(fed) <= 2 + 8


def test_cancelling_while_the_draft_model_takes_the_prompt_in(tiny_pair):
    stream = tiny_pair.stream("the world " * 40, max_tokens=20, draft_budget="always")
    drafts = drafting_model(tiny_pair)
    beginning = drafts.beginning

    def cancelled(prompt, sampling):
        stream.cancel()
        yield from beginning(prompt, sampling)

    drafts.beginning = cancelled
    try:
        events = list(stream)
    finally:
        del drafts.beginning
    assert events[-1].result.finish_reason == "cancelled"
    assert not events[-1].result.token_ids
    assert tiny_pair.generate(PROMPT, max_tokens=5).token_ids


def test_a_draft_model_with_a_shorter_context(tiny_gguf, tmp_path):
    draft = write_tiny_llama(tmp_path / "short.gguf", tied=False, seed=3, context=32)
    with Engine.load(tiny_gguf, draft_model=draft) as engine:
        plain = engine.generate(PROMPT, max_tokens=60, drafter="none")
        options = {"draft_budget": "always", "drafter": "draft-model"}
        found = engine.generate(PROMPT, max_tokens=60, **options)
        assert found.token_ids == plain.token_ids
        assert 0 < found.stats.steps_with_draft < found.stats.steps / 2
        # A prompt longer than it holds: nothing is drafted at all.
        long = engine.generate("the world " * 30, max_tokens=5, **options)
        assert long.stats.drafted == 0
