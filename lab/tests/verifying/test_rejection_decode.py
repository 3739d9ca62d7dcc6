"""Rejection sampling over whole runs of the decode loop: the law of everything emitted.

Drafters that break what `akunu_lab.verifying.draft_law` demands are here too, and must fail.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from enumeration import distance, enumerate_law, plain_law
from toy_drafters import SampledToyDrafter, ScriptedDrafter, ToyDistributions, hashed_law

from akunu_lab.theory import expected_tokens
from akunu_lab.verifying.chance import KeyedChance
from akunu_lab.verifying.law_loop import DrawnBudget, decode_by_law
from akunu_lab.verifying.verifiers import LenientGreedyVerifier, RejectionVerifier
from akunu_py.decoding.budget import BudgetState
from akunu_py.decoding.stats import StatsRecorder
from akunu_py.drafting import NgramDrafter
from akunu_py.system.errors import ContractError
from akunu_py.testing import ToyTarget
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import Draft

EXACT = 1e-12
PROMPT = [9, 1]


def decoded_law(p, make_drafter, length, *, num_draft_tokens=3, make_budget=None, **options):
    """Return the law of `length` decoded tokens; `make_drafter` is given each run's branch."""

    def run(branch):
        target = ToyDistributions(PROMPT, p)
        drafter = make_drafter(branch)
        drafter.observe(PROMPT)
        tokens = []
        steps = decode_by_law(
            target, drafter, PROMPT[-1],
            num_draft_tokens=num_draft_tokens, max_tokens=length,
            budget=make_budget(target, drafter) if make_budget else None,
            rule=RejectionVerifier(branch, **options), position=len(PROMPT),
            clock=Clock(),
        )  # fmt: skip
        for step in steps:
            tokens += step.token_ids
        assert target.cache == [*PROMPT, *tokens][:-1]
        return tuple(tokens)

    return enumerate_law(run)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self):
        self.now += 0.01
        return self.now


def bias(p, make_drafter, length, **options):
    found = decoded_law(p, make_drafter, length, **options)
    assert abs(sum(found.values()) - 1) < EXACT
    return distance(found, plain_law(p, PROMPT, length))


def constant(*row):
    return lambda _: np.array(row)


def sampled(q, length, goes_on=None):
    return lambda branch: SampledToyDrafter(q, branch.choose, length, goes_on)


@pytest.mark.fast_every(2)
@pytest.mark.parametrize(
    ("vocabulary", "drafted", "length"),
    [(2, 0, 3), (2, 1, 4), (2, 2, 4), (2, 3, 4), (3, 1, 3), (3, 2, 3), (4, 1, 2), (4, 2, 3)],
)
def test_runs_of_several_steps_follow_the_target(vocabulary, drafted, length):
    p, q = hashed_law(vocabulary, 1), hashed_law(vocabulary, 2)
    assert bias(p, sampled(q, drafted), length) < EXACT


def test_a_length_that_depends_on_history_and_q_keeps_the_law():
    p, q = hashed_law(3, 5), hashed_law(3, 6)

    def goes_on(context, row):
        return len(context) % 3 != 0 and row.max() < 0.7 and context[-1] != 2

    lengths = {
        goes_on((*PROMPT, *more), q((*PROMPT, *more)))
        for n in range(3)
        for more in itertools.product(range(3), repeat=n)
    }
    assert lengths == {True, False}
    assert bias(p, sampled(q, 3, goes_on), 3) < EXACT


def test_drafters_that_draw_nothing_keep_the_law():
    p = hashed_law(2, 3)
    assert bias(p, lambda _: NgramDrafter(), 4) < EXACT
    tree = Draft((0, 1, 0, 1, 0, 1), (-1, -1, 0, 0, 1, 2))
    assert bias(p, lambda _: ScriptedDrafter([tree, [1, 0], tree]), 4, num_draft_tokens=6) < EXACT


