"""The tables and figures of a sweep, and what in them is not exact."""

import pytest
from msgspec.structs import replace
from sweep_values import (
    CURVE,
    NGRAM,
    items_of,
    outcome,
)

from akunu_lab.replay.trace_replays import ReplayInputs, TraceReplay, run_replay
from akunu_lab.sweep.heat_map import heat_map_of
from akunu_lab.sweep.plan import make_plan
from akunu_lab.sweep.recorded import curve_of
from akunu_lab.sweep.report import (
    deterministic_figures,
    make_report,
    make_tables,
    timing_figures,
)
from akunu_lab.sweep.run import Sweep, SweepOptions
from akunu_py.bench.result_file import Costs


def sweep_of(*, measured=False, done=None):
    plan = make_plan(["ngram", "auto"], {"num_draft_tokens": (2, 6), "order": (3, 5)}, live=False)
    traces = {"t": items_of(8)}
    inputs = ReplayInputs(traces, {"": CURVE}, "session", 50)
    counts = {
        cell: {"t": run_replay(TraceReplay((cell,), "t"), inputs)[0]}
        for cell in plan.grid.cells[:done]
    }
    costs = Costs(0.01, CURVE.points) if measured else None
    return Sweep(SweepOptions(plan=plan), traces, counts, CURVE, costs)


def test_a_report_has_the_default_and_plain_decoding_in_its_tables():
    report = make_report(sweep_of())
    tables = {table.name: table for table in make_tables(report)}
    assert set(tables) == {"fastest", "recommendation", "cells", "heat_map"}
    assert [column.name for column in tables["heat_map"].columns] == ["x", "y", "value"]
    # 2, 4 and 6 tokens of ngram, as it ships 4, and 2, 6 and 32 of auto, the default.
    assert len(tables["heat_map"].rows) == 4 + 1 + 3
    best = max(row[2] for row in tables["heat_map"].rows)
    assert best == max(f.speed.ratio for f in report.figures.values())
    assert "auto" in report.heat_map.rows
    assert len(tables["cells"].rows) == len(report.sweep.options.plan.grid.cells) == 9
    roles = [row[0] for row in tables["recommendation"].rows]
    assert any(role.endswith("the default") for role in roles)
    assert "plain decoding" in roles
    place = [column.name for column in tables["cells"].columns].index("speed")
    speeds = [row[place] for row in tables["cells"].rows]
    assert speeds == sorted(speeds, reverse=True)
    assert report.words == report.recommendation.words == tables["recommendation"].note


@pytest.mark.slow
def test_what_depends_on_measured_costs_is_not_deterministic():
    by_name = deterministic_figures(make_report(sweep_of()))
    measured = deterministic_figures(make_report(sweep_of(measured=True)))
    assert "auto num_draft_tokens=48" in by_name["cells"]
    assert not any(key.startswith("auto") for key in measured["cells"])
    key = NGRAM.key
    assert by_name["cells"][key]["normalised_speed"] > 1
    assert measured["cells"][key]["normalised_speed"] is None
    assert measured["cells"][key]["passes"] == by_name["cells"][key]["passes"]
    assert by_name["recommended"] is not None
    assert measured["recommended"] is None


METHODS_GRID = {"num_draft_tokens": (2, 6), "lenience": (1.0, 0.5), "draft_length": ("fixed",)}


def lenient_report(heat_axes=None, recommendable="identical"):
    """A sweep made up: the more tokens and the less strict, the faster."""
    plan = make_plan(["ngram"], METHODS_GRID, live=True)
    traces = {"t": items_of(12, per_session=1)}
    outcomes = {
        cell: {
            "t": [
                outcome(
                    60, 60 - 3 * (cell.num_draft_tokens or 0) * (1 + (cell.lenience == 0.5)), 1.0,
                    identical=cell.is_exact,
                )
                if cell.drafter != "auto"
                else outcome(60, 59, 1.0, identical=True)
                for _ in traces["t"]
            ]
        }
        for cell in plan.grid.cells
    }  # fmt: skip
    outcomes = {
        cell: {"t": [replace(o, decode_s=o.stats.steps / 60) for o in found["t"]]}
        for cell, found in outcomes.items()
    }
    options = SweepOptions(plan=plan, live=True, heat_axes=heat_axes, recommendable=recommendable)
    return make_report(Sweep(options, traces, outcomes, CURVE))


