"""Figures of cells, and the recommendation, on outcomes made up by hand."""

import random
from dataclasses import replace

import pytest

from akunu_py.bench.replay.jobs import Job, run_job
from akunu_py.bench.replay.results import Results
from akunu_py.bench.replay.runner import ReplayItem
from akunu_py.bench.replay.traces import half_of
from akunu_py.bench.result_file import Costs
from akunu_py.bench.sweep.figures import Figures, compare, cost_by_clock, cost_by_curve
from akunu_py.bench.sweep.grid import PLAIN, Cell, default_cell
from akunu_py.bench.sweep.outcomes import ItemOutcome
from akunu_py.bench.sweep.plan import make_plan
from akunu_py.bench.sweep.recommend import eligible_cells, recommend
from akunu_py.bench.sweep.recorded import curve_of
from akunu_py.bench.sweep.replayed import ReplayData, replay_cell, replay_cells
from akunu_py.bench.sweep.result import (
    Sweep,
    deterministic_figures,
    make_report,
    make_tables,
    timing_figures,
)
from akunu_py.cost_curve import CostCurve
from akunu_py.types import DecodeStats

CURVE = CostCurve({1: 1.0, 3: 1.3, 9: 2.5})
AUTO, NGRAM = Cell("auto", 32), Cell("ngram", 4, 4, None, 1)
FAST = Cell("ngram", 8, 3, None, 1)


def items_of(sessions, per_session=2, length=60):
    """Texts that go round in circles and leave them now and then."""
    items = []
    for number in range(sessions):
        rng = random.Random(number)
        circle = [rng.randrange(40) for _ in range(12)]
        for turn in range(per_session):
            text = [t if rng.random() > 0.15 else rng.randrange(40) for t in circle * 8]
            items.append(
                ReplayItem(
                    f"{number}-{turn}", "code" if number % 2 else "prose", f"session {number}",
                    half_of(f"session {number}"), tuple(text[:20]), tuple(text[20 : 20 + length]),
                )
            )  # fmt: skip
    return items


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
    assert found.stats.tokens_per_pass == expected.tokens_per_pass > 1
    assert found.stats.hit_rate == expected.hit_rate
    assert found.stats.fire_rate == expected.fire_rate
    assert found.stats.alpha == expected.alpha
    assert cell.num_draft_tokens == expected.limit
    assert found.speed == pytest.approx(expected.speed, rel=1e-12)
    assert found.speed_interval == pytest.approx(expected.speed_interval, rel=1e-12)
    assert found.speed_interval[0] < found.speed < found.speed_interval[1]


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


def test_processes_change_nothing():
    data = ReplayData({"t": items_of(3)}, CURVE, "session", 50)
    cells = (PLAIN, NGRAM, AUTO)
    alone, together = dict(replay_cells(cells, data)), dict(replay_cells(cells, data, processes=2))
    assert set(alone) == set(together) == set(cells)
    for cell in cells:
        for one, other in zip(alone[cell]["t"], together[cell]["t"], strict=True):
            assert one.cost(CURVE) == other.cost(CURVE)
            assert one.stats.accepted_per_position == other.stats.accepted_per_position


def outcome(tokens, passes, decode_s=None, *, identical=None):
    """Passes of which as many drafted a token, accepted, as it takes to make the tokens."""
    accepted = tokens - passes
    return ItemOutcome(
        DecodeStats(
            steps=passes, steps_with_draft=accepted, drafted=accepted, accepted=accepted,
            tested=accepted, output_tokens=tokens,
            drafted_per_position=(accepted,) * (accepted > 0),
            accepted_per_position=(accepted,) * (accepted > 0),
        ),
        drafter_s=0.001, decode_s=decode_s, identical=identical,
    )  # fmt: skip


def test_an_outcome_survives_json():
    import json

    found = outcome(20, 12, 0.5, identical=True)
    assert ItemOutcome.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert found.stats.drafted_per_position == (8,)


def test_speeds_by_hand():
    curve = CostCurve({1: 1.0, 2: 1.5})
    items = items_of(2, per_session=1)
    traces = {"a": items[:1], "b": items[1:]}
    outcomes = {"a": [outcome(20, 12)], "b": [outcome(20, 16)]}
    plain = {"a": [outcome(20, 20)], "b": [outcome(20, 20)]}
    figures = Figures(traces, lambda _item: True).of(outcomes, plain, cost_by_curve(curve))
    # 8 of 12 passes over two rows: 4 + 8 * 1.5 = 16; 4 of 16: 12 + 6 = 18. The geometric mean.
    assert figures.speed == pytest.approx((20 / 16 * 20 / 18) ** 0.5, rel=1e-12)
    assert figures.stats.tokens_per_pass == 40 / 28
    assert figures.us_a_pass == pytest.approx(1e6 * 0.002 / 28)
    assert figures.decode_s is None


