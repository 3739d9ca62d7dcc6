"""What fails in a hit-rate run is named, and an interrupt leaves what was finished."""

import json

import pytest
from bench.bench_fakes import FakeEngine
from bench.hit_rate_script import FOUR, ONE, SCRIPT, TWO

from akunu_py import Engine
from akunu_py.bench.hit_rate import run_hit_rate
from akunu_py.bench.hit_rate_findings import hit_rate_findings
from akunu_py.bench.workloads import Prompt


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
