"""The budget on simulated targets: what it costs against the best that was possible.

The unit is a step of plain decoding. Mutants of the budget, made by hand, that these tests kill are
listed in test_budget_rule.py, with the tests of the rule itself.
"""

import itertools
import random

import pytest
from budget_simulation import simulate
from pairwise import each_value

from akunu_py.decoding.budget import BudgetState
from akunu_py.values.cost_curve import CostCurve

CURVES = {
    "flat": CostCurve({1: 1.0}),
    "gentle": CostCurve({1: 1.0, 2: 1.05, 21: 2.0}),
    "m5": CostCurve({1: 1.0, 3: 1.115, 5: 1.45, 9: 2.2}),
    "m4": CostCurve({1: 1.0, 3: 1.13, 4: 1.43, 5: 1.75, 8: 2.84}, flat=(13, 32)),
    "moe": CostCurve({1: 1.0, 4: 3.12, 5: 3.82, 9: 6.13}),
    "steep": CostCurve({1: 1.0, 2: 1.62, 5: 3.63, 9: 6.27}),
}
RATES = (0.05, 0.3, 0.5, 0.7, 0.8, 0.9, 0.97)
FIXED = (0, 1, 2, 3, 4, 6, 8)

HOPELESS, EVEN, COPIED = 0.03, 0.7, 0.97


def constant(rate):
    return lambda _position: rate


def best_fixed(curve, rate, **options):
    return min(simulate(curve, rate, budget=size, **options)[0] for size in FIXED)


@pytest.mark.fast_every(2)
@pytest.mark.parametrize(("name", "rate"), each_value(tuple(CURVES), RATES))
def test_regret_against_the_best_fixed_size(name, rate):
    """At most 8 % over 1500 tokens once the machine is known, and 1.5 % above plain decoding.

    The first 300 tokens on a new machine cost at most 20 plain steps more than plain decoding.
    """
    state = BudgetState()
    curve = CURVES[name]
    first, *_ = simulate(curve, constant(rate), tokens=300, state=state)
    known, *_ = simulate(curve, constant(rate), tokens=1500, state=state)
    assert first * 300 <= 300 + 20
    assert known <= best_fixed(curve, constant(rate)) * 1.08
    assert known <= 1.015


@pytest.mark.parametrize(("name", "seed"), each_value(("m5", "steep", "moe"), range(4)))
def test_hopeless_text_costs_two_percent_at_most(name, seed):
    """Also in the first 500 tokens of a new machine, and where a drafter is sure of itself."""
    for confidence in (None, 0.95):
        cost, *_ = simulate(
            CURVES[name], constant(HOPELESS), tokens=500, confidence=confidence, seed=seed
        )
        assert cost <= 1.02


def test_a_dear_drafter_is_hardly_asked_where_it_brings_nothing():
    taken = 0.1 * 0.02  # a tenth of a plain step
    cost, _, drafter, *_ = simulate(CURVES["m5"], constant(HOPELESS), tokens=1500, takes_s=taken)
    assert cost <= 1.02
    assert len(drafter.proposals) < 150
    cost, _, drafter, steps, _ = simulate(CURVES["m5"], constant(COPIED), tokens=600, takes_s=taken)
    assert cost < 0.45
    assert len(drafter.proposals) > 0.9 * len(steps) - 5


@pytest.mark.parametrize(("name", "takes_s"), each_value(tuple(CURVES), (0.0, 0.002)))
def test_copies_are_found_again(name, takes_s):
    """After 1000 tokens of nothing to copy: within 24 tokens, within 80 with a dear drafter."""
    turn = 1000
    cost, target, _, steps, _ = simulate(
        CURVES[name], lambda at: HOPELESS if at < turn else 1.0, tokens=1300, takes_s=takes_s
    )
    position, found = 0, None
    for step in steps:
        if position > turn and step.stats.num_accepted_tokens > 1:
            found = position - turn
            break
        position += len(step.token_ids)
    assert found is not None
    assert found <= (24 if not takes_s else 80)


