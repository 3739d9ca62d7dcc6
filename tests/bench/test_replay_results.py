"""Figures from known counts: speeds, choices on one half, intervals, comparisons."""

import math

import numpy as np
import pytest

from akunu_py.bench.bootstrap import Ratio, estimate, interval, session_weights
from akunu_py.bench.replay.arms import known_names, make_arm
from akunu_py.bench.replay.jobs import LIMITS, Job, JobResult, plan_jobs, run_job, run_jobs
from akunu_py.bench.replay.results import Against, Results, compared, make_report
from akunu_py.bench.replay.runner import ItemCounts, ReplayItem
from akunu_py.system.errors import ConfigError
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import DecodeStats

CURVES = {"flat": CostCurve({1: 1.0, 9: 1.0}), "steep": CostCurve({1: 1.0, 2: 2.0})}


def item(name, half, tokens=8, category="code", session=None):
    return ReplayItem(name, category, session or name, half, (1,), (5,) * tokens)


def counts(passes, drafted=0, tokens=8):
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
    return ItemCounts(stats, observe_s=passes * 1e-6)


TRACES = {
    "one": [item("a", 0), item("b", 1), item("c", 1, category="chat")],
    "two": [item("d", 0), item("e", 1)],
}


def job(arm, trace, table, *, curve=None, limits=(0, 2)):
    return JobResult(
        Job(trace, arm, curve, limits, "trace"), limits, tuple(tuple(row) for row in table)
    )


def results(*, tune=True):
    none, half = counts(8), counts(4, 2)
    return Results(
        TRACES,
        CURVES,
        [
            # Drafting two tokens halves the passes everywhere but on item c.
            job("sam", "one", [[none, none, none], [half, half, counts(8, 2)]]),
            job("sam", "two", [[none, none], [half, half]]),
            job("hf-lookup-2", "one", [[none] * 3, [counts(8, 2), counts(2, 2), counts(2, 2)]]),
            job("hf-lookup-2", "two", [[none] * 2, [counts(8, 2), half]]),
            job("ngram", "one", [[counts(2, 3)] * 3], limits=(4,)),
            job("ngram", "two", [[counts(8, 3)] * 2], limits=(4,)),
        ],
        tune=tune,
    )


def test_speed_is_tokens_over_cost_and_a_geometric_mean_over_traces():
    found = results()
    figures = found.figures("sam", "flat")
    assert figures.limit == 2
    assert figures.items == 3
    assert figures.speed.ratio == pytest.approx(math.sqrt(16 / 12 * 8 / 4))
    assert figures.tokens_per_pass.ratio == 24 / 16
    assert figures.fire_rate == 1
    assert figures.mean_draft == 2
    assert figures.hit_rate == 8 / 32
    assert figures.us_a_pass == pytest.approx(3)
    # Under the steep curve a pass over three rows costs 3, so not to draft is best.
    assert found.figures("sam", "steep").limit == 0
    assert found.figures("sam", "steep").speed.ratio == 1
    assert found.figures("sam", "steep").mean_draft is None
    assert found.figures("sam", "steep", index=1).speed.ratio == pytest.approx(
        math.sqrt(16 / 36 * 8 / 12)
    )


def test_lengths_are_chosen_on_one_half_and_reported_on_the_other():
    # On the items to choose by, hf-lookup-2 gains nothing by drafting: the shorter length stays.
    figures = results().figures("hf-lookup-2", "flat")
    assert (figures.limit, figures.speed.ratio) == (0, 1)
    assert results().best_baseline("flat") == "sam"
    untuned = results(tune=False)
    assert untuned.figures("ngram", "flat").items == 5


def test_categories():
    report = make_report(results(), ["ngram", "sam", "hf-lookup-2", "recycling"], memory="trace")
    flat = report.curves[0]
    assert flat.categories["chat"]["sam"].speed.ratio == 1
    assert flat.categories["chat"]["sam"].items == 1
    assert flat.categories["code"]["sam"].speed.ratio == pytest.approx(2)
    assert list(flat.total) == ["ngram", "sam", "hf-lookup-2"]
    assert list(report.not_replayable) == ["recycling"]


def test_akunus_drafters_are_held_against_the_best_baselines():
    report = make_report(results(), ["ngram", "sam", "hf-lookup-2"], memory="trace")
    flat = report.curves[0]
    assert flat.best_baseline == "sam"
    assert list(flat.against_best) == ["ngram"]
    against = flat.against_best["ngram"]
    assert against.against == "sam@2"
    assert against.speed.ratio == pytest.approx(math.sqrt(4 * 1) / math.sqrt(16 / 12 * 2))
    of_trace = flat.against_best_of_trace
    assert of_trace["one"]["ngram"].speed.ratio == pytest.approx(4 / (16 / 12))
    assert of_trace["two"]["ngram"].speed.ratio == pytest.approx(0.5)
    assert of_trace["two"]["ngram"].speed.low == pytest.approx(0.5)


def test_no_figures_without_items():
    assert results().figures("sam", "flat", lambda _: False) is None


