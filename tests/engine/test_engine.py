"""The engine's API: results, streams, prefix reuse, options and prompts out of range."""

from itertools import cycle, product

import numpy as np
import pytest
from gguf_files import CHAT_TEMPLATE, write_tiny_llama
from whole_replies import PROMPT, endless

import akunu_py
from akunu_py import ConfigError, ContextOverflowError, Engine, GenerationConfig, Message, Tool
from akunu_py.values.reply_deltas import ContentDelta, ReasoningDelta


def test_a_result_is_complete(engine):
    result = engine.generate(PROMPT, max_tokens=24, temperature=0.8, seed=5)
    assert len(result.token_ids) == 24 or result.finish_reason == "stop"
    assert result.text == engine.tokenizer.decode(result.token_ids)
    assert result.seed == 5
    assert result.num_prompt_tokens == len(engine.tokenizer.encode(PROMPT, parse_special=True))
    assert result.num_cached_tokens == 0
    assert result.prefill_s > 0
    assert result.decode_s > 0
    assert result.peak_memory_bytes > 1e5
    assert result.stats.output_tokens == len(result.token_ids)
    assert result.decode_tokens_per_s == pytest.approx(len(result.token_ids) / result.decode_s)


@pytest.mark.parametrize("most", [500, None])
@pytest.mark.parametrize("drafter", ["none", "auto"])
def test_a_reply_ends_where_the_context_does(tiny_gguf, drafter, most):
    with Engine.load(tiny_gguf, context=48) as engine:
        assert engine.context == 48
        found = engine.generate(PROMPT, **endless(engine, drafter=drafter, max_tokens=most))
    assert found.num_prompt_tokens + len(found.token_ids) == 48
    assert found.finish_reason == "length"


def test_text_and_ids_are_the_same_prompt(engine):
    ids = engine.tokenizer.encode(PROMPT, parse_special=True)
    expected = engine.generate(PROMPT, max_tokens=16).token_ids
    for prompt in (ids, tuple(ids), np.array(ids)):
        assert engine.generate(prompt, max_tokens=16).token_ids == expected


def test_a_stream_is_the_result_in_pieces(engine):
    expected = engine.generate(PROMPT, max_tokens=30)
    events = list(engine.stream(PROMPT, max_tokens=30))
    assert "".join(event.text for event in events) == expected.text
    assert tuple(t for event in events for t in event.token_ids) == expected.token_ids
    assert [event.result is not None for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1].result.token_ids == expected.token_ids
    assert len(events) == events[-1].result.stats.steps


def test_a_seed_is_drawn_reported_and_enough_to_repeat_the_reply(engine):
    first = engine.generate(PROMPT, max_tokens=20, temperature=1.3)
    second = engine.generate(PROMPT, max_tokens=20, temperature=1.3)
    assert first.seed != second.seed
    assert first.token_ids != second.token_ids
    again = engine.generate(PROMPT, max_tokens=20, temperature=1.3, seed=first.seed)
    assert again.token_ids == first.token_ids


# Every budget with every sampling; the others in turns, so that all pairs come up.
DRAFTED = [
    (*sampling, count, drafter)
    for sampling, count, drafter in zip(
        product(("auto", "always"), (0.0, 0.7, 1.3), (1.0, 1.3)),
        cycle((1, 4, 9)),
        cycle(("ngram", "ngram", "ngram-window", "ngram-window")),
        strict=False,
    )
]


@pytest.mark.parametrize(("budget", "temperature", "penalty", "count", "drafter"), DRAFTED)
def test_drafting_changes_nothing(engine, budget, temperature, penalty, count, drafter):
    options = {
        "max_tokens": 32, "temperature": temperature, "seed": 11, "repetition_penalty": penalty,
    }  # fmt: skip
    plain = engine.generate(PROMPT, drafter="none", **options)
    drafted = engine.generate(
        PROMPT, drafter=drafter, num_draft_tokens=count, draft_budget=budget, **options
    )
    assert drafted.token_ids == plain.token_ids
    assert drafted.text == plain.text


def test_options_override_a_config(engine):
    config = GenerationConfig(max_tokens=3)
    assert len(engine.generate(PROMPT, config).token_ids) <= 3
    assert len(engine.generate(PROMPT, config, max_tokens=2).token_ids) <= 2


def test_stop_texts_end_the_reply_across_tokens(engine):
    whole = engine.generate(PROMPT, max_tokens=60)
    middle = len(whole.text) // 2
    stop = whole.text[middle : middle + 3]
    result = engine.generate(PROMPT, max_tokens=60, stop=(stop,))
    assert result.finish_reason == "stop"
    assert result.text == whole.text[: whole.text.index(stop)]
    assert result.token_ids == whole.token_ids[: len(result.token_ids)]
    assert stop in engine.tokenizer.decode(result.token_ids)
    assert result.stats.output_tokens == len(result.token_ids)


def test_chat_uses_the_template_and_generate_does_not(engine):
    messages = [{"role": "user", "content": "hello world"}]
    ids = engine.tokenizer.encode_chat(messages)
    chatted = engine.chat(messages, max_tokens=10)
    assert chatted.num_prompt_tokens == len(ids)
    assert chatted.token_ids == engine.generate(ids, max_tokens=10).token_ids
    assert engine.generate("hello world", max_tokens=10).num_prompt_tokens < len(ids)