def test_speeds_by_the_clock():
    traces = {"a": items_of(2, per_session=1)}
    outcomes = {"a": [outcome(20, 12, 1.0, identical=True), outcome(10, 6, 1.0, identical=False)]}
    plain = {"a": [outcome(20, 20, 2.0), outcome(10, 10, 1.0)]}
    figures = Figures(traces, lambda _item: True).of(outcomes, plain, cost_by_clock)
    # Half the time for 20 tokens, as much for 10: 30 tokens in the time of 10 + 10 plain ones.
    assert figures.speed == pytest.approx(30 / 20, rel=1e-12)
    assert (figures.decode_s, figures.identical) == (2.0, 1)


def made_up(speeds, sessions=24):
    """Outcomes of cells on sessions of one item, each with (passes on half 0, on half 1)."""
    traces = {"t": items_of(sessions, per_session=1)}
    outcomes = {
        cell: {"t": [outcome(60, passes[i.half] + n % 3) for n, i in enumerate(traces["t"])]}
        for cell, passes in speeds.items()
    }
    assert {item.half for item in traces["t"]} == {0, 1}
    return traces, outcomes


FLAT = cost_by_curve(CostCurve({1: 1.0, 2: 1.0}))
OWN = {"auto": AUTO, "ngram": NGRAM, "none": PLAIN}


def test_the_best_of_one_half_is_judged_on_the_other():
    speeds = {AUTO: (40, 40), PLAIN: (57, 57), NGRAM: (45, 45), FAST: (20, 30)}
    traces, outcomes = made_up(speeds)
    found = recommend(traces, outcomes, FLAT, default=AUTO, own=OWN)
    assert (found.best, found.take) == (FAST, FAST)
    assert found.chosen_speed > found.figures[FAST].speed * 1.3  # by 30 passes and not by 20
    assert set(found.comparisons) == {AUTO, NGRAM, PLAIN}
    against = found.comparisons[AUTO]
    assert 1.25 < against.interval[0] <= against.ratio <= against.interval[1] < 1.4
    assert against.items == sum(item.half == 1 for item in traces["t"])
    assert found.words.startswith(f"Take {FAST.options}: +3")
    assert "against the default, --drafter auto --num-draft-tokens 32" in found.words


def test_what_is_good_on_the_choosing_half_alone_is_not_taken():
    speeds = {AUTO: (40, 40), PLAIN: (57, 57), NGRAM: (45, 45), FAST: (20, 50)}
    found = recommend(*made_up(speeds), FLAT, default=AUTO, own=OWN)
    assert (found.best, found.take) == (FAST, AUTO)
    assert found.words.startswith(f"Keep the default, {AUTO.options}: no cell is better beyond")
    assert f"The best one, {FAST.options}, does -1" in found.words


def test_better_within_the_interval_is_not_better():
    traces, outcomes = made_up({AUTO: (40, 40), PLAIN: (57, 57), FAST: (30, 40)})
    # On the other half a few items are far better and most a little worse: above 1, by luck.
    judged = [number for number, item in enumerate(traces["t"]) if item.half == 1]
    for place, number in enumerate(judged):
        outcomes[FAST]["t"][number] = outcome(60, 20 if place % 6 == 0 else 43)
    found = recommend(traces, outcomes, FLAT, default=AUTO, own=OWN)
    against = found.comparisons[AUTO]
    assert against.interval[0] < 1 < against.ratio
    assert (found.best, found.take) == (FAST, AUTO)
    assert f"The best one, {FAST.options}, does +" in found.words


def test_of_equal_cells_the_earlier_one_is_best():
    speeds = {AUTO: (40, 40), PLAIN: (57, 57), NGRAM: (40, 40), FAST: (40, 40)}
    found = recommend(*made_up(speeds), FLAT, default=AUTO, own=OWN)
    assert (found.best, found.take) == (AUTO, AUTO)
    assert found.words == f"Keep the default, {AUTO.options}: no cell of the grid is faster."
    assert set(found.comparisons) == {PLAIN}


def test_not_to_draft_can_be_the_recommendation():
    cost = cost_by_curve(CostCurve({1: 1.0, 2: 4.0}))
    speeds = {AUTO: (40, 40), PLAIN: (60, 60), NGRAM: (45, 45)}
    traces, outcomes = made_up(speeds)
    outcomes[PLAIN] = {"t": [outcome(60, 60) for _ in traces["t"]]}
    found = recommend(traces, outcomes, cost, default=AUTO, own=OWN)
    assert (found.best, found.take) == (PLAIN, PLAIN)
    assert found.words.startswith("Do not draft, --drafter none: +")