class MergedTrees:
    """Two chains of two tokens drawn from q and merged: a tree with counts."""

    def __init__(self, q, pick):
        self.q, self.pick, self.observed = q, pick, []

    def observe(self, tokens):
        self.observed += tokens

    def propose(self, limit):
        # No node is left out: a tree cut after it was drawn would bias.
        depth, chains = min(2, limit), 2
        if depth * chains > limit:
            depth, chains = limit, 1
        nodes, self.rows, self.counts = [], [], []
        for _ in range(chains):
            parent, context = -1, list(self.observed)
            for _ in range(depth):
                row = self.q(tuple(context))
                token = self.pick(row)
                context.append(token)
                if (token, parent) not in nodes:
                    nodes.append((token, parent))
                    self.rows.append(row)
                    self.counts.append(0)
                parent = nodes.index((token, parent))
                self.counts[parent] += 1
        return Draft(tuple(t for t, _ in nodes), tuple(p for _, p in nodes), "merged")

    def draft_probabilities(self):
        return np.stack(self.rows)

    def draw_counts(self):
        return self.counts


def test_merged_trees_keep_the_law_over_a_run():
    p, q = hashed_law(2, 21), hashed_law(2, 22)
    made = lambda branch: MergedTrees(q, branch.choose)  # noqa: E731
    assert bias(p, made, 4, num_draft_tokens=4) < EXACT


# What breaks the law must be seen to.


class DropsUnlikely(SampledToyDrafter):
    """Leaves out a token that was unlikely, once it was drawn."""

    def propose(self, limit):
        draft = super().propose(limit)
        for place, token in enumerate(draft.tokens):
            if self._rows[place][token] < 0.4:
                self._rows = self._rows[:place]
                return draft.first(place)
        return draft


def test_a_length_that_depends_on_the_token_drawn_there_biases():
    p, q = constant(0.5, 0.3, 0.2), constant(0.2, 0.3, 0.5)
    assert bias(p, sampled(q, 2), 3) < EXACT
    assert bias(p, lambda branch: DropsUnlikely(q, branch.choose, 1), 2) > 1e-3
    assert bias(p, lambda branch: DropsUnlikely(q, branch.choose, 2), 3) > 1e-3


class LooksAhead(SampledToyDrafter):
    """Leaves out a token for what q says after it: that depends on the token."""

    def propose(self, limit):
        draft = super().propose(limit)
        if draft.tokens and self.law((*self.observed, draft.tokens[0])).max() > 0.6:
            self._rows = []
            return Draft.empty()
        return draft


def test_a_length_that_depends_on_q_behind_the_token_biases():
    rows = [np.array([0.4, 0.3, 0.3]), np.array([0.05, 0.05, 0.9])]
    p, q = constant(0.5, 0.3, 0.2), lambda context: rows[context[-1] == 2]
    assert bias(p, sampled(q, 1), 2) < EXACT
    assert bias(p, lambda branch: LooksAhead(q, branch.choose, 1), 2) > 1e-3


class Remembers(SampledToyDrafter):
    """Drafts no further where the last draft, rejected or not, was sure of its second place.

    With `stale` noise a position's draw is the same in every draft; else each draft draws afresh.
    """

    def __init__(self, law, branch, *, stale):
        super().__init__(law, self.draw, 2)
        self.branch, self.stale = branch, stale
        self.noise = {}
        self.sure = False

    def draw(self, row):
        place = len(self.observed) + len(self._rows) - 1
        key = place if self.stale else (place, len(self.observed))
        # One of eight values decides the draw, as a uniform number would.
        if key not in self.noise:
            self.noise[key] = self.branch.choose([1 / 8] * 8)
        return int(np.searchsorted(np.cumsum(row), (self.noise[key] + 0.5) / 8, side="right"))

    def propose(self, limit):
        self.length = 0 if self.sure else 2
        draft = super().propose(limit)
        self.sure = len(draft) == 2 and draft.tokens[1] == 0
        return draft


