"""What fails in a hit-rate run is named, and what an interrupt left is gone on with."""

import json

import pytest
from bench.bench_fakes import FakeEngine
from bench.hit_rate_script import FOUR, ONE, SCRIPT, THREE, TURNS, TWO

from akunu_py import Engine
from akunu_py.bench.hit_rate import run_hit_rate
from akunu_py.bench.hit_rate_findings import hit_rate_findings
from akunu_py.bench.resume import ItemStore
from akunu_py.bench.workloads import Prompt
from akunu_py.system.errors import ConfigError, ModelFormatError


def test_a_prompt_that_cannot_be_answered_is_named_and_the_others_go_on():
    engine = FakeEngine(SCRIPT, context=5)
    report = run_hit_rate(engine, [THREE, ONE, TWO])
    assert [item.id for item in report.outcomes] == ["edit/one", "config/two"]
    (failure,) = report.failures
    assert failure.item == "edit/three"
    assert "has 7 tokens and the context holds 5" in failure.error
    assert report.finished


def test_a_reply_that_fails_and_a_text_no_tokenizer_takes():
    engine = FakeEngine(SCRIPT)
    engine.failing = {"two": ModelFormatError("broken template")}
    encode = engine.tokenizer.encode

    def picky(text, *, parse_special=False):
        if text == "four":
            raise UnicodeEncodeError("utf-8", text, 0, 1, "surrogates not allowed")
        return [] if text == "nothing" else encode(text)

    engine.tokenizer.encode = picky
    empty = Prompt("edit/nothing", "edit", "raw", "nothing")
    report = run_hit_rate(engine, [FOUR, empty, ONE, TWO])
    assert [item.id for item in report.outcomes] == ["edit/one"]
    assert {failure.item for failure in report.failures} == {
        "edit/four",
        "edit/nothing",
        "config/two",
    }
    assert any(failure.error == "broken template" for failure in report.failures)


def interrupted_at(engine, text):
    def stop(*_arguments, **_keywords):
        raise KeyboardInterrupt

    generate = engine.generate

    def wrapped(prompt, config=None):
        asked = "".join(map(chr, prompt))
        return stop() if asked == text else generate(prompt, config)

    engine.generate = wrapped


def test_after_an_interrupt_there_is_what_was_finished():
    engine = FakeEngine(SCRIPT)
    interrupted_at(engine, "two")
    report = run_hit_rate(engine, [ONE, TWO, FOUR])
    assert not report.finished
    assert [item.id for item in report.outcomes] == ["edit/one"]
    result = hit_rate_findings(report)
    assert not result.finished
    assert result.deterministic["total"]["prompts"] == 1


def test_an_interrupted_run_goes_on_where_it_was(tmp_path):
    engine = FakeEngine(SCRIPT)
    interrupted_at(engine, "two")
    with ItemStore(tmp_path, {}) as store:
        run_hit_rate(engine, [ONE, TWO, *TURNS], store=store)
    again = FakeEngine(SCRIPT)
    with ItemStore(tmp_path, {}) as store:
        report = run_hit_rate(again, [ONE, TWO, *TURNS], store=store)
    assert report.finished
    # "one" is the text of the turns, too: the prompt itself was not asked again.
    counted = [call for call in again.calls[6:] if call != "reset"]
    assert counted[:3] == ["forget", ("two", "none"), ("two", "ngram")]
    whole = hit_rate_findings(run_hit_rate(FakeEngine(SCRIPT), [ONE, TWO, *TURNS]))
    assert hit_rate_findings(report).deterministic == whole.deterministic
    assert [item["id"] for item in whole.items] == [item.id for item in report.outcomes]


def test_a_session_that_was_cut_off_is_answered_again_from_its_first_turn(tmp_path):
    engine = FakeEngine(SCRIPT)
    with ItemStore(tmp_path, {}) as store:
        run_hit_rate(engine, TURNS[:1], store=store)
    again = FakeEngine(SCRIPT)
    with ItemStore(tmp_path, {}) as store:
        run_hit_rate(again, TURNS, store=store)
    counted = [call for call in again.calls[6:] if isinstance(call, tuple)]
    assert len(counted) == 4


def test_a_stored_item_that_is_malformed_is_named(tmp_path):
    with ItemStore(tmp_path, {}) as store:
        store.put("edit/one", {"id": "edit/one"})
        with pytest.raises(
            ConfigError, match="the finished edit/one: Object missing required field"
        ):
            run_hit_rate(FakeEngine(SCRIPT), [ONE], store=store)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_real_engine_says_the_same_with_drafting_and_in_every_run(tiny_gguf, temperature):
    prompts = [
        Prompt("edit/a", "edit", "chat", messages=({"role": "user", "content": "the draft " * 5},)),
        Prompt("config/b", "config", "raw", "hello world token model " * 4),
    ]
    results = []
    for _ in range(2):
        with Engine.load(tiny_gguf) as engine:
            report = run_hit_rate(engine, prompts, max_tokens=24, temperature=temperature)
        results.append(hit_rate_findings(report))
        assert report.differences == ()
        assert report.total.on_tokens == report.total.off_tokens > 0
        assert report.total.stats.drafted > 0
        for outcome in report.outcomes:
            assert sum(step.tokens for step in outcome.on.passes) == len(outcome.on.token_ids)
            assert 0 < outcome.on.prefill_s <= outcome.on.first_token_s <= outcome.on.whole_s
    assert json.dumps(results[0].deterministic) == json.dumps(results[1].deterministic)


def test_a_run_that_goes_on_has_the_figures_of_one_that_was_never_interrupted(tiny_gguf, tmp_path):
    prompts = [
        Prompt(f"edit/{n}", "edit", "raw", f"hello world {n} token model " * 4, session=session, turn=turn)
        for n, (session, turn) in enumerate([("", 0), ("talk", 0), ("talk", 1)])
    ]  # fmt: skip
    options = {"max_tokens": 24, "drafter": "auto"}
    with Engine.load(tiny_gguf) as engine:
        whole = hit_rate_findings(run_hit_rate(engine, prompts, **options))
        with ItemStore(tmp_path, {}) as store:
            run_hit_rate(engine, prompts[:2], store=store, **options)
    with Engine.load(tiny_gguf) as engine, ItemStore(tmp_path, {}) as store:
        continued = hit_rate_findings(run_hit_rate(engine, prompts, store=store, **options))
    assert continued.deterministic == whole.deterministic
    assert whole.deterministic["total"]["drafted"] > 0