def test_a_best_cell_that_is_slower_than_plain_says_so():
    # Plain decoding is slow on the choosing half, so that it is not chosen itself.
    speeds = {AUTO: (50, 58), PLAIN: (57, 30), NGRAM: (50, 57), FAST: (20, 45)}
    traces, outcomes = made_up(speeds)

    def cost(found, plain):
        return found.stats.steps / plain.stats.steps * 60

    found = recommend(traces, outcomes, cost, default=AUTO, own=OWN)
    assert found.take == FAST
    assert found.words.endswith("Plain decoding is faster still.")


REJECTION = Cell("ngram", 4, 4, None, 1, "fixed", "rejection")
LENIENT = Cell("ngram", 4, 4, None, 1, "fixed", lenience=0.5)
EXACTNESS = {
    AUTO: "stream", PLAIN: "stream", FAST: "stream", REJECTION: "distribution", LENIENT: "none",
}  # fmt: skip


@pytest.mark.parametrize(
    ("recommendable", "taken", "left_out"),
    [
        ("identical", FAST, "2 faster cells"),
        ("law", REJECTION, "1 faster cell"),
        ("any", LENIENT, None),
    ],
)
def test_what_gives_other_replies_is_not_taken_unless_asked_for(recommendable, taken, left_out):
    speeds = {AUTO: (50, 50), PLAIN: (57, 57), FAST: (40, 40), REJECTION: (30, 30)}
    traces, outcomes = made_up({**speeds, LENIENT: (20, 20)})
    eligible = eligible_cells(outcomes, EXACTNESS, recommendable)
    found = recommend(traces, outcomes, FLAT, default=AUTO, own=OWN, eligible=eligible)
    assert (found.best, found.take) == (taken, taken)
    assert found.words.startswith(f"Take {taken.title}: +")
    assert ("(not exact)" in found.words) == (taken == LENIENT)
    others = "with other replies than plain decoding's."
    assert (
        found.words.endswith(f"Not considered: {left_out} {others}")
        if left_out
        else others not in found.words
    )


def decoded(outcomes, differing=()):
    """The outcomes as of decoded replies, of which those at `differing` are other ones."""
    return {"t": [replace(o, identical=n not in differing) for n, o in enumerate(outcomes["t"])]}


def test_what_had_to_be_identical_and_is_not_is_not_taken():
    traces, outcomes = made_up({AUTO: (50, 50), PLAIN: (57, 57), FAST: (20, 20), NGRAM: (40, 40)})
    exactness = dict.fromkeys(outcomes, "stream")
    outcomes = {cell: decoded(found) for cell, found in outcomes.items()}
    outcomes[FAST] = decoded(outcomes[FAST], {5})
    assert eligible_cells(outcomes, exactness, "identical") == [AUTO, PLAIN, NGRAM]
    assert eligible_cells(outcomes, exactness, "any") == [AUTO, PLAIN, FAST, NGRAM]
    # Where replies need not be the same, another one is no fault.
    assert FAST in eligible_cells(outcomes, {**exactness, FAST: "distribution"}, "law")
    # Nor is the default kept that changed replies, though it is faster than all that may be taken.
    outcomes[NGRAM], outcomes[AUTO] = decoded(outcomes[NGRAM], {3}), decoded(outcomes[AUTO], {0})
    eligible = eligible_cells(outcomes, exactness, "identical")
    found = recommend(traces, outcomes, FLAT, default=AUTO, own=OWN, eligible=eligible)
    assert (found.best, found.take) == (PLAIN, PLAIN)
    assert found.words.startswith(
        f"Take {PLAIN.options}: the default, {AUTO.options}, changed replies"
    )


def test_an_empty_half_gives_none():
    traces, outcomes = made_up({AUTO: (40, 40), PLAIN: (57, 57)})
    kept = [number for number, item in enumerate(traces["t"]) if item.half == 1]
    traces = {"t": [traces["t"][number] for number in kept]}
    outcomes = {c: {"t": [found["t"][n] for n in kept]} for c, found in outcomes.items()}
    assert recommend(traces, outcomes, FLAT, default=AUTO, own=OWN) is None


