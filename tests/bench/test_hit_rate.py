"""The measurement: known replies must give known rates; differences must be found."""

import json
from importlib.metadata import version

import pytest
from bench.bench_fakes import FakeEngine, reply

import akunu_py
from akunu_py import Engine
from akunu_py.bench.hit_rate import first_difference, run_hit_rate
from akunu_py.bench.workloads import Prompt
from akunu_py.errors import ConfigError, ContextOverflowError

ONE = Prompt("edit/one", "edit", "raw", "one")
TWO = Prompt("config/two", "config", "raw", "two")
THREE = Prompt("edit/three", "edit", "chat", messages=({"role": "user", "content": "three"},))
FOUR = Prompt("edit/four", "edit", "raw", "four")

SCRIPT = {
    # 12 tokens in 6 s without; 3 passes, one of them without a draft, in 2 s with.
    "one": (
        reply(range(12), 6.0),
        reply(range(12), 2.0, steps=3, steps_with_draft=2, drafted=10, accepted=9, tested=10, output_tokens=12),
    ),
    # A reply without a draft.
    "two": (reply([1, 2], 1.0), reply([1, 2], 1.25, steps=2, output_tokens=2)),
    # Differs from the token of index 2 on.
    "|three|": (
        reply([7, 8, 9, 9], 2.0),
        reply([7, 8, 5, 9], 2.0, steps=4, steps_with_draft=1, drafted=6, accepted=0, tested=1, output_tokens=4),
    ),
    # No time passed.
    "four": (reply([1], 0.0), reply([1], 0.0, steps=1, output_tokens=1)),
}  # fmt: skip


def test_rates_over_all_passes_and_tokens():
    report = run_hit_rate(FakeEngine(SCRIPT, logits=(0.0, 3.0, 2.5)), [ONE, TWO, THREE])
    edit, config, total = report.categories["edit"], report.categories["config"], report.total
    assert list(report.categories) == ["edit", "config"]
    assert edit.num_prompts == 2
    assert edit.stats.fire_rate == 3 / 7
    assert edit.stats.hit_rate == 9 / 16
    assert edit.stats.alpha == 9 / 11
    assert edit.stats.tokens_per_pass == 16 / 7
    assert edit.off_tokens_per_s == 16 / 8
    assert edit.on_tokens_per_s == 16 / 4
    assert edit.speedup == 2
    assert edit.median_speedup == (3 + 1) / 2
    assert edit.num_identical == 1
    assert config.off_tokens_per_s == 2
    assert config.on_tokens_per_s == 1.6
    assert config.speedup == 0.8
    assert config.num_identical == 1
    assert total.num_prompts == 3
    assert total.stats.fire_rate == 3 / 9
    assert total.stats.hit_rate == 9 / 16
    assert total.off_tokens_per_s == 18 / 9
    assert total.on_tokens_per_s == 18 / 5.25
    assert total.num_identical == 2


def test_rates_that_do_not_exist_are_none():
    summary = run_hit_rate(FakeEngine(SCRIPT), [TWO]).total
    assert summary.stats.hit_rate is None
    assert summary.stats.alpha is None
    assert summary.stats.fire_rate == 0
    assert summary.stats.tokens_per_pass == 1
    summary = run_hit_rate(FakeEngine(SCRIPT), [FOUR]).total
    assert summary.off_tokens_per_s is None
    assert summary.on_tokens_per_s is None
    assert summary.speedup is None
    assert summary.median_speedup is None


def test_a_difference_is_reported_with_its_place_and_margin():
    engine = FakeEngine(SCRIPT, logits=(0.0, 3.0, 2.5))
    report = run_hit_rate(engine, [ONE, THREE])
    (outcome,) = report.differences
    assert outcome.id == "edit/three"
    assert outcome.first_difference == 2
    assert outcome.top2_margin == 0.5
    # The logits after the prompt and what both replies say.
    assert engine.scored == [[*map(ord, "|three|"), 7, 8]]


def test_a_difference_in_the_very_first_token_is_one_too():
    script = {"one": (reply([1, 2], 1.0), reply([3, 2], 1.0, steps=2, output_tokens=2))}
    report = run_hit_rate(FakeEngine(script, logits=(0.0, 1.0)), [ONE])
    assert [outcome.first_difference for outcome in report.differences] == [0]
    assert report.total.num_identical == 0


def test_no_margin_where_noise_decides():
    engine = FakeEngine(SCRIPT)
    (outcome,) = run_hit_rate(engine, [THREE], temperature=0.5).differences
    assert outcome.top2_margin is None
    assert engine.scored == []