@pytest.mark.fast_every(2)
@pytest.mark.parametrize("stale", [True, False])
def test_noise_that_drew_a_discarded_token_is_not_used_again(stale):
    """A memory of discarded tokens is harmless with fresh noise, and biases with the same."""
    rows = {0: np.array([2, 6]) / 8, 1: np.array([4, 4]) / 8}
    p, q = hashed_law(2, 1), lambda context: rows[context[-1] % 2]
    # Exact multiples of 1/8, so that eight values of noise draw from q exactly.
    found = bias(p, lambda branch: Remembers(q, branch, stale=stale), 3, num_draft_tokens=2)
    assert (found > 1e-3) == stale
    assert stale or found < EXACT


def test_without_the_residual_a_run_is_biased():
    p, q = hashed_law(3, 5), hashed_law(3, 6)
    assert bias(p, sampled(q, 2), 3, adjust=False) > 1e-3
    assert bias(p, sampled(q, 2), 3, lenience=0.5) > 1e-3


# Budget and statistics.


class Planned(DrawnBudget):
    """A budget past its first steps, over given costs; `planned` is what it decided."""

    def __init__(self, target, drafter, cost=0.1):
        state = BudgetState(CostCurve({1: 1.0, 2: 1.0 + cost}))
        state.costs_alone.learn(len(PROMPT), [0.02] * 5, {})
        super().__init__(state, context=len(PROMPT), target=target, drafter=drafter)
        self.planned = []

    def limit(self, most):
        self.planned.append(super().limit(most))
        return self.planned[-1]


class Confident(SampledToyDrafter):
    """Says how likely each token was: a budget that cut by it would bias."""

    def propose(self, limit):
        draft = super().propose(limit)
        likely = tuple(float(row[t]) for row, t in zip(self._rows, draft.tokens, strict=True))
        return Draft.chain(draft.tokens, "sampled", 0, likely)


def test_a_budget_keeps_the_law():
    p, q = hashed_law(2, 5), hashed_law(2, 6)
    made = []

    def budget(*reply):
        made.append(Planned(*reply, cost=0.3))
        return made[-1]

    assert bias(p, lambda branch: Confident(q, branch.choose, 3), 4, make_budget=budget) < EXACT
    sizes = {size for each in made for size in each.planned}
    assert len(sizes) > 1, "the budget never decided anything"


def test_cutting_a_draft_by_its_confidence_would_bias():
    """What `DrawnBudget` is there for: as if `Budget.trim` were asked."""

    def sure(draft):
        return sum(1 for _ in itertools.takewhile(lambda c: c > 0.5, draft.confidence))

    class Cuts(Planned):
        def limit(self, most):
            return most

        def trim(self, draft):
            return draft.first(sure(draft))

    class Cut(Confident):
        def propose(self, limit):
            draft = super().propose(limit)
            self._rows = self._rows[: sure(draft)]
            return draft

    p, q = constant(0.5, 0.5), constant(0.3, 0.7)
    assert bias(p, lambda branch: Cut(q, branch.choose, 2), 3, make_budget=Cuts) > 1e-3


def keyed_run(p, q, seed, *, count, length, budget=None, rule=None):
    rng = np.random.default_rng(seed)
    target = ToyDistributions(PROMPT, p)
    drafter = SampledToyDrafter(q, lambda row: int(rng.choice(len(row), p=row)), length)
    drafter.observe(PROMPT)
    return list(
        decode_by_law(
            target, drafter, PROMPT[-1], num_draft_tokens=length, max_tokens=count, budget=budget,
            rule=rule or RejectionVerifier(KeyedChance(seed)), position=len(PROMPT),
        )
    )  # fmt: skip


