"""Figures of cells, replayed and on outcomes made up by hand."""

import pytest
from sweep_values import (
    AUTO,
    CURVE,
    FLAT,
    NGRAM,
    items_of,
    made_up,
    outcome,
)

from akunu_py.bench.replay.jobs import Job, run_job
from akunu_py.bench.replay.results import Results
from akunu_py.bench.replay.runner import ItemCounts
from akunu_py.bench.result_file import Costs
from akunu_py.bench.rows import encode, parse, typed
from akunu_py.lab.sweep.figures import Figures, compare, cost_by_clock, cost_by_curve
from akunu_py.lab.sweep.grid import PLAIN, Cell, default_cell
from akunu_py.lab.sweep.recorded import curve_of
from akunu_py.lab.sweep.replayed import ReplayData, replay_cell, replay_cells
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import DecodeStats


@pytest.mark.parametrize("memory", ["trace", "session"])
@pytest.mark.parametrize("name", ["ngram", "ngram-window", "lookup", "auto", "sam", "suffix-24"])
def test_a_cells_figures_are_those_of_bench_replay(name, memory):
    traces = {"one": items_of(6), "two": items_of(4, per_session=1)}
    curves = {"c": CURVE}
    curve = "c" if name == "auto" else None
    jobs = [Job(trace, name, curve, (), memory) for trace in traces]
    results = Results(
        traces, curves, [run_job(job, traces[job.trace], curves) for job in jobs], tune=False
    )
    expected = results.figures(name, "c")
    cell = default_cell(name, {})
    data = ReplayData(traces, CURVE, memory, 50)
    outcomes, plain = replay_cell(cell, data), replay_cell(PLAIN, data)
    found = Figures(traces, lambda _item: True).of(outcomes, plain, cost_by_curve(CURVE))
    assert found.items == expected.items == 16
    assert found.stats.tokens_per_pass == expected.tokens_per_pass.ratio > 1
    assert found.stats.hit_rate == expected.hit_rate
    assert found.stats.fire_rate == expected.fire_rate
    assert found.stats.alpha == expected.alpha
    assert cell.num_draft_tokens == expected.limit
    for name in ("ratio", "low", "high"):
        assert getattr(found.speed, name) == pytest.approx(getattr(expected.speed, name), rel=1e-12)
    assert found.speed.low < found.speed.ratio < found.speed.high


def test_settings_change_what_is_replayed():
    data = ReplayData({"t": items_of(6)}, CURVE, "session", 50)

    def stats(cell):
        (outcomes,) = replay_cell(cell, data).values()
        return sum((outcome.stats for outcome in outcomes), DecodeStats())

    default = stats(NGRAM)
    assert len(default.drafted_per_position) == 4
    assert len(stats(Cell("ngram", 7, 4, None, 1)).drafted_per_position) == 7
    # Fewer contexts decide: less is drafted, and more of it is right.
    careful = stats(Cell("ngram", 4, 4, None, 3))
    assert careful.drafted < default.drafted
    assert careful.hit_rate > default.hit_rate
    assert stats(Cell("ngram", 4, 2, None, 1)) != default
    assert stats(Cell("ngram-window", 4, 4, 8, 1)).fire_rate < default.fire_rate
    assert len(stats(Cell("counts", 2, draft_length="fixed")).drafted_per_position) == 2
    entropy = stats(Cell("counts", 4, draft_length="entropy"))
    assert 0 < entropy.drafted < stats(Cell("counts", 4, draft_length="fixed")).drafted
    assert stats(PLAIN).tokens_per_pass == 1


@pytest.mark.slow
def test_processes_change_nothing():
    data = ReplayData({"t": items_of(3)}, CURVE, "session", 50)
    cells = (PLAIN, NGRAM, AUTO)
    alone, together = dict(replay_cells(cells, data)), dict(replay_cells(cells, data, processes=2))
    assert set(alone) == set(together) == set(cells)
    for cell in cells:
        for one, other in zip(alone[cell]["t"], together[cell]["t"], strict=True):
            assert one.cost(CURVE) == other.cost(CURVE)
            assert one.stats.accepted_per_position == other.stats.accepted_per_position


def test_an_outcome_survives_json():
    found = outcome(20, 12, 0.5, identical=True)
    assert typed(parse(encode(found), "it"), ItemCounts, "it") == found
    assert found.stats.drafted_per_position == (8,)


def test_speeds_by_hand():
    curve = CostCurve({1: 1.0, 2: 1.5})
    items = items_of(2, per_session=1)
    traces = {"a": items[:1], "b": items[1:]}
    outcomes = {"a": [outcome(20, 12)], "b": [outcome(20, 16)]}
    plain = {"a": [outcome(20, 20)], "b": [outcome(20, 20)]}
    figures = Figures(traces, lambda _item: True).of(outcomes, plain, cost_by_curve(curve))
    # 8 of 12 passes over two rows: 4 + 8 * 1.5 = 16; 4 of 16: 12 + 6 = 18. The geometric mean.
    assert figures.speed.ratio == pytest.approx((20 / 16 * 20 / 18) ** 0.5, rel=1e-12)
    assert figures.stats.tokens_per_pass == 40 / 28
    assert figures.us_a_pass == pytest.approx(1e6 * 0.002 / 28)
    assert figures.decode_s is None


def test_speeds_by_the_clock():
    traces = {"a": items_of(2, per_session=1)}
    outcomes = {"a": [outcome(20, 12, 1.0, identical=True), outcome(10, 6, 1.0, identical=False)]}
    plain = {"a": [outcome(20, 20, 2.0), outcome(10, 10, 1.0)]}
    figures = Figures(traces, lambda _item: True).of(outcomes, plain, cost_by_clock)
    # Half the time for 20 tokens, as much for 10: 30 tokens in the time of 10 + 10 plain ones.
    assert figures.speed.ratio == pytest.approx(30 / 20, rel=1e-12)
    assert (figures.decode_s, figures.identical) == (2.0, 1)


def test_sessions_are_resampled_whole():
    # Two items of each session are one sample: the interval is as wide as that of one of them.
    traces, outcomes = made_up({AUTO: (40, 40), PLAIN: (57, 57)})
    twice = {"t": [item for item in traces["t"] for _ in range(2)]}
    doubled = {c: {"t": [o for o in found["t"] for _ in range(2)]} for c, found in outcomes.items()}
    narrow = Figures(traces, lambda _item: True).of(outcomes[AUTO], outcomes[PLAIN], FLAT)
    same = Figures(twice, lambda _item: True).of(doubled[AUTO], doubled[PLAIN], FLAT)
    assert same.speed.low == pytest.approx(narrow.speed.low, rel=1e-12)
    assert same.speed.high == pytest.approx(narrow.speed.high, rel=1e-12)
    assert (compare(same, same).low, compare(same, same).high) == (1.0, 1.0)
    assert not compare(same, same).is_better


def test_measured_costs_become_a_curve_that_starts_at_plain_decoding():
    curve = curve_of(Costs(0.01, {1: 1.09, 2: 0.95, 3: 1.4, 4: 1.3, 8: 2.0}))
    assert curve.points == {1: 1.0, 2: 1.0, 3: 1.4, 4: 1.4, 8: 2.0}
