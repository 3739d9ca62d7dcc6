"""Figures from known counts: speeds, choices on one half, intervals, comparisons; and replays."""

import math

import numpy as np
import pytest

from akunu_lab.replay.cells import PLAIN, Cell, default_cell
from akunu_lab.replay.report import LIMITS, replay_cells, report_curve
from akunu_lab.replay.results import Results, compare, cost_by_clock, cost_by_curve
from akunu_lab.replay.runner import ItemCounts, ReplayItem
from akunu_lab.replay.trace_drafters import not_replayable, replayable_names
from akunu_lab.replay.trace_replays import (
    ReplayInputs,
    TraceReplay,
    plan_replays,
    run_replay,
    run_replays,
)
from akunu_lab.study.store import ItemStore
from akunu_py.bench.bootstrap import Ratio, interval
from akunu_py.system.errors import ConfigError
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import DecodeStats

CURVES = {"flat": CostCurve({1: 1.0, 9: 1.0}), "steep": CostCurve({1: 1.0, 2: 2.0})}


def item(name, half, tokens=8, category="code", session=None):
    return ReplayItem(name, category, session or name, half, (1,), (5,) * tokens)


def counts(passes, drafted=0, tokens=8, decode_s=None, identical=None):
    """Eight tokens in some passes, as many tokens drafted for each."""
    stats = DecodeStats(
        steps=passes,
        steps_with_draft=passes if drafted else 0,
        drafted=passes * drafted,
        accepted=tokens - passes,
        tested=tokens - passes,
        output_tokens=tokens,
        drafted_per_position=(passes,) * drafted,
        propose_s=passes * 2e-6,
    )
    return ItemCounts(stats, passes * 1e-6, decode_s, identical)


TRACES = {
    "one": [item("a", 0), item("b", 1), item("c", 1, category="chat")],
    "two": [item("d", 0), item("e", 1)],
}
NONE, HALF = counts(8), counts(4, 2)
SAM, LOOKUP, NGRAM = Cell("sam", 2), Cell("hf-lookup-2", 2), Cell("ngram", 4)
COUNTS = {
    # Drafting two tokens halves the passes everywhere but on item c.
    Cell("sam", 0): {"one": [NONE] * 3, "two": [NONE] * 2},
    # Three are better on the trace "two" alone, on the half to choose by.
    Cell("sam", 3): {"one": [NONE] * 3, "two": [counts(3, 3), counts(8, 3)]},
    SAM: {"one": [HALF, HALF, counts(8, 2)], "two": [HALF] * 2},
    Cell("hf-lookup-2", 0): {"one": [NONE] * 3, "two": [NONE] * 2},
    LOOKUP: {"one": [counts(8, 2), counts(2, 2), counts(2, 2)], "two": [counts(8, 2), HALF]},
    NGRAM: {"one": [counts(2, 3)] * 3, "two": [counts(8, 3)] * 2},
}


def report(curve="flat", *, tune=True):
    return report_curve(curve, CURVES[curve], list(COUNTS), COUNTS, TRACES, tune=tune)


def test_speed_is_tokens_over_cost_and_a_geometric_mean_over_traces():
    cell, figures = report().total["sam"]
    assert (cell, figures.items) == (SAM, 3)
    assert figures.speed.ratio == pytest.approx(math.sqrt(16 / 12 * 8 / 4))
    assert figures.tokens_per_pass.ratio == 24 / 16
    assert figures.rates["mean_draft"] == 2
    assert figures.us_a_pass == pytest.approx(3)
    assert figures.decode_s is None
    # Under the steep curve a pass over three rows costs 3, so not to draft is best.
    cell, figures = report("steep").total["sam"]
    assert (cell.num_draft_tokens, figures.speed.ratio, figures.rates["mean_draft"]) == (0, 1, None)
    steep = Results(TRACES, COUNTS, cost_by_curve(CURVES["steep"]), lambda item: item.half == 1)
    assert steep.figures(SAM).speed.ratio == pytest.approx(math.sqrt(16 / 36 * 8 / 12))
    assert steep.figures(SAM, lambda _: False) is None


