"""The measurement: known replies must give known rates; differences and failures are named."""

import json

import pytest
from bench.bench_fakes import CLOCK, FakeEngine, reply, steps_of
from bench.hit_rate_script import FOUR, ONE, SCRIPT, THREE, TURNS, TWO, five_of

from akunu_py import Engine
from akunu_py.bench.figures import Difference
from akunu_py.bench.hit_rate import run_hit_rate
from akunu_py.bench.hit_rate_findings import hit_rate_findings
from akunu_py.bench.result_file import Costs
from akunu_py.bench.workloads import Prompt
from akunu_py.system.errors import ConfigError


def test_speedups_are_over_all_tokens_and_have_an_interval(monkeypatch):
    CLOCK.replace(monkeypatch)
    engine = FakeEngine(SCRIPT, logits=(0.0, 1.0))
    engine.making_s = 0.5
    report = run_hit_rate(engine, five_of(ONE, TWO, THREE))
    edit, config = report.categories["edit"], report.categories["config"]
    assert edit.decode.ratio == pytest.approx(2)
    assert 1 < edit.decode.low < 2 < edit.decode.high < 3
    # With 0.1 s of prefill in each of the replies, and 0.5 s in which each drafter is made.
    assert edit.end_to_end.ratio == pytest.approx(8.2 / 5.2)
    assert edit.off.first_s == pytest.approx(0.1)
    assert edit.on.first_s == pytest.approx(0.6)
    assert config.decode.ratio == pytest.approx(0.8)
    assert report.total.decode.pairs == 15


def test_too_few_items_have_no_speedup():
    """As observed: a number from one item. Turns of one session are one item in that."""
    prompts = [*five_of(ONE), TWO, *TURNS]
    report = run_hit_rate(FakeEngine(SCRIPT), prompts, with_costs=True)
    assert report.categories["edit"].decode.ratio == pytest.approx(3)
    for name, pairs in (("config", 1), ("session", 2)):
        summary = report.categories[name]
        for found in (summary.decode, summary.end_to_end):
            assert (found.ratio, found.low, found.high, found.pairs) == (None, None, None, pairs)
    result = hit_rate_findings(report)
    assert result.timing["ratios"]["decode/config"] == {
        "ratio": None, "low": None, "high": None, "pairs": 1,
    }  # fmt: skip
    table = result.tables[0]
    rows = {row[0]: row for row in table.rows}
    place = [column.name for column in table.columns].index("speedup")
    assert rows["edit"][place + 1] == "3.00-3.00"
    assert rows["config"][place : place + 4] == (None, "not enough items", None, None)


def test_a_difference_is_reported_with_its_place_and_margin():
    engine = FakeEngine(SCRIPT, logits=(0.0, 3.0, 2.5))
    report = run_hit_rate(engine, [ONE, THREE])
    assert report.differences == {"edit/three": Difference(2, 0.5)}
    # The logits after the prompt and what both replies say.
    assert engine.scored == [[*map(ord, "|three|"), 7, 8]]


def test_a_difference_in_the_very_first_token_is_one_too():
    script = {"one": (reply([1, 2], 1.0), reply([3, 2], 1.0, steps=2, output_tokens=2))}
    report = run_hit_rate(FakeEngine(script, logits=(0.0, 1.0)), [ONE])
    assert [found.index for found in report.differences.values()] == [0]
    assert report.total.num_identical == 0


def test_each_prompt_starts_from_nothing():
    engine = FakeEngine(SCRIPT)
    run_hit_rate(engine, [ONE, TWO])
    asked = [call for call in engine.calls if isinstance(call, tuple)]
    assert asked == [
        ("one", "none"), ("one", "ngram"),  # the warm-up
        ("one", "none"), ("one", "ngram"),
        ("two", "ngram"), ("two", "none"),
    ]  # fmt: skip
    # An empty cache before each reply, an empty memory before each prompt.
    assert engine.calls.count("reset") == 6
    for place, call in enumerate(engine.calls):
        if call in asked[2::2]:
            assert engine.calls[place - 2] == "forget"


def test_costs_are_measured_first():
    engine = FakeEngine(SCRIPT)
    report = run_hit_rate(engine, [ONE], with_costs=True)
    # After the prompt, before anything is answered.
    assert engine.calls[0] == ("tune", 3)
    assert hit_rate_findings(report).costs == Costs(0.5, {1: 1.0, 5: 2.0})


