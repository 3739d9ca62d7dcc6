"""Beam search through the engine: the same hypotheses whatever searches ahead, and clear refusals.

Mutants that these tests kill, by hand: a draft model's rows taken for the model's; end tokens not
passed on; text with the end token; scores without the length; the conversation's caches used; the
width of the vocabulary not looked at.
"""

import numpy as np
import pytest
from model_folders import change_id, write_folder
from whole_replies import MEGABYTES, watch_tokenizer

from akunu_lab.beam import beam_search
from akunu_lab.beam.reply import _text
from akunu_lab.beam.rows import CountRows
from akunu_lab.counts import NgramModel
from akunu_py import Engine
from akunu_py.system.errors import (
    ConfigError,
    ContextOverflowError,
    EngineStateError,
    ModelFormatError,
)

PROMPTS = (
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(",
    "Once upon a time there was a",
)


@pytest.mark.slow
@pytest.mark.parametrize("prompt", PROMPTS[:2])
def test_searching_ahead_changes_nothing_on_the_shipped_model(pair, prompt):
    options = {"width": 2, "max_tokens": 10}
    plain = beam_search(pair, prompt, drafter="none", **options)
    assert plain.stats.passes == plain.stats.steps == 10
    assert (plain.stats.draft_steps, plain.stats.acceptance) == (0, None)
    by_model = beam_search(pair, prompt, num_draft_steps=3, **options)
    by_counts = beam_search(pair, prompt, drafter="ngram", num_draft_steps=1, **options)
    assert by_model.hypotheses == by_counts.hypotheses == plain.hypotheses
    stats = by_model.stats
    assert stats.passes == len(stats.rows) == stats.steps - stats.kept_draft_steps < 10
    assert 0 < stats.acceptance == stats.kept_draft_steps / stats.draft_steps < 1
    assert stats.draft_passes == stats.draft_steps
    assert by_counts.stats.draft_passes == 0 < by_counts.stats.draft_steps


def test_a_beam_of_one_is_greedy_and_scores_are_the_models(pair):
    prompt = PROMPTS[1]
    reply = pair.generate(prompt, max_tokens=16, temperature=0, drafter="none")
    for drafter in ("none", "draft-model"):
        found = beam_search(pair, prompt, width=1, max_tokens=16, drafter=drafter)
        (best,) = found.hypotheses
        assert (best.token_ids, best.text) == (reply.token_ids, reply.text)
        assert best.finished == (reply.finish_reason == "stop")
    text = pair.tokenizer.encode(prompt, parse_special=True)
    logits = pair.logits([*text, *best.token_ids])[len(text) - 1 : -1].astype(np.float64)
    rows = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    total = sum(row[token] for row, token in zip(rows, best.token_ids, strict=True))
    assert best.log_probability == pytest.approx(total, abs=1e-4)
    assert found.num_prompt_tokens == len(text)


@pytest.mark.slow
def test_ended_hypotheses_stay_and_carry_no_end_text(pair):
    found = beam_search(pair, "The capital of France is", width=5, max_tokens=14, drafter="none")
    ended = [one for one in found.hypotheses if one.finished]
    assert 0 < len(ended) < 5
    end_ids = pair.tokenizer.end_ids
    for one in found.hypotheses:
        assert one.finished == (one.token_ids[-1] in end_ids)
        assert one.text == pair.tokenizer.decode(
            [token for token in one.token_ids if token not in end_ids]
        )
        assert len(one.token_ids) == 14 or one.finished
        assert one.score == one.log_probability
    assert sorted(found.hypotheses, key=lambda one: -one.score) == list(found.hypotheses)
    again = beam_search(
        pair,
        "The capital of France is",
        width=5,
        max_tokens=14,
        length_penalty=2.0,
        drafter="none",
    )
    assert again.hypotheses[0].token_ids != found.hypotheses[0].token_ids
    for one in again.hypotheses:
        assert one.score == one.log_probability / len(one.token_ids) ** 2
    assert {one.token_ids for one in again.hypotheses} == {
        one.token_ids for one in found.hypotheses
    }
    assert sorted(again.hypotheses, key=lambda one: -one.score) == list(again.hypotheses)


class Spelling:
    """A tokenizer whose end token has a text, as a plain token would."""

    end_ids = frozenset({0})

    def detokenizer(self, *, continues):
        assert continues
        return self

    def feed(self, tokens):
        return "".join("xyz"[token] for token in tokens)

    def finish(self):
        return "."


def test_an_end_token_with_a_text_is_left_out():
    assert _text(Spelling(), (1, 2, 0)) == "yz."


def test_the_conversation_stays(engine):
    engine.generate("Hello there", max_tokens=3)
    beam_search(engine, "Something else", width=2, max_tokens=3)
    assert engine.generate("Hello there", max_tokens=3).num_cached_tokens > 0


def test_a_search_of_token_ids_wide_as_the_vocabulary(engine):
    size = engine.vocabulary_size
    found = beam_search(engine, [5, 6], width=size, max_tokens=1, drafter="ngram")
    assert sorted(one.token_ids[0] for one in found.hypotheses) == list(range(size))
    total = np.exp([one.log_probability for one in found.hypotheses]).sum()
    assert total == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width is 0"),
        ({"width": True}, "width is True"),
        ({"width": 2.5}, "width is 2.5"),
        ({"width": 100_000}, "the vocabulary has"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"draft_width": 1}, "give the width 2 or more"),
        ({"draft_width": 100_000}, "draft_width is 100000; the vocabulary has"),
        ({"num_draft_steps": 0}, "num_draft_steps is 0"),
        ({"num_draft_steps": 65}, "at most 64"),
        ({"length_penalty": float("nan")}, "length_penalty is nan"),
        ({"drafter": "lookup"}, "a beam search takes 'none', 'ngram', 'draft-model'"),
        ({"drafter": "draft-model"}, "load it with draft_model=PATH"),
    ],
)
def test_what_is_refused(engine, options, message):
    with pytest.raises(ConfigError, match=message):
        beam_search(engine, "Hello", **{"width": 2, "max_tokens": 3, **options})


