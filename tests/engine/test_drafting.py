"""Drafters in the engine: the default, what outlives a reply, and candidates.

Mutants, made by hand, that these tests kill: a reply joined when it begins; one of another drafter
joined; a closed stream lost; the state made anew for each reply; a memory that is not read; the cap of
`reproducible` left out.
"""

import gc
import logging
from pathlib import Path
from unittest.mock import Mock

import pytest
from engine_inside import memories_of, session_of
from pairwise import all_pairs

from akunu_py import ConfigError, Engine, EngineStateError, GenerationConfig
from akunu_py.drafting.registry import DrafterKind, default_num_draft_tokens, make

PROMPT = "def hello(world):\n    return world"
DRAFTERS = [name for name in DrafterKind.names("text", "candidates") if name != "none"]
OPTIONS = {
    "greedy": {},
    "sampled": {"temperature": 0.8, "seed": 3},
    "penalties": {"temperature": 1.2, "seed": 4, "presence_penalty": 0.5},
}


def texts(engine):
    return memories_of(engine).replies.state.memory.texts()


@pytest.fixture
def fresh(engine):
    engine.forget()
    return engine


@pytest.mark.parametrize(
    ("drafter", "budget", "has"),
    [("auto", "auto", True), ("auto", "always", False), ("none", "auto", False)],
)
def test_a_budget_is_for_drafts_that_may_be_left_out(engine, drafter, budget, has):
    config = GenerationConfig(drafter=drafter, draft_budget=budget)
    assert (memories_of(engine).budgets(config) is not None) == has


def test_auto_is_the_default(fresh):
    assert GenerationConfig().num_draft_tokens is None
    result = fresh.generate(PROMPT, max_tokens=12)
    assert texts(fresh) == [list(result.token_ids)]  # no other drafter leaves anything


@pytest.fixture(scope="module")
def plain(shared_engine):
    """The reply without drafts, by the name of its options."""
    return {
        name: shared_engine.generate(PROMPT, max_tokens=32, drafter="none", **options).token_ids
        for name, options in OPTIONS.items()
    }


@pytest.mark.parametrize(
    ("drafter", "name", "budget", "count"),
    all_pairs(DRAFTERS, list(OPTIONS), ("auto", "always"), (None, 3)),
)
def test_no_drafter_changes_a_token(engine, plain, drafter, name, budget, count):
    drafted = engine.generate(
        PROMPT, max_tokens=32, drafter=drafter, draft_budget=budget, num_draft_tokens=count,
        **OPTIONS[name],
    )  # fmt: skip
    assert drafted.token_ids == plain[name]


def test_a_reply_comes_back_faster_the_second_time(fresh):
    """The text is new to the prompt: only what the first reply left can foretell the second."""
    options = {"max_tokens": 60, "temperature": 1.5, "seed": 5, "draft_budget": "always"}
    first = fresh.generate(PROMPT, **options)
    second = fresh.generate(PROMPT, **options)
    assert second.token_ids == first.token_ids
    assert second.stats.steps < 0.7 * first.stats.steps


def test_only_replies_of_auto_are_remembered(fresh):
    weights = list(memories_of(fresh).replies.state.calibration.weights)
    for drafter in DrafterKind.names("text", "candidates"):
        if drafter != "auto":
            fresh.generate(PROMPT, max_tokens=8, drafter=drafter, draft_budget="always")
    assert texts(fresh) == []
    assert memories_of(fresh).replies.state.calibration.weights == weights
    never = dict.fromkeys(fresh.tokenizer.end_ids, -1e6)
    fresh.generate(PROMPT, max_tokens=20, repetition_penalty=1.3, logit_bias=never)
    assert [len(text) for text in texts(fresh)] == [20]


def test_a_reply_joins_when_it_ends_however_it_ends(fresh):
    def started(count=2):
        stream = fresh.stream(PROMPT, max_tokens=60, temperature=1.4, seed=9)
        tokens = [token for _ in range(count) for token in next(stream).token_ids]
        assert tokens
        return stream, tokens

    cancelled, tokens = started()
    cancelled.cancel()
    tokens += [token for event in cancelled for token in event.token_ids]
    assert texts(fresh) == [tokens]
    closed, tokens = started()
    assert len(texts(fresh)) == 1
    closed.close()
    closed.close()
    assert texts(fresh)[1:] == [tokens]
    dropped, tokens = started()
    del dropped
    gc.collect()
    assert texts(fresh)[2:] == [tokens]
    left, tokens = started()
    result = fresh.generate(PROMPT, max_tokens=4)
    assert texts(fresh)[3:] == [tokens, list(result.token_ids)]
    with pytest.raises(EngineStateError, match="ended by a later call"):
        next(left)
    assert len(texts(fresh)) == 5


def test_a_reply_without_tokens_joins_nothing(fresh):
    fail = Mock(side_effect=RuntimeError("the caller's own"))
    fresh.reset()
    with pytest.raises(RuntimeError):
        fresh.generate(PROMPT, max_tokens=8, progress=fail)
    unread = fresh.stream(PROMPT, max_tokens=8)
    again = fresh.stream(PROMPT, max_tokens=8)
    again.cancel()
    assert list(again)[-1].result.token_ids == ()
    unread.close()
    fresh.reset()
    assert texts(fresh) == []