def test_speeds_by_the_clock():
    traces = {"a": [item("a", 0), item("b", 0)]}
    cell = Cell("ngram", 4)
    found = {
        PLAIN: {"a": [counts(20, 0, 20, 2.0, True), counts(10, 0, 10, 1.0, True)]},
        cell: {"a": [counts(12, 1, 20, 1.0, True), counts(6, 1, 10, 1.0, False)]},
    }
    figures = Results(traces, found, cost_by_clock).figures(cell)
    # Half the time for 20 tokens, as much for 10: 30 tokens in the time of 10 + 10 plain ones.
    assert figures.speed.ratio == pytest.approx(30 / 20, rel=1e-12)
    assert (figures.decode_s, figures.identical) == (2.0, 1)


def test_lengths_are_chosen_on_one_half_and_reported_on_the_other():
    # On the items to choose by, hf-lookup-2 gains nothing by drafting: the shorter length stays.
    cell, figures = report().total["hf-lookup-2"]
    assert (cell.num_draft_tokens, figures.speed.ratio) == (0, 1)
    assert report(tune=False).total["ngram"][1].items == 5


def test_groups_and_akunus_drafters_against_the_best_baselines():
    flat = report()
    assert list(flat.total) == ["sam", "hf-lookup-2", "ngram"]
    chat, code = (flat.categories[name]["sam"][1] for name in ("chat", "code"))
    assert (chat.speed.ratio, chat.items) == (1, 1)
    assert code.speed.ratio == pytest.approx(2)
    assert flat.best_baseline == "sam"
    assert list(flat.against_best) == ["ngram"]
    against = flat.against_best["ngram"]
    assert against.against == "sam@2"
    assert against.speed.ratio == pytest.approx(math.sqrt(4 * 1) / math.sqrt(16 / 12 * 2))
    of_trace = flat.against_best_of_trace
    assert of_trace["one"]["ngram"].speed.ratio == pytest.approx(4 / (16 / 12))
    assert [of_trace[name]["ngram"].against for name in TRACES] == ["sam@2", "sam@3"]
    assert of_trace["two"]["ngram"].speed == Ratio(1, 1, 1, 1)


def test_a_drafter_by_the_curve_has_figures_of_its_own_under_each():
    cells = replay_cells(["auto"], CURVES, tune=False)
    found = {
        cell: {name: [counts(passes)] * len(items) for name, items in TRACES.items()}
        for cell, passes in zip(cells, (8, 4), strict=True)
    }
    for name, cell, speed in zip(CURVES, cells, (1, 2), strict=True):
        under = report_curve(name, CURVES[name], cells, found, TRACES, tune=False)
        assert (under.total["auto"][0], under.total["auto"][1].speed.ratio) == (cell, speed)


def test_resamples_are_of_sessions_and_always_the_same():
    weights = Ratio.weights(["a", "a", "b", "c"], name="one")
    assert weights.shape == (1000, 4)
    assert weights[0].tolist() == [1, 1, 1, 1]
    assert (weights[:, 0] == weights[:, 1]).all()
    assert (weights[:, 0] + weights[:, 2] + weights[:, 3] == 3).all()
    assert (weights == Ratio.weights(["a", "a", "b", "c"], name="one")).all()
    assert (weights != Ratio.weights(["a", "a", "b", "c"], name="two")).any()
    assert (weights != Ratio.weights(["a", "a", "b", "b"], name="one")).any()