def test_tools_reach_the_template(tmp_path):
    template = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}" + CHAT_TEMPLATE
    path = write_tiny_llama(tmp_path / "tools.gguf", context=512, chat_template=template)
    messages, tools = [Message("user", "hello")], [Tool("look_up", "a word")]
    with Engine.load(path) as engine:
        ids = engine.tokenizer.encode_chat(messages, tools=tools)
        assert "look_up" in engine.tokenizer.decode(ids)
        made = engine.chat(messages, tools=tools, tool_choice="none", max_tokens=3)
        assert made.num_prompt_tokens == len(ids)
        assert engine.chat(messages, max_tokens=3).num_prompt_tokens < len(ids)


def test_a_continued_prompt_may_open_reasoning_and_has_no_message(engine):
    for prompt, kind in (("a <think>", ReasoningDelta), ("a", ContentDelta)):
        stream = engine.stream(prompt, max_tokens=8)
        deltas = [delta for event in stream for delta in event.deltas]
        assert {type(delta) for delta in deltas} == {kind}
        assert "".join(delta.text for delta in deltas).strip() == stream.result.text.strip()
        assert stream.result.message is None


def test_messages_and_tools_are_checked(engine):
    with pytest.raises(ConfigError, match=r"messages\[1\]\.role is 'usr'; give system"):
        engine.chat([{"role": "user", "content": "a"}, {"role": "usr", "content": "b"}])
    with pytest.raises(ConfigError, match=r"tools\[0\] is a str"):
        engine.chat([Message("user", "a")], tools=["look_up"])


def test_a_conversation_prefills_its_tail_alone(engine):
    messages = [{"role": "user", "content": "hello the world " * 5}]
    first = engine.chat(messages, max_tokens=10)
    assert first.num_cached_tokens == 0
    messages += [
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "and the draft"},
    ]
    second = engine.chat(messages, max_tokens=10)
    assert second.num_cached_tokens >= first.num_prompt_tokens - 1
    engine.reset()
    assert engine.chat(messages, max_tokens=10).token_ids == second.token_ids


def test_progress_reaches_the_end(engine):
    seen = []
    engine.generate(PROMPT, max_tokens=2, progress=lambda done, total: seen.append((done, total)))
    assert seen[0][0] == 0
    assert seen[-1][0] == seen[-1][1] == len(engine.tokenizer.encode(PROMPT))


def test_logits_are_rows_of_the_prompt(engine):
    ids = engine.tokenizer.encode(PROMPT)
    rows = engine.logits(ids)
    assert rows.shape == (len(ids), engine.vocabulary_size)
    assert rows.dtype == np.float32
    assert int(rows[-1].argmax()) == engine.generate(ids, max_tokens=1).token_ids[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_p": 0}, "top_p is 0"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0"),
        ({"max_tokens": True}, "max_tokens is True"),
        ({"num_draft_tokens": 65}, "at most 64"),
        ({"draft_budget": "never"}, "draft_budget is 'never'"),
        ({"seed": 2**64}, "below 2"),
        ({"stop": 5}, "stop is 5"),
        ({"stop": None}, "stop is None"),
        ({"drafter": 5}, "drafter is 5"),
        ({"ngram_order": 1, "drafter": "ngram"}, "ngram_order is 1; give 2 or more"),
        ({"ngram_order": 5}, "the drafter 'auto' has no ngram_order"),
        ({"draft_options": {"ngram_oder": 5}}, "did you mean 'ngram_order'"),
        ({"drafter": "draft-model"}, "no draft model to ask"),
        ({"logit_bias": [1]}, "logit_bias is [1]"),
        ({"temperature": 1e-40}, "give 0 for the likeliest token"),
        ({"stop": ("",)}, "none of them empty"),
        ({"logit_bias": {10**6: 1.0}}, "logit_bias holds 1000000"),
        ({"logit_bias": {1: float("nan")}}, "bias of token 1"),
        ({"drafter": "ngrams"}, "did you mean 'ngram'"),
        ({"temprature": 1.0}, "did you mean temperature"),
    ],
)
def test_options_out_of_range_are_named(engine, options, words):
    with pytest.raises(ConfigError) as caught:
        engine.stream(PROMPT, **{"max_tokens": 1, **options})
    assert words in str(caught.value)


@pytest.mark.parametrize("prompt", ["", [], [-1], [10**9], [1.5], [True], ["a"], 5, None])
def test_prompts_that_are_none(engine, prompt):
    with pytest.raises(ConfigError):
        engine.generate(prompt)
    with pytest.raises(ConfigError):
        list(engine.stream(prompt))


def test_a_prompt_longer_than_the_context(engine):
    with pytest.raises(ContextOverflowError, match="context holds 256"):
        engine.generate("the world " * 500)
    with pytest.raises(ContextOverflowError):
        engine.logits([1] * 257)
    assert engine.generate(PROMPT, max_tokens=2).token_ids


@pytest.mark.parametrize("context", [1, 0, -5, 257, "9", True])
def test_a_context_out_of_range(tiny_gguf, context):
    with pytest.raises(ConfigError, match=r"this model allows 2 to 256|give 2 or more tokens"):
        Engine.load(tiny_gguf, context=context)


@pytest.mark.parametrize("value", ["fp16", "", None])
def test_unknown_weights(tiny_gguf, value):
    with pytest.raises(ConfigError, match="give 'auto' or 'quantized' or 'dense'"):
        Engine.load(tiny_gguf, weights=value)


def test_exported_names():
    assert sorted(akunu_py.__all__) == akunu_py.__all__
    for name in akunu_py.__all__:
        assert getattr(akunu_py, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'engin'"):
        _ = akunu_py.engin