def test_a_failure_in_the_middle_keeps_what_was_said(fresh, monkeypatch):
    stream = fresh.stream(PROMPT, max_tokens=60, temperature=1.4, seed=2)
    tokens = list(next(stream).token_ids)
    with monkeypatch.context() as patch:
        patch.setattr(session_of(fresh), "choose", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            next(stream)
    fresh.reset()
    assert texts(fresh) == [tokens]


def test_remembering_a_text(fresh):
    never = dict.fromkeys(fresh.tokenizer.end_ids, -1e6)
    options = {
        "max_tokens": 60, "temperature": 1.5, "seed": 31, "draft_budget": "always",
        "logit_bias": never,
    }  # fmt: skip
    first = fresh.generate(PROMPT, **options)
    fresh.forget()
    assert texts(fresh) == []
    again = fresh.generate(PROMPT, **options)
    fresh.forget()
    fresh.remember(first.token_ids)
    fresh.remember("hello world")
    assert texts(fresh) == [list(first.token_ids), fresh.tokenizer.encode("hello world")]
    told = fresh.generate(PROMPT, **options)
    assert told.token_ids == first.token_ids == again.token_ids
    assert again.stats.steps == first.stats.steps
    assert told.stats.steps < 0.7 * first.stats.steps
    for wrong in ([], [-1], [10**9], 5, None):
        with pytest.raises(ConfigError):
            fresh.remember(wrong)


def test_remembering_and_forgetting_while_a_reply_is_under_way(fresh):
    stream = fresh.stream(PROMPT, max_tokens=30)
    first = next(stream)
    fresh.remember("hello world")
    tokens = [*first.token_ids, *(token for event in stream for token in event.token_ids)]
    assert texts(fresh) == [fresh.tokenizer.encode("hello world"), tokens]
    stream = fresh.stream(PROMPT, max_tokens=30)
    next(stream)
    fresh.forget()
    assert texts(fresh) == []
    with pytest.raises(EngineStateError, match="ended by forgetting"):
        next(stream)


def test_a_memory_on_disk_serves_the_next_run(tiny_gguf, tmp_path):
    options = {"max_tokens": 40, "temperature": 1.5, "seed": 5, "draft_budget": "always"}
    folder = tmp_path / "new" / "folder"
    with Engine.load(tiny_gguf, memory=folder) as engine:
        first = engine.generate(PROMPT, **options)
        engine.remember("the last thing, moments later")
    (file,) = folder.iterdir()
    with Engine.load(tiny_gguf, memory=str(folder)) as engine:
        assert texts(engine)[0] == list(first.token_ids)
        assert len(texts(engine)) == 2
        assert engine.generate(PROMPT, **options).stats.steps < first.stats.steps
    assert list(folder.iterdir()) == [file]
    with Engine.load(tiny_gguf, memory=folder) as engine:
        assert len(texts(engine)) == 3
        engine.forget()
    with Engine.load(tiny_gguf, memory=folder) as engine:
        assert texts(engine) == []


def test_a_damaged_or_unwritable_memory_costs_no_reply(tiny_gguf, tmp_path, caplog):
    with Engine.load(tiny_gguf, memory=tmp_path) as engine:
        expected = engine.generate(PROMPT, max_tokens=6).token_ids
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"akunu memory 1\nnonsense")
    with caplog.at_level(logging.WARNING), Engine.load(tiny_gguf, memory=tmp_path) as engine:
        assert "is ignored" in caplog.text
        file.unlink()
        file.mkdir()
        for _ in range(3):
            assert engine.generate(PROMPT, max_tokens=6).token_ids == expected
    assert caplog.text.count("cannot be written") == 1
    with pytest.raises(ConfigError, match="is a file"):
        Engine.load(tiny_gguf, memory=tiny_gguf)


def test_a_folder_that_cannot_be_made_is_reported_before_the_first_reply(
    tiny_gguf, tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr(Path, "mkdir", Mock(side_effect=PermissionError(13, "Permission denied")))
    with Engine.load(tiny_gguf, memory=tmp_path / "new") as engine:
        assert caplog.text.count("cannot be written") == 1
        assert engine.generate(PROMPT, max_tokens=6).token_ids
    assert caplog.text.count("cannot be written") == 1


@pytest.mark.slow
def test_reproducible_passes_take_seven_tokens_at_most(tiny_gguf, monkeypatch):
    asked = []

    def spy(name, setup):
        asked.append(setup.num_draft_tokens)
        return make(name, setup)

    monkeypatch.setattr("akunu_py.engine.drafter_factory.make", spy)
    with Engine.load(tiny_gguf, reproducible=True) as engine:
        plain = engine.generate(PROMPT, max_tokens=20, drafter="none").token_ids
        for drafter in DRAFTERS:
            drafted = engine.generate(PROMPT, max_tokens=20, drafter=drafter, draft_budget="always")
            assert drafted.token_ids == plain
            assert len(drafted.stats.drafted_per_position) <= 7
        engine.generate(PROMPT, max_tokens=2, drafter="lookup", num_draft_tokens=3)
    own = [default_num_draft_tokens(drafter) for drafter in DRAFTERS]
    assert asked == [0, *(min(7, number) for number in own), 3]


def test_a_trace_that_cannot_be_written(engine, tmp_path):
    stream = engine.stream(PROMPT, max_tokens=4)
    list(stream)
    for path in (tmp_path, tmp_path / "no" / "folder.jsonl"):
        with pytest.raises(ConfigError, match="cannot be written"):
            engine.append_trace(path, stream)
