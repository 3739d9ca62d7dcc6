"""An engine with a draft model: the shipped pair, defaults, what is refused, what is given back."""

import gc
import logging
import threading

import mlx.core as mx
import pytest
from gguf_files import write_tiny_llama

from akunu_py import ConfigError, Engine, GenerationConfig

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


def test_a_draft_model_is_used_where_nobody_names_a_drafter(tiny_pair):
    stream = tiny_pair.stream(PROMPT, max_tokens=8, draft_budget="always")
    sources = {one.source for event in stream for one in event.step.detail.drafted}
    assert stream.config.drafter == "auto"
    assert "draft-model" in sources
    assert tiny_pair.generate(PROMPT, max_tokens=8, drafter="ngram").text
    with pytest.raises(ConfigError, match="did you mean 'draft-model'"):
        tiny_pair.generate(PROMPT, drafter="draft_model")


@pytest.mark.parametrize("options", [{}, {"temperature": 0.8, "seed": 4, **PENALTIES}])
def test_auto_with_a_draft_model_leaves_the_text_as_it_is(tiny_pair, options):
    plain = tiny_pair.generate(PROMPT, max_tokens=40, drafter="none", **options)
    for budget in ("always", "auto"):
        drafted = tiny_pair.generate(PROMPT, max_tokens=40, draft_budget=budget, **options)
        assert drafted.token_ids == plain.token_ids
        assert drafted.exactness == "stream"


def test_a_draft_model_that_is_the_model_is_always_right(tiny_gguf, caplog):
    with caplog.at_level(logging.WARNING), Engine.load(tiny_gguf, draft_model=tiny_gguf) as engine:
        assert "drafting with it will hardly pay" in caplog.text
        for options in ({}, {"temperature": 0.9, "seed": 3}):
            options["drafter"] = "draft-model"
            result = engine.generate(PROMPT, max_tokens=60, draft_budget="always", **options)
            assert result.stats.alpha == 1.0
            assert result.stats.tokens_per_pass > 5
            options["drafter"] = "none"
            plain = engine.generate(PROMPT, max_tokens=60, **options)
            assert result.token_ids == plain.token_ids


def test_a_prompt_is_fed_to_the_draft_model_once(tiny_pair):
    """A conversation goes on: the draft model, too, feeds what is new alone."""
    drafts = tiny_pair._drafters.models.draft_model
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
    beginning = tiny_pair._drafters.models.draft_model.beginning

    def cancelled(prompt, sampling):
        stream.cancel()
        yield from beginning(prompt, sampling)

    tiny_pair._drafters.models.draft_model.beginning = cancelled
    try:
        events = list(stream)
    finally:
        del tiny_pair._drafters.models.draft_model.beginning
    assert events[-1].result.finish_reason == "cancelled"
    assert not events[-1].result.token_ids
    assert tiny_pair.generate(PROMPT, max_tokens=5).token_ids


def test_a_reply_can_be_read_in_another_thread(tiny_pair):
    plain = tiny_pair.generate(PROMPT, max_tokens=30, drafter="none").token_ids
    stream = tiny_pair.stream(PROMPT, max_tokens=30, draft_budget="always")
    found = list(next(stream).token_ids)
    for _ in range(2):
        reader = threading.Thread(target=lambda: found.extend(next(stream).token_ids))
        reader.start()
        reader.join()
    found += [token for event in stream for token in event.token_ids]
    assert tuple(found) == plain
    assert stream.result.stats.drafted > 0


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


def test_another_vocabulary_is_refused_with_the_first_difference(tiny_gguf, tmp_path):
    draft = write_tiny_llama(tmp_path / "spm.gguf", vocabulary="spm")
    with pytest.raises(ConfigError, match=r"id 0 is .* for the model and '<unk>' for the draft"):
        Engine.load(tiny_gguf, draft_model=draft)


def test_closing_gives_the_draft_models_memory_back(tiny_gguf, tiny_draft):
    gc.collect()
    mx.clear_cache()
    start = mx.get_active_memory()
    engine = Engine.load(tiny_gguf, draft_model=tiny_draft)
    engine.generate(PROMPT, max_tokens=5, draft_budget="always")
    engine.close()
    gc.collect()
    assert mx.get_active_memory() - start < 1e5


def test_a_reproducible_engine_takes_a_draft_model(tiny_gguf):
    with Engine.load(tiny_gguf, draft_model=tiny_gguf, reproducible=True) as engine:
        config = GenerationConfig(max_tokens=20, temperature=0.8, seed=2, draft_budget="always")
        plain = engine.generate(PROMPT, config, drafter="none")
        found = engine.generate(PROMPT, config)
        assert found.token_ids == plain.token_ids
        assert found.stats.accepted > 0