def test_no_room_and_no_prompt(engine):
    context = engine.context
    with pytest.raises(ContextOverflowError, match=f"the model has a context of {context}"):
        beam_search(engine, [5] * (context - 2), width=2, max_tokens=3)
    found = beam_search(engine, [5] * (context - 2), width=1, max_tokens=2)
    assert found.stats.steps <= 2
    for prompt in ([], ""):
        with pytest.raises(ConfigError):
            beam_search(engine, prompt, width=2, max_tokens=3)


@pytest.mark.slow
def test_a_search_that_is_cancelled_leaves_the_engine_ready(engine, monkeypatch):
    # How long a call waits for the one under way.
    calls = []

    def check():
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        beam_search(engine, "Hello", width=2, max_tokens=30, check=check)
    expected = beam_search(engine, "Hello", width=2, max_tokens=4)
    assert len(expected.hypotheses) == 2

    def calls_the_engine():
        engine.generate("Hello", max_tokens=1)

    with pytest.raises(EngineStateError, match="busy"):
        beam_search(engine, "Hello", width=2, max_tokens=4, check=calls_the_engine)
    assert beam_search(engine, "Hello", width=2, max_tokens=4).hypotheses == expected.hypotheses


def test_counts_say_what_they_do_of_each_text():
    counts = NgramModel(6, order=3)
    prompt = [1, 2, 3, 1, 2, 4, 1]
    counts.observe(prompt)
    found = CountRows(counts, prompt).log_probabilities([(), (2,), (5, 0, 3)])
    for context, row in zip(([4, 1], [1, 2], [0, 3]), found, strict=True):
        np.testing.assert_array_equal(row, np.log(counts.distribution(context).dense()))
    counts = NgramModel(6, order=1, discount=0.0)
    counts.observe([1])
    assert CountRows(counts, [1]).log_probabilities([(3,)]).tolist() == [
        [-np.inf, 0, *[-np.inf] * 4]
    ]


def test_a_reproducible_engine_searches_no_beams(tiny_gguf):
    with (
        Engine.load(tiny_gguf, reproducible=True) as engine,
        pytest.raises(ConfigError, match="without reproducible"),
    ):
        beam_search(engine, "hello", width=2, max_tokens=3)


@pytest.mark.parametrize("text", MEGABYTES.values(), ids=MEGABYTES)
def test_a_megabyte_is_not_tokenized_whole_for_a_search(engine, monkeypatch, text):
    tokenized = watch_tokenizer(monkeypatch)
    with pytest.raises(ContextOverflowError, match="and the context holds 256, the reply inc"):
        beam_search(engine, text)
    assert sum(tokenized) < len(text) / 4


def test_ids_that_the_model_does_not_have_are_not_fed(tiny_gguf, tmp_path):
    folder = write_folder(tmp_path / "model", tiny_gguf)
    change_id(folder, "z", 5000)
    with (
        Engine.load(folder) as engine,
        pytest.raises(ModelFormatError, match="makes the id 5000, and the model has 336"),
    ):
        beam_search(engine, "lazy", width=2, max_tokens=2)