def test_no_costs_where_the_context_is_too_small_to_measure_them():
    report = run_hit_rate(FakeEngine(SCRIPT, context=60), [ONE], with_costs=True)
    assert report.times is None
    assert hit_rate_findings(report).costs is None


def test_the_result():
    engine = FakeEngine(SCRIPT, logits=(1.0, 2.0))
    engine.steps = steps_of((4, 3, 4), (0, 0, 1), (5, 3, 3))
    result = hit_rate_findings(run_hit_rate(engine, [ONE, TWO, THREE]))
    fixed = result.deterministic
    assert fixed["total"]["identical"] == 2
    assert fixed["categories"]["edit"]["hit_rate"] == 9 / 16
    assert fixed["categories"]["config"]["hit_rate"] is None
    assert fixed["first_differences"] == {"edit/three": 2}
    assert result.timing["ratios"]["decode"]["pairs"] == 3
    assert result.timing["total"]["off_decode_s"] == pytest.approx(9)
    assert [item["id"] for item in result.items] == ["edit/one", "config/two", "edit/three"]
    assert result.items[0]["on"]["passes"] == [[4, 3, 4], [0, 0, 1], [5, 3, 3]]
    table, _ = result.tables
    rows = {
        row[0]: dict(zip([c.name for c in table.columns], row, strict=True)) for row in table.rows
    }
    assert list(rows) == ["edit", "config", "all"]
    assert rows["all"]["identical"] == "2/3"
    assert result.finished


def test_counts_that_depend_on_times_are_not_deterministic():
    result = hit_rate_findings(run_hit_rate(FakeEngine(SCRIPT), [ONE], draft_budget="auto"))
    assert "hit_rate" not in result.deterministic["total"]
    # Rows of several sizes may be rounded differently, so that not even the tokens are the same.
    assert not {"identical", "tokens"} & set(result.deterministic["total"])
    assert set(result.deterministic) == {"total", "categories"}
    assert result.deterministic["categories"]["edit"]["off_tokens"] == 12
    assert result.timing["drafting"]["total"]["identical"] == 1
    assert result.timing["drafting"]["first_differences"] == {}
    assert result.timing["drafting"]["total"]["hit_rate"] == 9 / 10


@pytest.mark.parametrize(
    ("options", "identical", "shown"),
    [
        ({"lenience": 0.5}, None, "not exact"),
        ({"temperature": 0.5, "draft_sampling": "rejection"}, None, None),
        ({"temperature": 0.5, "draft_sampling": "rejection", "lenience": 0.5}, None, "not exact"),
        ({"draft_sampling": "rejection"}, 1, "1/2"),  # the likeliest token either way
        ({"temperature": 0.5}, 1, "1/2"),
    ],
)
def test_replies_are_held_to_be_the_same_where_they_have_to_be(options, identical, shown):
    engine = FakeEngine(SCRIPT, logits=(1.0, 2.0))
    report = run_hit_rate(engine, [ONE, THREE], **options)
    result = hit_rate_findings(report)
    assert result.deterministic["total"]["identical"] == identical
    table = result.tables[0]
    assert table.rows[-1][[c.name for c in table.columns].index("identical")] == shown
    expected = {} if identical is None else {"edit/three": 2}
    assert result.deterministic["first_differences"] == expected
    assert bool(engine.scored) == (identical is not None and report.config.temperature == 0)


def test_wrong_options_are_refused_before_anything_is_generated():
    engine = FakeEngine(SCRIPT)
    with pytest.raises(ConfigError, match="no drafter named 'magic'"):
        run_hit_rate(engine, [ONE], drafter="magic")
    with pytest.raises(ConfigError, match="max_tokens is 0"):
        run_hit_rate(engine, [ONE], max_tokens=0)
    for field in ("drafter", "seed"):
        with pytest.raises(ConfigError, match="needs a drafter and a seed"):
            run_hit_rate(engine, [ONE], **{field: None})
    with pytest.raises(ConfigError, match="there is no option named drafters"):
        run_hit_rate(engine, [ONE], drafters="ngram")
    with pytest.raises(ConfigError, match="no prompts"):
        run_hit_rate(engine, [])
    assert engine.calls == []


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
        for one in report.total.on.replies:
            assert sum(step.tokens for step in one.passes) == len(one.token_ids)
            assert one.num_first == one.passes[0].tokens
            assert 0 < one.prefill_s <= one.first_s <= one.whole_s
            assert 0 < one.target_s < one.decode_s
    assert json.dumps(results[0].deterministic) == json.dumps(results[1].deterministic)