def test_intervals_and_figures_of_nothing():
    samples = np.arange(1001.0)
    assert interval(samples) == (25.0, 975.0)
    assert interval(np.array([1.0, np.nan, 2.0]))[0] > 1
    assert all(math.isnan(bound) for bound in interval(np.array([np.nan])))
    # As of tokens over the cost of no pass: JSON has no such number.
    nothing = Ratio(None, None, None, 3)
    assert (
        Ratio.estimate(np.full(1000, np.nan), 3)
        == Ratio.estimate(np.full(1000, np.inf), 3)
        == nothing
    )
    assert Ratio.estimate(np.array([2.0, np.nan, 2.0]), 3) == Ratio(2.0, 2.0, 2.0, 3)
    assert nothing.range_text(".2f") == "not enough items"


def test_intervals_are_wide_where_items_differ():
    generator = np.random.default_rng(0)
    passes = generator.integers(2, 9, size=60)
    items = [item(str(number), 1) for number in range(60)]
    found = {SAM: {"t": [counts(5)] * 60}, LOOKUP: {"t": [counts(int(n)) for n in passes]}}
    results = Results({"t": items}, found, cost_by_curve(CURVES["flat"]))
    alike = results.figures(SAM).speed
    assert [alike.low, alike.high] == [pytest.approx(1.6)] * 2
    figures = results.figures(LOOKUP)
    # The spread of a mean of 60, twice its standard error to each side.
    error = 2 * passes.std() / math.sqrt(60) / passes.mean()
    assert figures.speed.low == pytest.approx(figures.speed.ratio * (1 - error), rel=0.03)
    assert figures.speed.high == pytest.approx(figures.speed.ratio * (1 + error), rel=0.03)
    assert compare(figures, figures) == Ratio(1, 1, 1, 60)
    # The other half is a sample of its own.
    mixed = [*(item(f"more {number}", 0) for number in range(30)), *items]
    more = {LOOKUP: {"t": [counts(2)] * 30 + found[LOOKUP]["t"]}}
    half = Results({"t": mixed}, more, cost_by_curve(CURVES["flat"]), lambda one: one.half == 1)
    assert half.figures(LOOKUP).speed == figures.speed
    # Two items of each session are one sample: the interval is as wide as that of one of them.
    twice = {"t": [entry for entry in items for _ in range(2)]}
    doubled = {LOOKUP: {"t": [entry for entry in found[LOOKUP]["t"] for _ in range(2)]}}
    same = Results(twice, doubled, cost_by_curve(CURVES["flat"])).figures(LOOKUP).speed
    assert (same.low, same.high) == pytest.approx((figures.speed.low, figures.speed.high))


LINE = tuple(range(10, 60))
COPIES = {
    "t": [
        ReplayItem("a/0", "code", "a", 0, (1, 2), LINE),
        ReplayItem("a/1", "code", "a", 0, (1, 2, 10), LINE),
        ReplayItem("b", "code", "b", 1, (1, 2, 10), LINE),
    ]
}


def stats_of(cell, memory="trace", traces=COPIES, curves=CURVES):
    inputs = ReplayInputs(traces, curves, memory, 50)
    return [found.stats for found in run_replay(TraceReplay((cell,), "t"), inputs)[0]]


@pytest.mark.parametrize("drafter", ["suffix-64", "auto", "llama-ngram-cache"])
def test_memory_lives_as_long_as_it_should(drafter):
    (cell,) = replay_cells([drafter], ["flat"], tune=False)
    accepted = {
        memory: [found.accepted for found in stats_of(cell, memory)]
        for memory in ("trace", "session")
    }
    assert accepted["trace"][0] == accepted["session"][0] == 0
    assert accepted["session"][2] == 0
    assert accepted["trace"][2] > 20
    # The strict gates of llama.cpp's cache want two sightings in earlier texts.
    if drafter != "llama-ngram-cache":
        assert accepted["trace"][1] == accepted["session"][1] > 20


def test_auto_drafts_by_the_curve():
    flat, steep = (stats_of(cell)[1].drafted for cell in replay_cells(["auto"], CURVES, tune=False))
    assert flat > 0
    assert steep == 0  # a token more costs a pass more