def test_what_is_not_exact_is_marked_in_every_table_and_figure():
    report = lenient_report()
    lenient = {cell for cell in report.figures if cell.lenience == 0.5}
    assert len(lenient) == 2
    tables = {table.name: table for table in make_tables(report)}
    for name in ("fastest", "cells"):
        columns = [column.name for column in tables[name].columns]
        marks = [
            (row[columns.index("lenience")], row[columns.index("identical")], row[-1])
            for row in tables[name].rows
        ]
        assert columns[-1] == "exactness"
        assert marks.count((0.5, "not exact", "not exact")) == 2
        assert all(mark[1:] == (12, "stream") for mark in marks if mark[0] != 0.5)
        assert not tables[name].columns[columns.index("identical")].detail
    timed = timing_figures(report)["cells"]
    for cell in lenient:
        # Passes over two rows cost 1.15 by the curve, and as much as others by the clock.
        steps = report.figures[cell].stats.steps / 12
        assert timed[cell.key]["speed"].ratio == pytest.approx(60 / steps)
        by_curve = timed[cell.key]["normalised_speed"].ratio
        assert by_curve == pytest.approx(60 / (steps + 0.15 * (60 - steps)))
    found = {key: cell["exactness"] for key, cell in timed.items()}
    assert {key for key, value in found.items() if value == "none"} == {c.key for c in lenient}
    counted = deterministic_figures(report)["cells"]
    for figures in (found, counted):
        assert {key for key in figures if key.endswith("(not exact)")} == {c.key for c in lenient}
    assert all(counted[cell.key]["identical"] is None for cell in lenient)
    assert report.recommendation.take.is_exact
    asked = lenient_report(recommendable="any")
    assert asked.recommendation.take in lenient
    (table,) = [table for table in make_tables(asked) if table.name == "recommendation"]
    assert table.rows[0][0] == "the cell, not exact"
    assert "(not exact)" in table.rows[0][1]
    assert "(not exact)" in table.note


def test_a_heat_map_has_what_is_not_exact_only_on_axes_of_its_own():
    exact = lenient_report("num-draft-tokens,draft-length").heat_map.values
    asked = lenient_report("num-draft-tokens,draft-length", "any").heat_map.values
    assert exact[6, "fixed"] < asked[6, "fixed"]
    named = lenient_report("num-draft-tokens,lenience").heat_map
    assert named.values[6, 1.0] == exact[6, "fixed"]
    assert named.values[6, 0.5] == asked[6, "fixed"]
    assert named.y_heading == "lenience (below 1 not exact)"
    assert named.rows == (0.5, 1.0)


def test_an_unfinished_sweep_has_what_there_is():
    report = make_report(sweep_of(done=4))
    assert len(report.figures) == 4
    assert report.recommendation is not None
    nothing = make_report(sweep_of(done=1))
    assert make_tables(nothing) == ()
    assert nothing.words.startswith("No recommendation")
    assert deterministic_figures(nothing)["cells"] == {}


def test_a_map_of_a_file_has_its_numbers_in_order():
    report = make_report(sweep_of())
    read = heat_map_of(report.heat_map.table())
    assert read.columns == tuple(str(column) for column in report.heat_map.columns)
    assert read.rows == tuple(str(row) for row in report.heat_map.rows)


def test_measured_costs_become_a_curve_that_starts_at_plain_decoding():
    curve = curve_of(Costs(0.01, {1: 1.09, 2: 0.95, 3: 1.4, 4: 1.3, 8: 2.0}))
    assert curve.points == {1: 1.0, 2: 1.0, 3: 1.4, 4: 1.4, 8: 2.0}
