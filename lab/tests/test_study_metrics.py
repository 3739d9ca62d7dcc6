"""Every figure of a study, worked out by hand for a few steps that the core's tests write down."""

import numpy as np
import pytest
from bench.bench_fakes import FakeEngine, steps_of
from bench.hit_rate_script import ONE as ASKED
from bench.hit_rate_script import SCRIPT, THREE, five_of
from bench.hit_rate_script import TWO as SECOND
from bench.result_values import result
from bench.test_metrics import BOTH, ONE, TWO, stats_of

from akunu_lab import metrics
from akunu_lab.pages.hit_rate import studied
from akunu_py.bench.hit_rate import run_hit_rate
from akunu_py.bench.hit_rate_findings import hit_rate_findings
from akunu_py.bench.reply import MeasuredReply, Pass
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import DecodeStats


def passes_of(steps):
    return [Pass(drafted, accepted, output) for drafted, _, accepted, output in steps]


def reply_of(passes):
    return MeasuredReply((1,), 1, 0.0, 0.0, passes=tuple(passes))


def test_tokens_per_pass_macro():
    # 7 / 3 and 3 / 2.
    assert metrics.tokens_per_pass_macro([stats_of(ONE), stats_of(TWO)]) == pytest.approx(23 / 12)
    assert metrics.tokens_per_pass_macro([DecodeStats()]) is None


def test_accepted_per_position():
    # Of 4 passes with a draft 3 accepted the first token and 3 the second.
    assert metrics.accepted_per_position(BOTH) == (3 / 4, 3 / 4, 0, 0)
    assert metrics.conditional_acceptance(BOTH) == (3 / 4, 1, 0, None)
    falling = stats_of([(3, 3, 3, 4), (3, 3, 2, 3), (3, 1, 0, 1), (1, 1, 1, 2)])
    assert metrics.accepted_per_position(falling) == (3 / 4, 2 / 4, 1 / 4)
    assert metrics.conditional_acceptance(falling) == (3 / 4, 2 / 3, 1 / 2)
    assert np.prod(metrics.conditional_acceptance(falling)) == pytest.approx(1 / 4)
    assert metrics.accepted_per_position(DecodeStats()) == ()


def test_accepted_per_pass():
    # 0 once, 2 three times; the pass without a draft does not count.
    assert metrics.accepted_per_pass([reply_of(passes_of(ONE)), reply_of(passes_of(TWO))]) == (
        1,
        0,
        3,
    )
    assert metrics.accepted_per_pass([reply_of([Pass(0, 0, 1)])]) == ()


def test_the_two_mean_acceptance_lengths_differ_by_passes_without_a_draft():
    assert metrics.mean_acceptance_vllm(BOTH) == 1 + 6 / 4
    assert metrics.mean_acceptance_spec_bench(BOTH) == 1 + 6 / 5
    excess = metrics.mean_acceptance_vllm(BOTH) - 1
    assert metrics.mean_acceptance_spec_bench(BOTH) - 1 == pytest.approx(excess * BOTH.fire_rate)
    plain = stats_of([(0, 0, 0, 1)] * 3)
    assert metrics.mean_acceptance_vllm(plain) is None
    assert metrics.mean_acceptance_spec_bench(plain) == 1
    assert metrics.mean_acceptance_spec_bench(DecodeStats()) is None


def test_coverage():
    assert metrics.coverage(BOTH) == 6 / 10
    assert metrics.coverage(DecodeStats()) is None


def test_normalised_speed():
    curve = CostCurve({1: 1.0, 3: 1.5, 5: 2.0})
    # 5, 1, 3, 4 and 5 rows: 2 + 1 + 1.5 + 1.75 + 2.
    passes = [*passes_of(ONE), *passes_of(TWO)]
    found = metrics.normalised_speed([(name, reply_of(passes)) for name in "abcde"], curve.cost)
    assert (found.ratio, found.low, found.high) == (pytest.approx(10 / 8.25),) * 3
    plain = metrics.normalised_speed(
        [(name, reply_of([Pass(0, 0, 1)] * 4)) for name in "abcde"], curve.cost
    )
    assert plain.ratio == 1
    apart = [(name, reply_of(passes_of(ONE if name < "c" else TWO))) for name in "abcde"]
    found = metrics.normalised_speed(apart, curve.cost)
    # Two replies of 7 tokens for 4.5 and three of 3 for 3.75.
    assert found.ratio == pytest.approx(23 / 20.25)
    assert 3 / 3.75 <= found.low < found.ratio < found.high <= 7 / 4.5
    assert metrics.normalised_speed(apart[:4], curve.cost).ratio is None


def result_of(report):
    found = hit_rate_findings(report)
    return result(
        command="hit-rate", deterministic=found.deterministic, timing=found.timing,
        tables=found.tables, items=found.items, costs=found.costs,
    )  # fmt: skip


def test_the_normalised_speed_by_hand():
    engine = FakeEngine(SCRIPT)
    engine.steps = steps_of((4, 3, 4), (0, 0, 1), (2, 2, 3))
    page = studied(result_of(run_hit_rate(engine, five_of(ASKED), with_costs=True)))
    table, _ = page.tables[-2:]
    row = dict(zip([column.name for column in table.columns], table.rows[-1], strict=True))
    # C(1) is a plain step, C(5) is 2, C(3) between them.
    assert row["normalised_speed"] == pytest.approx(8 / (2 + 1 + 1.5))


@pytest.mark.parametrize(("budget", "place"), [("always", "deterministic"), ("auto", "timing")])
def test_figures_of_drafts_stand_where_the_result_has_its_own(budget, place):
    engine = FakeEngine(SCRIPT, logits=(1.0, 2.0))
    engine.steps = steps_of((4, 3, 4), (0, 0, 1), (5, 3, 3))
    before = result_of(run_hit_rate(engine, [ASKED, SECOND, THREE], draft_budget=budget))
    after = studied(before)
    counted = after.deterministic if place == "deterministic" else after.timing["drafting"]
    assert counted["total"]["accepted_per_pass"] == [0, 0, 0, 6]
    assert counted["total"]["hit_rate"] is not None
    assert set(counted["categories"]) == {"edit", "config"}
    assert [table.name for table in after.tables[-2:]] == ["study", "positions"]
    assert studied(result(command="speed")) == result(command="speed")