@pytest.mark.parametrize(
    "name", ["m5", *(pytest.param(name, marks=pytest.mark.slow) for name in ("m4", "gentle"))]
)
def test_text_that_changes_now_and_then(name):
    """Stretches of 60 tokens, copied and new in turn: at most 12 % above the better of the two."""

    def rate(position):
        return COPIED if position // 60 % 2 else HOPELESS

    state = BudgetState()
    simulate(CURVES[name], rate, tokens=300, state=state)
    cost, *_ = simulate(CURVES[name], rate, tokens=2400, state=state)
    copied = best_fixed(CURVES[name], constant(COPIED))
    assert cost <= (1 + copied) / 2 * 1.12
    assert cost <= best_fixed(CURVES[name], rate, tokens=2400)


@pytest.mark.fast_every(2)
@pytest.mark.parametrize(
    ("name", "rate"), each_value(("m5", "steep", "gentle"), (HOPELESS, EVEN, COPIED))
)
def test_outliers_of_ten_times_change_no_decision_for_long(name, rate):
    """One step in twenty takes ten times as long: within 10 % of the best fixed size.

    Counted is what the passes should have cost, since the outliers are nobody's fault.
    """

    def outlier(rng):
        return 10.0 if rng.random() < 0.05 else 1.0

    best = best_fixed(CURVES[name], constant(rate))
    for seed in range(3):
        options = {"state": BudgetState(), "outlier": outlier, "seed": seed}
        simulate(CURVES[name], constant(rate), tokens=300, **options)
        _, target, *_ = simulate(CURVES[name], constant(rate), tokens=1500, **options)
        assert target.nominal / 1500 <= best * 1.1


@pytest.mark.slow
def test_without_a_step_in_flight():
    for name in ("m5", "steep"):
        state = BudgetState()
        for rate in (HOPELESS, COPIED):
            options = {"state": state, "pipelined": False, "lost": 0.0}
            simulate(CURVES[name], constant(rate), tokens=300, **options)
            cost, *_ = simulate(CURVES[name], constant(rate), tokens=1000, **options)
            best = best_fixed(CURVES[name], constant(rate), pipelined=False, lost=0.0)
            assert cost <= best * 1.08


def test_probing_is_bounded():
    """What measures alone: at most 0.5 % of the steps, in plain steps, and what was saved up."""
    state = BudgetState()
    simulate(CURVES["steep"], constant(0.6), tokens=500, state=state)
    cost, target, *_ = simulate(CURVES["steep"], constant(0.6), tokens=4000, state=state)
    assert cost <= 1.01
    assert target.rows  # it does probe: the text is such that cheaper passes would pay


def test_a_machine_that_becomes_cheaper_is_noticed():
    """The steep curve was learned under another load; then passes cost what they do on an M5."""
    state = BudgetState()
    simulate(CURVES["steep"], constant(0.8), tokens=1500, state=state)
    # No more than 1000 tokens to notice it, on text that would pay.
    simulate(CURVES["m5"], constant(0.8), tokens=1000, state=state)
    cost, *_ = simulate(CURVES["m5"], constant(0.8), tokens=1500, state=state)
    assert cost <= best_fixed(CURVES["m5"], constant(0.8)) * 1.1


@pytest.mark.parametrize("seed", range(3))
def test_the_confidence_of_a_drafter_is_used_where_it_says_something(seed):
    """Half the drafts are right, half wrong, and the drafter knows: few wrong ones are verified."""
    rng = random.Random(seed)
    good = [rng.random() < 0.5 for _ in range(3000)]
    blocks = list(itertools.chain.from_iterable([g] * 10 for g in good))

    def rate(position):
        return COPIED if blocks[position] else HOPELESS

    state = BudgetState()
    told = simulate(CURVES["steep"], rate, tokens=2000, state=state, told=rate)[0]
    assert told < simulate(CURVES["steep"], rate, tokens=2000, state=BudgetState())[0]
