"""How many tokens are drawn for rejection sampling, on a simulated clock: held to theorem 3.8.

p and q overlap by alpha at every position, a pass takes what the curve says, the drafter its share
of a plain step for each token.
"""

from dataclasses import dataclass, field

import numpy as np
import pytest

from akunu_lab.theory import best_num_draft_tokens, walltime_factor
from akunu_lab.verifying.chance import KeyedChance
from akunu_lab.verifying.law_loop import DrawnBudget, decode_by_law, law_budget
from akunu_lab.verifying.verifiers import RejectionVerifier
from akunu_py.api import Draft, Target
from akunu_py.decoding.budget import BudgetState
from akunu_py.values.cost_curve import CostCurve

PLAIN_S = 0.02
FLAT = CostCurve({1: 1.0, 2: 1.0})
STEEP = CostCurve({1: 1.0, 2: 2.0})


@dataclass
class Pair(Target):
    """Target and drafter in one, over one clock; `alpha(position)` is how far p and q overlap."""

    alpha: object
    draft_cost: float
    curve: CostCurve
    now: float = 0.0
    position: int = 1
    sizes: list = field(default_factory=list)

    def __post_init__(self):
        self.rng = np.random.default_rng(1)

    def clock(self):
        return self.now

    def max_draft_tokens(self):
        return 64

    def choose(self, last, draft):
        raise AssertionError("the verifier asks for distributions")

    def distributions(self, last, draft):
        self.sizes.append(len(draft))
        self.now += PLAIN_S * self.curve.cost(1 + len(draft))
        alphas = [self.alpha(self.position + place) for place in range(len(draft) + 1)]
        return np.array([[alpha, 1 - alpha, 0.0] for alpha in alphas])

    def commit(self, accepted):
        self.position += len(accepted) + 1

    def observe(self, tokens):
        pass

    def propose(self, limit):
        alphas = [self.alpha(self.position + place) for place in range(limit)]
        self.rows = [np.array([alpha, 0.0, 1 - alpha]) for alpha in alphas]
        self.now += PLAIN_S * self.draft_cost * limit
        return Draft.chain((int(self.rng.choice(3, p=row)) for row in self.rows), "pair")

    def draft_probabilities(self):
        return np.stack(self.rows)


def factor(alpha, draft_cost, curve, tokens=3000, most=16):
    """Return plain decoding's time over that of the run, with the sizes that were drawn."""
    pair = Pair(alpha, draft_cost, curve)
    rule = RejectionVerifier(KeyedChance(1))
    steps = decode_by_law(
        pair, pair, 0, num_draft_tokens=most, max_tokens=tokens, clock=pair.clock,
        budget=law_budget(BudgetState(), context=1, target=pair, drafter=pair, rule=rule),
        rule=rule, position=1,
    )  # fmt: skip
    assert sum(len(step.token_ids) for step in steps) == tokens
    return PLAIN_S * tokens / pair.now, pair.sizes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alpha", "draft_cost"), [(0.6, 0.05), (0.8, 0.1), (0.9, 0.02), (0.9, 0.2)]
)
def test_near_the_best_fixed_number(alpha, draft_cost):
    best = best_num_draft_tokens(alpha, draft_cost, 16)
    found, sizes = factor(lambda _: alpha, draft_cost, FLAT)
    assert found > 0.93 * walltime_factor(alpha, best, draft_cost)
    assert abs(np.median(sizes[200:]) - best) <= max(2, best / 3)


@pytest.mark.parametrize(
    ("alpha", "draft_cost", "curve"), [(0.1, 0.3, FLAT), (0.02, 0.01, STEEP), (0.7, 0.1, STEEP)]
)
def test_where_no_number_pays_little_is_lost(alpha, draft_cost, curve):
    found, sizes = factor(lambda _: alpha, draft_cost, curve)
    assert found > 0.97
    assert np.mean(np.array(sizes[500:]) > 0) < 0.05


@pytest.mark.slow
def test_text_that_becomes_easy_is_found_again():
    found, sizes = factor(lambda position: 0.02 if position < 2000 else 0.9, 0.05, FLAT, 5000)
    assert np.mean(sizes[1000:1500]) < 0.2
    assert np.mean(sizes[-200:]) > 4
    assert found > 1.3


def test_nothing_is_planned_where_nothing_may_be():
    pair = Pair(lambda _: 0.5, 0.1, FLAT)
    budget = DrawnBudget(BudgetState(), context=1, target=pair, drafter=pair)
    assert budget.limit(0) == 0