def test_sessions_are_resampled_whole():
    # Two items of each session are one sample: the interval is as wide as that of one of them.
    traces, outcomes = made_up({AUTO: (40, 40), PLAIN: (57, 57)})
    twice = {"t": [item for item in traces["t"] for _ in range(2)]}
    doubled = {c: {"t": [o for o in found["t"] for _ in range(2)]} for c, found in outcomes.items()}
    narrow = Figures(traces, lambda _item: True).of(outcomes[AUTO], outcomes[PLAIN], FLAT)
    same = Figures(twice, lambda _item: True).of(doubled[AUTO], doubled[PLAIN], FLAT)
    assert same.speed_interval == pytest.approx(narrow.speed_interval, rel=1e-12)
    assert compare(same, same).interval == (1.0, 1.0)
    assert not compare(same, same).is_better


def test_measured_costs_become_a_curve_that_starts_at_plain_decoding():
    curve = curve_of(Costs(0.01, {1: 1.09, 2: 0.95, 3: 1.4, 4: 1.3, 8: 2.0}))
    assert curve.points == {1: 1.0, 2: 1.0, 3: 1.4, 4: 1.4, 8: 2.0}


def sweep_of(*, measured=False, live=False, done=None):
    plan = make_plan(["ngram", "auto"], {"num_draft_tokens": (2, 6), "order": (3, 5)}, live=False)
    traces = {"t": items_of(8)}
    data = ReplayData(traces, CURVE, "session", 50)
    outcomes = {cell: replay_cell(cell, data) for cell in plan.grid.cells[:done]}
    return Sweep(plan, traces, outcomes, CURVE, measured, live)


def test_a_report_has_the_default_and_plain_decoding_in_its_tables():
    report = make_report(sweep_of())
    tables = {table.name: table for table in make_tables(report)}
    assert set(tables) == {"fastest", "recommendation", "cells", "heat_map"}
    assert [column.name for column in tables["heat_map"].columns] == ["x", "y", "value"]
    assert len(tables["heat_map"].rows) == 4 + 1  # the drafter as it ships has 4 and 4
    best = max(row[2] for row in tables["heat_map"].rows)
    assert best == max(f.speed for cell, f in report.figures.items() if cell.order is not None)
    assert len(tables["cells"].rows) == len(report.sweep.plan.grid.cells) == 9
    roles = [row[0] for row in tables["recommendation"].rows]
    assert any(role.endswith("the default") for role in roles)
    assert "plain decoding" in roles
    place = [column.name for column in tables["cells"].columns].index("speed")
    speeds = [row[place] for row in tables["cells"].rows]
    assert speeds == sorted(speeds, reverse=True)
    assert report.words == report.recommendation.words == tables["recommendation"].note


def test_what_depends_on_measured_costs_is_not_deterministic():
    by_name = deterministic_figures(make_report(sweep_of()))
    measured = deterministic_figures(make_report(sweep_of(measured=True)))
    assert "auto num_draft_tokens=32" in by_name["cells"]
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
    return make_report(
        Sweep(
            plan, traces, outcomes, CURVE, curve_measured=False, live=True, heat_axes=heat_axes,
            recommendable=recommendable,
        )
    )  # fmt: skip


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
    for figures in (deterministic_figures(report), timing_figures(report)):
        found = {key: cell["exactness"] for key, cell in figures["cells"].items()}
        assert {key for key, value in found.items() if value == "none"} == {c.key for c in lenient}
        assert all(key.endswith("(not exact)") for key, value in found.items() if value == "none")
    counted = deterministic_figures(report)["cells"]
    assert all(counted[cell.key]["identical"] is None for cell in lenient)
    assert report.recommendation.take.is_exact
    asked = lenient_report(recommendable="any")
    assert asked.recommendation.take in lenient
    (table,) = [table for table in make_tables(asked) if table.name == "recommendation"]
    assert table.rows[0][0] == "the cell, not exact"
    assert "(not exact)" in table.rows[0][1]
    assert "(not exact)" in table.note


def test_a_heat_map_has_what_is_not_exact_only_on_axes_of_its_own():
    exact = lenient_report("num-draft-tokens,draft-length").heat_map.speeds
    asked = lenient_report("num-draft-tokens,draft-length", "any").heat_map.speeds
    assert exact[6, "fixed"] < asked[6, "fixed"]
    named = lenient_report("num-draft-tokens,lenience").heat_map
    assert named.speeds[6, 1.0] == exact[6, "fixed"]
    assert named.speeds[6, 0.5] == asked[6, "fixed"]
    assert named.y_heading == "lenience (below 1 not exact)"
    assert named.y_values == (0.5, 1.0)


def test_an_unfinished_sweep_has_what_there_is():
    report = make_report(sweep_of(done=4))
    assert len(report.figures) == 4
    assert report.recommendation is not None
    nothing = make_report(sweep_of(done=1))
    assert make_tables(nothing) == ()
    assert nothing.words.startswith("No recommendation")
    assert deterministic_figures(nothing)["cells"] == {}