def test_runs_can_be_repeated():
    p, q = hashed_law(5, 1), hashed_law(5, 2)
    first, again, other = (keyed_run(p, q, seed, count=60, length=3) for seed in (4, 4, 5))
    assert [step.token_ids for step in first] == [step.token_ids for step in again]
    assert [step.verification for step in first] == [step.verification for step in again]
    assert [step.token_ids for step in first] != [step.token_ids for step in other]


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.5, 0.8])
def test_measured_tokens_a_pass_are_the_formulas(alpha):
    """p and q that overlap by alpha at every position: the i.i.d. case of equation 1."""
    p = np.array([alpha, 1 - alpha, 0.0])
    q = np.array([alpha, 0.0, 1 - alpha])
    gamma, count = 4, 3_000
    steps = keyed_run(lambda _: p, lambda _: q, 3, count=count, length=gamma)[:-gamma]
    lengths = [len(step.token_ids) for step in steps]
    sigma = np.std(lengths) / math.sqrt(len(lengths))
    assert abs(np.mean(lengths) - expected_tokens(alpha, gamma)) < 4 * sigma
    recorder = StatsRecorder()
    for step in steps:
        recorder.add(step.stats)
        assert step.stats.num_tested_tokens == len(step.verification.trials)
        assert step.stats.kind == ("bonus" if step.verification.origin == "target" else "recovered")
    stats = recorder.stats
    assert abs(stats.alpha - alpha) < 4 * math.sqrt(alpha * (1 - alpha) / stats.tested)
    tokens = [token for step in steps for token in step.token_ids]
    assert abs(np.mean(np.array(tokens) == 0) - alpha) < 4 * math.sqrt(alpha * (1 - alpha) / len(tokens))  # fmt: skip
    assert 2 not in tokens


def test_positions_of_trials_count_from_the_prompt():
    p, q = hashed_law(4, 1), hashed_law(4, 2)
    position = len(PROMPT)
    for step in keyed_run(p, q, 1, count=30, length=3):
        places = [trial.position for trial in step.verification.trials]
        assert places == list(range(position, position + len(places)))
        position += len(step.token_ids)


def test_lenient_greedy_in_the_loop():
    """At lenience 1 greedy decoding; below, a drafted token close to the likeliest is taken."""
    p = hashed_law(6, 4)
    target = ToyDistributions(PROMPT, p)
    plain = target.plain(PROMPT, 20)
    runs = {
        lenience: [
            token
            for step in keyed_run(p, p, 2, count=20, length=3, rule=LenientGreedyVerifier(lenience))
            for token in step.token_ids
        ]
        for lenience in (1.0, 0.2)
    }  # fmt: skip
    assert all(p((*PROMPT, *runs[1.0][:i]))[t] == p((*PROMPT, *runs[1.0][:i])).max() for i, t in enumerate(runs[1.0]))  # fmt: skip
    assert runs[0.2] != plain
    assert all(p((*PROMPT, *runs[0.2][:i]))[t] >= 0.2 * p((*PROMPT, *runs[0.2][:i])).max() for i, t in enumerate(runs[0.2]))  # fmt: skip


def test_a_verifier_that_needs_no_q_asks_for_none():
    class Coupled(SampledToyDrafter):
        def draft_probabilities(self):
            raise ContractError("drawn with the target's noise")

    p = hashed_law(4, 4)
    runs = []
    for verifier in (LenientGreedyVerifier(0.5), RejectionVerifier(KeyedChance(1))):
        drafter = Coupled(p, lambda row: int(row.argmax()), 2)
        drafter.observe(PROMPT)
        runs.append(
            decode_by_law(
                ToyDistributions(PROMPT, p), drafter, PROMPT[-1], num_draft_tokens=2,
                max_tokens=6, rule=verifier,
            )
        )  # fmt: skip
    assert sum(len(step.token_ids) for step in runs[0]) == 6
    with pytest.raises(ContractError, match="target's noise"):
        next(runs[1])


def test_a_target_that_only_chooses_is_named():
    rule = RejectionVerifier(KeyedChance(1))
    with pytest.raises(ContractError, match="'rejection' needs a target with distributions"):
        decode_by_law(
            ToyTarget(PROMPT), NgramDrafter(), 1, num_draft_tokens=2, max_tokens=3, rule=rule
        )