@pytest.mark.parametrize(
    ("left", "right", "index"),
    [
        ((), (), None),
        ((1, 2), (1, 2), None),
        ((1, 2), (3, 2), 0),
        ((1, 2, 3), (1, 2, 4), 2),
        ((1, 2), (1, 2, 3), 2),
        ((1, 2), (), 0),
    ],
)
def test_first_difference(left, right, index):
    assert first_difference(left, right) == index
    assert first_difference(right, left) == index


def test_each_reply_starts_from_nothing_and_the_order_alternates():
    engine = FakeEngine(SCRIPT)
    progress = []
    run_hit_rate(engine, [ONE, TWO, FOUR], progress=lambda *counts: progress.append(counts))
    assert engine.calls[::3] == ["forget"] * 8
    assert engine.calls[1::3] == ["reset"] * 8
    asked = engine.calls[2::3]
    assert asked[:2] == [("one", "ngram"), ("one", "none")]  # the warm-up
    assert asked[2:] == [
        ("one", "none"), ("one", "ngram"),
        ("two", "ngram"), ("two", "none"),
        ("four", "none"), ("four", "ngram"),
    ]  # fmt: skip
    assert progress == [(done, 6) for done in range(7)]


def test_the_drafter_none_is_compared_with_itself():
    report = run_hit_rate(FakeEngine(SCRIPT), [ONE, TWO], drafter="none")
    assert report.total.off_tokens == report.total.on_tokens == 14
    assert report.total.num_identical == 2


def test_options_reach_the_engine_and_the_report():
    engine = FakeEngine(SCRIPT)
    report = run_hit_rate(
        engine, [ONE], drafter="ngram-window", num_draft_tokens=7, max_tokens=9, temperature=0.3,
        seed=11,
    )  # fmt: skip
    assert engine.config == report.config  # the last reply is one with drafting
    assert report.to_dict()["config"] == {
        "drafter": "ngram-window", "num_draft_tokens": 7, "draft_budget": "always",
        "max_tokens": 9, "temperature": 0.3, "seed": 11,
    }  # fmt: skip


def test_the_report_as_json():
    engine = FakeEngine(SCRIPT, logits=(1.0, 2.0))
    record = json.loads(json.dumps(run_hit_rate(engine, [ONE, TWO, THREE]).to_dict()))
    assert record["model"]["path"] == "model.gguf"
    assert record["model"]["context"] == 10_000
    assert record["environment"]["akunu"] == akunu_py.__version__
    assert record["environment"]["mlx"] == version("mlx")
    assert record["environment"]["mlx_lm"] == version("mlx-lm")
    assert {"python", "platform", "machine", "device"} <= set(record["environment"])
    assert record["total"]["num_identical"] == 2
    assert record["categories"]["edit"]["hit_rate"] == 9 / 16
    assert record["categories"]["config"]["hit_rate"] is None
    assert [(p["id"], p["first_difference"]) for p in record["prompts"]] == [
        ("edit/one", None), ("config/two", None), ("edit/three", 2),
    ]  # fmt: skip
    assert record["prompts"][0]["off"]["tokens"] == 12
    assert record["prompts"][0]["on"]["decode_s"] == 2.0


def test_without_a_template_the_user_text_is_continued():
    engine = FakeEngine({"three": SCRIPT["one"]}, has_chat_template=False)
    assert run_hit_rate(engine, [THREE]).total.num_identical == 1


def test_what_cannot_be_measured_is_refused_before_it_starts():
    engine = FakeEngine(SCRIPT, context=5)
    with pytest.raises(ContextOverflowError, match="prompt edit/three has 7 tokens"):
        run_hit_rate(engine, [ONE, THREE])
    with pytest.raises(ConfigError, match="no drafter 'magic'"):
        run_hit_rate(engine, [ONE], drafter="magic")
    with pytest.raises(ConfigError, match="max_tokens is 0"):
        run_hit_rate(engine, [ONE], max_tokens=0)
    with pytest.raises(ConfigError, match="no prompts"):
        run_hit_rate(engine, [])
    assert engine.calls == []


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_real_engine_says_the_same_with_drafting(tiny_gguf, temperature):
    prompts = [
        Prompt("edit/a", "edit", "chat", messages=({"role": "user", "content": "the draft " * 5},)),
        Prompt("config/b", "config", "raw", "hello world token model " * 4),
    ]
    with Engine.load(tiny_gguf) as engine:
        report = run_hit_rate(engine, prompts, max_tokens=40, temperature=temperature)
    assert report.differences == ()
    assert report.total.on_tokens == report.total.off_tokens > 0
    assert report.total.stats.drafted > 0
    assert all(outcome.on.num_cached_tokens == 0 for outcome in report.outcomes)
    assert report.model.path == str(tiny_gguf)
