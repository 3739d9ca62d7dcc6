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


def test_a_prompt_that_cannot_be_answered_is_named_and_the_others_go_on():
    engine = FakeEngine(SCRIPT, context=5)
    report = run_hit_rate(engine, [THREE, ONE, TWO])
    assert [run.item.id for run in report.runs] == ["edit/one", "config/two"]
    (failure,) = report.failures
    assert failure.item == "edit/three"
    assert "has 7 tokens and the context holds 5" in failure.error
    assert report.finished


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
    assert [run.item.id for run in report.runs] == ["edit/one"]
    result = hit_rate_findings(report)
    assert not result.finished
    assert result.deterministic["total"]["prompts"] == 1


def test_an_interrupted_run_goes_on_where_it_was(tmp_path):
    engine = FakeEngine(SCRIPT)
    interrupted_at(engine, "two")
    with ItemStore(tmp_path, {}) as store:
        run_hit_rate(engine, [ONE, TWO, *TURNS], store=store)
    with ItemStore(tmp_path, {}) as store:
        report = run_hit_rate(FakeEngine(SCRIPT), [ONE, TWO, *TURNS], store=store)
    assert report.finished
    whole = hit_rate_findings(run_hit_rate(FakeEngine(SCRIPT), [ONE, TWO, *TURNS]))
    assert hit_rate_findings(report).deterministic == whole.deterministic
    assert [item["id"] for item in whole.items] == [run.item.id for run in report.runs]


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
        assert report.differences == {}
        assert report.total.on.tokens == report.total.off.tokens > 0
        assert report.total.on.stats.drafted > 0
        for reply in report.total.on.replies:
            assert sum(step.tokens for step in reply.passes) == len(reply.token_ids)
            assert reply.num_first == reply.passes[0].tokens
            assert 0 < reply.prefill_s <= reply.first_s <= reply.whole_s
            assert 0 < reply.target_s < reply.decode_s
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