def test_resamples_are_of_sessions_and_always_the_same():
    weights = session_weights(["a", "a", "b", "c"], name="one")
    assert weights.shape == (1000, 4)
    assert weights[0].tolist() == [1, 1, 1, 1]
    assert (weights[:, 0] == weights[:, 1]).all()
    assert (weights[:, 0] + weights[:, 2] + weights[:, 3] == 3).all()
    assert (weights == session_weights(["a", "a", "b", "c"], name="one")).all()
    assert (weights != session_weights(["a", "a", "b", "c"], name="two")).any()
    assert (weights != session_weights(["a", "a", "b", "b"], name="one")).any()


def test_an_interval_covers_what_it_should():
    samples = np.arange(1001.0)
    assert interval(samples) == (25.0, 975.0)
    assert interval(np.array([1.0, np.nan, 2.0]))[0] > 1
    assert all(math.isnan(bound) for bound in interval(np.array([np.nan])))


def test_a_figure_of_nothing_has_no_interval():
    """As of tokens over the cost of no pass: JSON has no such number."""
    nothing = Ratio(None, None, None, 3)
    assert estimate(np.full(1000, np.nan), 3) == estimate(np.full(1000, np.inf), 3) == nothing
    assert estimate(np.array([2.0, np.nan, 2.0]), 3) == Ratio(2.0, 2.0, 2.0, 3)
    assert nothing.range_text(".2f") == "not enough items"


def test_intervals_are_wide_where_items_differ():
    generator = np.random.default_rng(0)
    passes = generator.integers(2, 9, size=60)
    items = [item(str(number), 1) for number in range(60)]
    alike, unlike = [counts(5)] * 60, [counts(int(number)) for number in passes]
    found = Results(
        {"t": items},
        CURVES,
        [job("sam", "t", [alike], limits=(0,)), job("hf-lookup-2", "t", [unlike], limits=(0,))],
        tune=True,
    )
    assert [found.figures("sam", "flat").speed.low, found.figures("sam", "flat").speed.high] == [
        pytest.approx(1.6)
    ] * 2
    figures = found.figures("hf-lookup-2", "flat")
    low, high = figures.speed.low, figures.speed.high
    # The spread of a mean of 60, twice its standard error to each side.
    error = 2 * passes.std() / math.sqrt(60) / passes.mean()
    assert low == pytest.approx(figures.speed.ratio * (1 - error), rel=0.03)
    assert high == pytest.approx(figures.speed.ratio * (1 + error), rel=0.03)
    against = compared(figures, figures, "itself")
    assert against == Against(Ratio(1, 1, 1, 60), "itself")


LINE = tuple(range(10, 60))
COPIES = [
    ReplayItem("a/0", "code", "a", 0, (1, 2), LINE),
    ReplayItem("a/1", "code", "a", 0, (1, 2, 10), LINE),
    ReplayItem("b", "code", "b", 1, (1, 2, 10), LINE),
]


@pytest.mark.parametrize("arm", ["suffix-64", "auto", "llama-ngram-cache"])
def test_memory_lives_as_long_as_it_should(arm):
    curve = None if arm != "auto" else "flat"
    accepted = {}
    for memory in ("trace", "session"):
        found = run_job(Job("t", arm, curve, (), memory), COPIES * 1, CURVES)
        (row,) = found.counts
        accepted[memory] = [one.stats.accepted for one in row]
    assert accepted["trace"][0] == accepted["session"][0] == 0
    assert accepted["session"][2] == 0
    if arm == "llama-ngram-cache":
        # Its strict gates want two sightings in earlier texts.
        assert accepted["trace"][2] > 20
    else:
        assert accepted["trace"][1] == accepted["session"][1] > 20
        assert accepted["trace"][2] > 20


def test_auto_drafts_by_the_curve():
    drafted = {
        curve: run_job(Job("t", "auto", curve, (), "trace"), COPIES, CURVES).counts[0][1].stats
        for curve in CURVES
    }
    assert drafted["flat"].drafted > 0
    assert drafted["steep"].drafted == 0  # a token more costs a pass more


def test_jobs():
    traces = {"short": COPIES[:1], "long": COPIES}
    jobs = plan_jobs(traces, ["auto", "ngram", "sam"], list(CURVES), memory="trace", tune=True)
    assert [job.trace for job in jobs[:4]] == ["long"] * 4
    assert [(job.arm, job.curve) for job in jobs[:4]] == [
        ("auto", "flat"), ("auto", "steep"), ("ngram", None), ("sam", None),
    ]  # fmt: skip
    assert [job.limits for job in jobs[:4]] == [(), (), (), LIMITS]


@pytest.mark.slow
def test_processes_change_nothing():
    traces = {"t": COPIES}
    jobs = plan_jobs(traces, ["ngram", "sam"], list(CURVES), memory="trace", tune=True)

    def figures(processes):
        done = list(run_jobs(jobs, traces, CURVES, processes=processes))
        return {
            (one.job.arm, limit): [entry.stats.drafted_per_position for entry in row]
            for one in done
            for limit, row in zip(one.limits, one.counts, strict=True)
        }

    assert figures(1) == figures(2)


def test_arms():
    assert {"ngram", "auto", "sam", "suffix-64"} <= set(known_names())
    assert not {"none", "recycling"} & set(known_names())
    with pytest.raises(ConfigError, match="recycling cannot be replayed: it learns from"):
        make_arm("recycling")
    with pytest.raises(ConfigError, match="no drafter named 'magic'"):
        make_arm("magic")