def test_settings_change_what_is_replayed():
    text = [number * number % 7 for number in range(40)] + [1, 2, 3, 1, 2, 4, 1, 2, 3] * 9
    items = {"t": [ReplayItem("a", "code", "a", 0, tuple(text[:40]), tuple(text[40:]))]}

    def stats(*settings, **named):
        return stats_of(Cell(*settings, **named), traces=items)[0]

    default = stats("ngram", 4, 4, None, 1)
    assert len(default.drafted_per_position) == 4
    assert len(stats("ngram", 7, 4, None, 1).drafted_per_position) == 7
    # Fewer contexts decide: less is drafted, and more of it is right.
    careful = stats("ngram", 4, 4, None, 3)
    assert careful.drafted < default.drafted
    assert careful.hit_rate > default.hit_rate
    assert stats("ngram", 4, 2, None, 1) != default
    assert stats("ngram-window", 4, 4, 8, 1).fire_rate < default.fire_rate
    entropy = stats("counts", 4, draft_length="entropy")
    assert 0 < entropy.drafted < stats("counts", 4, draft_length="fixed").drafted
    assert stats("none").tokens_per_pass == 1


def test_cells_and_their_replays():
    cells = replay_cells(["auto", "ngram", "sam"], CURVES, tune=True)
    assert [cell.key for cell in cells[:3]] == [
        "auto num_draft_tokens=48 curve=flat", "auto num_draft_tokens=48 curve=steep",
        "ngram num_draft_tokens=4 order=4 min_match=1",
    ]  # fmt: skip
    assert [cell.num_draft_tokens for cell in cells[3:]] == list(LIMITS)
    replays = plan_replays(cells, ["long", "short"])
    # All lengths of a baseline are one walk.
    assert [(len(replay.cells), replay.trace) for replay in replays] == [
        (1, "long"), (1, "short"), (1, "long"), (1, "short"), (1, "long"), (1, "short"),
        (19, "long"), (19, "short"),
    ]  # fmt: skip
    assert len({replay.key for replay in replays}) == len(replays)


def test_progress_counts_the_replays_that_were_done_before():
    inputs, store, seen = ReplayInputs(COPIES, CURVES, "trace"), ItemStore(None, {}), []
    replays = plan_replays([default_cell("ngram"), default_cell("sam")], COPIES)

    def run(chosen):
        return run_replays(
            chosen, inputs, store, processes=1, progress=lambda *pair: seen.append(pair)
        )

    first, finished = run(replays[:1])
    assert finished
    seen.clear()
    found, _ = run(replays)
    assert seen == [(1, 2), (2, 2)]
    assert found[default_cell("ngram")] == {"t": tuple(first[default_cell("ngram")]["t"])}
    for wrong in ([[{}]], [[{}] * 3] * 2):
        store.put(replays[0].key, wrong)
        with pytest.raises(ConfigError, match=r"the finished ngram .* on t is not of the items"):
            run(replays)


@pytest.mark.slow
def test_processes_change_nothing():
    cells = replay_cells(["ngram", "auto", "sam"], CURVES, tune=True)
    inputs = ReplayInputs(COPIES, CURVES, "trace")

    def figures(processes):
        found, _ = run_replays(
            plan_replays(cells, COPIES), inputs, ItemStore(None, {}), processes=processes
        )
        return {
            cell.key: [one.stats.drafted_per_position for one in on["t"]]
            for cell, on in found.items()
        }

    assert figures(1) == figures(2)


def test_what_can_be_replayed():
    assert {"ngram", "auto", "sam", "suffix-64"} <= set(replayable_names())
    assert not {"none", "recycling"} & set(replayable_names())
    assert not_replayable("sam") is None
    assert not_replayable("recycling").startswith("it learns from the target's logits")
    with pytest.raises(ConfigError, match="no drafter named 'magic'"):
        not_replayable("magic")
