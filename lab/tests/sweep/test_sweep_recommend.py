"""Which cell is recommended, on outcomes made up by hand."""

import pytest
from msgspec.structs import replace
from sweep_values import (
    AUTO,
    FAST,
    FLAT,
    NGRAM,
    OWN,
    made_up,
    outcome,
)

from akunu_lab.replay.cells import PLAIN, Cell
from akunu_lab.replay.results import cost_by_curve
from akunu_lab.sweep.recommend import eligible_cells, recommend
from akunu_py.values.cost_curve import CostCurve


def test_the_best_of_one_half_is_judged_on_the_other():
    speeds = {AUTO: (40, 40), PLAIN: (57, 57), NGRAM: (45, 45), FAST: (20, 30)}
    traces, outcomes = made_up(speeds)
    found = recommend(traces, outcomes, FLAT, default=AUTO, own=OWN)
    assert (found.best, found.take) == (FAST, FAST)
    assert found.figures[FAST].speed.ratio == pytest.approx(60 / 31, rel=0.01)
    assert set(found.comparisons) == {AUTO, NGRAM, PLAIN}
    against = found.comparisons[AUTO]
    assert 1.25 < against.low <= against.ratio <= against.high < 1.4
    assert against.pairs == sum(item.half == 1 for item in traces["t"])
    assert found.words.startswith(f"Take {FAST.options}: +3")
    assert "against the default, --drafter auto --num-draft-tokens 48" in found.words


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
    assert against.low < 1 < against.ratio
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
