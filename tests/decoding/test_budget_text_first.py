"""`auto` with a model to ask, under a budget: never behind `auto` alone, nor far behind the model.

The target is simulated: it has a clock, and the model is right with a known probability and takes a
known time for each token.
"""

import random

import pytest
from budget_simulation import PLAIN_S, SimulatedTarget
from flight import UNIT_S, FlightBudget, known_state, observe, step

from akunu_py.decoding.acceptance import Acceptance
from akunu_py.decoding.budget import Budget, BudgetState
from akunu_py.decoding.drafter_time import DrawingState
from akunu_py.decoding.loop import decode
from akunu_py.drafting import AutoDrafter, AutoState
from akunu_py.drafting.draft_model import DraftModelDrafter, DrawnToken
from akunu_py.drafting.prediction_head import PredictionHeadDrafter
from akunu_py.drafting.text_first import TextFirstDrafter
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import Draft, GenerationConfig

FLAT = CostCurve({1: 1.0, 2: 1.05, 21: 2.0})
STEEP = CostCurve({1: 1.0, 3: 1.115, 5: 1.45, 9: 2.2})


COPY = Draft.chain([1, 2, 3], "auto", 9, (0.95, 0.95, 0.95), ("prompt",) * 3)


def rule_with(a_token, name="auto"):
    """Return a budget that knows the costs of passes, and of a model that is mostly right."""
    state = known_state({2: 1.02, 9: 1.1})
    for _ in range(60):
        state.acceptance.observe(Draft.chain([1] * 4, name, 0, (0.9,) * 4, drawn=4), [1] * 4)
    state.drawing[name] = DrawingState()
    state.drawing[name].times.tokens.append(a_token)
    budget = FlightBudget(state, name=name)
    assert budget.limit(9) == 9
    return budget


def rule_without_trials(a_token):
    """The same of a model whose account is too low for a token that does not pay."""
    budget = rule_with(a_token)
    budget.drawing.account.add_draft(0.0, 1.9)
    return budget


def test_passes_over_a_copy_are_part_of_the_price():
    assert rule_with(0.2).pays(COPY, (), room=1)
    assert not rule_with(0.2).pays(COPY, (), room=1, passes=4)
    # They are paid once.
    drawn = [DrawnToken(5, 0.9, 0.5)]
    assert rule_with(0.2).pays(COPY, drawn, room=1)
    assert not rule_with(0.9).pays(COPY, drawn, room=1)
    assert not rule_with(0.0).pays(COPY, (), room=0)


def test_a_pass_that_guesses_a_block_is_paid_once():
    nothing, drawn = Draft.empty(), [DrawnToken(5, 0.9, 0.5)]
    # A token brings less than a pass costs, and four bring more.
    assert not rule_without_trials(1.5).pays(nothing, (), room=4)
    assert rule_without_trials(1.5).pays(nothing, (), room=4, further=0)
    assert not rule_without_trials(1.5).pays(nothing, (), room=1, further=0)
    assert rule_without_trials(1.5).pays(nothing, drawn, room=3, passes=0, further=0)
    vague = Draft.chain([1], "auto", 1, (0.05,))
    assert not rule_without_trials(1.5).draws_instead(vague, room=4)
    assert rule_without_trials(1.5).draws_instead(vague, room=4, further=0)


def test_a_models_time_is_counted_by_the_pass():
    budget = rule_with(0.02)
    assert budget.pays(COPY, (), room=1, passes=4)
    budget.trim(Draft.chain([1, 2, 3, 4], "auto", 9, (0.95,) * 4, drawn=1))
    observe(budget, step(4, 4, UNIT_S, propose_s=0.4 * UNIT_S), (1, 2, 3, 4, 5))
    assert list(budget.state.drawing["auto"].times.tokens) == pytest.approx([0.02, 0.1])
    assert not budget.state.times["auto"].tokens


def test_the_step_in_flight_is_not_part_of_a_models_time():
    budget = rule_with(0.02)
    target = budget.flight
    target.in_flight, target.waits_s = True, 0.7 * UNIT_S
    assert budget.pays(COPY, (), room=2)
    assert budget.pays(COPY, [DrawnToken(4, 0.9, 0.5)], room=1)
    budget.trim(Draft.chain([1, 2, 3, 4, 5], "auto", 9, (0.95,) * 5, drawn=2))
    observe(budget, step(5, 5, UNIT_S, propose_s=0.9 * UNIT_S), (1, 2, 3, 4, 5, 6))
    assert list(budget.state.drawing["auto"].times.tokens) == pytest.approx([0.02, 0.1])
    # The next step did not wait.
    budget.limit(9)
    budget.trim(Draft.chain([7], "auto", 9, (0.95,)))
    observe(budget, step(1, 1, UNIT_S, propose_s=0.2 * UNIT_S), (7, 8))
    assert list(budget.state.times["auto"].tokens) == pytest.approx([0.2])


@pytest.mark.parametrize(("a_token", "draws"), [(0.05, True), (5.0, False)])
def test_no_step_is_queued_where_a_model_is_expected_to_draw(a_token, draws):
    budget = rule_with(a_token)
    target = budget.flight
    assert target.look_ahead
    observe(budget, step(0, 0, UNIT_S), (1,))
    assert target.look_ahead  # no model was asked yet
    assert target.in_flight
    budget.pays(Draft.empty(), (), room=4)
    budget.trim(Draft.empty())
    observe(budget, step(0, 0, UNIT_S), (1,))
    assert target.look_ahead != draws
    prepaid = budget.costs.prepaid
    for _ in range(3):
        budget.limit(9)
        budget.trim(Draft.empty())
        observe(budget, step(0, 0, 1.3 * UNIT_S), (1,))
    # Without a queued step these are not like the steps that the unit is measured by.
    assert target.in_flight != draws
    assert budget.costs.prepaid == prepaid
    assert budget.costs.plain_s == pytest.approx(UNIT_S if draws else 1.3 * UNIT_S)


def test_a_step_is_queued_while_the_drafter_pauses():
    budget = rule_with(0.05)
    budget.pays(Draft.empty(), (), room=4)
    # It takes 0.02 of a step and brings nothing: at most 2 steps of pause, after a pause of 1.
    budget.drafter_time.add(0.02, 1, drafted=True)
    for _ in range(2):
        budget.drafter_time.pace(-10.0, 1.0)
    for queued in (True, True, False):
        observe(budget, step(0, 0, UNIT_S), (1,))
        assert budget.flight.look_ahead == queued
        budget.limit(9)


def test_a_step_that_queues_nothing_is_shorter_by_what_was_prepaid(monkeypatch):
    budget = rule_with(0.05)
    for _ in range(5):
        budget.costs.add_restart(1.4 * UNIT_S)
    due = []
    monkeypatch.setattr(budget.saved, "add", lambda cost, *_times, **_kinds: due.append(cost))
    for in_flight in (True, False):
        budget.flight.look_ahead, budget.flight.in_flight = False, in_flight
        budget.trim(Draft.empty())
        observe(budget, step(0, 0, UNIT_S), (1,))
    assert due == pytest.approx([0.6, 1.0])


def test_drawn_tokens_have_a_record_of_their_own():
    acceptance = Acceptance()
    mixed = Draft.chain([1] * 5, "auto", 30, (0.9,) * 5, drawn=2)
    before = acceptance.probabilities(mixed)
    for _ in range(60):
        # The copies are right, and the first drawn token is wrong.
        acceptance.recent = 0.5
        acceptance.observe(mixed, [1, 1, 1, 9])
    acceptance.recent = 0.5
    after = acceptance.probabilities(mixed)
    assert min(after[:3]) > 0.9
    assert after[3] < 0.1
    # A copy without a match, such as behind a new token, is a copy all the same.
    assert acceptance.probabilities(Draft.chain([1], "auto", 0, (0.9,)))[0] > 0.5
    # So has the place in the drawn part: this is the first token of a drawn draft.
    alone = Draft.chain([1], "auto", 0, (0.9,), drawn=1)
    assert acceptance.probabilities(alone)[0] == pytest.approx(after[3])
    copied = Draft.chain([1] * 5, "auto", 30, (0.9,) * 5)
    assert acceptance.probabilities(copied)[3] > before[3] - 0.05
    assert acceptance.probabilities(Draft.chain([1], "auto", 0, (-1.0,), drawn=1))[0] < 0.1


def test_the_beginning_of_a_draft_has_fewer_drawn_tokens():
    mixed = Draft.chain([1] * 5, "auto", drawn=2)
    assert [mixed.first(size).drawn for size in range(7)] == [0, 0, 0, 0, 1, 2, 2]


class SimulatedModel:
    """Draws the target's next tokens, each right with a probability, for `own` plain steps a pass.

    It knows how likely it is right. After a wrong token it is always wrong. A pass guesses `at_once`
    tokens, with those that the draft begins after.
    """

    hidden = "normed"

    def __init__(self, target, alpha, own, seed=3, *, pass_a_token=False, at_once=1):
        self.target, self.alpha, self.own, self.at_once = target, alpha, own, at_once
        self.pass_a_token = pass_a_token and at_once == 1
        self.rng = random.Random(seed)
        self.drawn = 0

    def beginning(self, prompt, sampling):
        yield

    def extend(self, tokens):
        pass

    def begin_states(self, prompt, held):
        pass

    def observe_states(self, states, start, end):
        pass

    def draw(self, limit, goes_on=None, guess=None, *, after=()):
        if self.at_once > 1:
            limit = min(limit, self.at_once - len(after))
        if limit <= 0 or not goes_on(()):
            return []
        start = self.target.position + len(after)
        right = tuple(after) == tuple(self.target.text[self.target.position : start])
        if self.pass_a_token:
            self.target.now += PLAIN_S * self.own * len(after)
        drawn = []
        while True:
            odds = min(0.99, max(0.01, self.rng.gauss(self.alpha, 0.15)))
            right = right and self.rng.random() < odds
            token = self.target.text[start + len(drawn)] if right else -1
            drawn.append(DrawnToken(token, odds, 0.5))
            if self.at_once == 1 or len(drawn) == 1:
                self.target.now += PLAIN_S * self.own
            self.drawn += 1
            if len(drawn) == limit or not goes_on(drawn):
                return drawn


def vague(rng, count):
    """Return text whose next token copies guess about half of the time."""
    found = [rng.randrange(40)]
    while len(found) < count:
        found.append((found[-1] * 7 + rng.choice((1, 1, 1, 2, 2, 3))) % 40)
    return [token + 100_000 for token in found]


def text_of(rng, copied, vaguely, count=12):
    """Return a prompt and a reply that copies its paragraphs, says something new, or is vague."""
    prompt = [*(rng.randrange(4000) for _ in range(600)), *vague(rng, 600)]
    reply = []
    for _ in range(count):
        kind = rng.random()
        if kind < copied:
            start = rng.randrange(500)
            reply += prompt[start : start + 60]
        elif kind < copied + vaguely:
            reply += vague(rng, 60)
        else:
            reply += [rng.randrange(4000, 90000) for _ in range(60)]
    return prompt, reply


def cost_of(arm, curve, *, copied, alpha, own, vaguely=0.0, kind=DraftModelDrafter, at_once=1):
    """Return plain steps a token over three replies, and the number of drawn tokens a token."""
    state, learned = BudgetState(), AutoState()
    costs = {rows: curve.cost(rows) + 0.05 for rows in range(2, 34)}
    state.costs.remember(dict.fromkeys(range(3), costs))
    rng = random.Random(7)
    spent = tokens = drawn = 0
    for number in range(3):
        prompt, reply = text_of(rng, copied, vaguely)
        target = SimulatedTarget([*prompt, *reply, *[0] * 40], curve, seed=number)
        target.position = len(prompt)
        model = SimulatedModel(
            target, alpha, own, pass_a_token=kind is PredictionHeadDrafter, at_once=at_once
        )
        drafter = AutoDrafter(state=learned) if arm != "model" else kind(model)
        if arm == "both":
            drafter = TextFirstDrafter(drafter, kind(model))
        if arm != "text":
            drafter.begin_reply(GenerationConfig(), number)
        drafter.observe(prompt)
        budget = Budget(state, context=len(prompt), target=target, drafter=drafter)
        for _ in decode(
            target, drafter, prompt[-1], num_draft_tokens=32, max_tokens=len(reply), budget=budget,
            clock=target.clock,
        ):  # fmt: skip
            pass
        spent += target.now / PLAIN_S
        tokens += len(reply)
        drawn += model.drawn
    return spent / tokens, drawn / tokens


HEAD = PredictionHeadDrafter


@pytest.mark.fast_every(3)
@pytest.mark.parametrize("kind", [DraftModelDrafter, HEAD])
@pytest.mark.parametrize("curve", [FLAT, STEEP], ids=["flat", "steep"])
def test_mixed_text_is_faster_than_with_either(curve, kind):
    """Half of the text is copied, and the model is often right about the rest."""
    setting = {"copied": 0.5, "alpha": 0.75, "own": 0.08, "kind": kind}
    both, drawn = cost_of("both", curve, **setting)
    faster = min(cost_of(arm, curve, **setting)[0] for arm in ("text", "model"))
    print(f"{both / faster:.2f} of the time of the faster one alone")
    assert both < 0.85 * faster
    assert drawn > 0.3


@pytest.mark.fast_every(2)
@pytest.mark.parametrize("kind", [DraftModelDrafter, HEAD])
def test_a_useless_model_costs_next_to_nothing(kind):
    for copied in (0.0, 0.6):
        setting = {"copied": copied, "alpha": 0.15, "own": 0.3, "kind": kind}
        both, drawn = cost_of("both", STEEP, **setting)
        assert both < 1.02 * cost_of("text", STEEP, **setting)[0]
        assert drawn < 0.05


def test_new_text_is_as_fast_as_with_the_model_alone():
    setting = {"copied": 0.0, "alpha": 0.8, "own": 0.05}
    assert cost_of("both", FLAT, **setting)[0] < 1.05 * cost_of("model", FLAT, **setting)[0]


@pytest.mark.parametrize("copied", [0.0, 0.5])
def test_blocks_are_drafted_as_far_as_their_rows_pay(copied):
    """A pass of the head is expensive for a token, and cheap for a block."""
    setting = {"copied": copied, "alpha": 0.8, "own": 0.5, "kind": HEAD}
    blocks, drawn = cost_of("both", FLAT, **setting, at_once=15)
    tokens, fewer = cost_of("both", FLAT, **setting)
    assert blocks < 0.8 * tokens
    assert drawn > 2 * fewer


def test_useless_blocks_cost_next_to_nothing():
    setting = {"copied": 0.0, "alpha": 0.15, "own": 0.5, "kind": HEAD}
    blocks, _ = cost_of("both", STEEP, **setting, at_once=15)
    assert blocks < 1.02 * cost_of("text", STEEP, **setting)[0]


@pytest.mark.parametrize("curve", [FLAT, STEEP], ids=["flat", "steep"])
def test_a_middling_head_is_not_kept_from_drawing_by_steps_in_flight(curve):
    """Behind a step in flight a draft needs two right tokens to pay, otherwise one."""
    setting = {"copied": 0.0, "alpha": 0.4, "own": 0.1, "kind": HEAD}
    assert cost_of("both", curve, **setting)[0] < 0.88 * cost_of("text", curve, **setting)[0]


@pytest.mark.parametrize("curve", [FLAT, STEEP], ids=["flat", "steep"])
@pytest.mark.parametrize(("alpha", "own", "at_most"), [(0.6, 0.1, 0.78), (0.45, 0.2, 0.95)])
def test_copies_elsewhere_do_not_cheapen_drawn_tokens(alpha, own, at_most, curve):
    """Half of the text is copied: over all steps a token is worth half as much as where it is new."""
    setting = {"copied": 0.5, "alpha": alpha, "own": own, "kind": HEAD}
    both, _ = cost_of("both", curve, **setting)
    assert both < at_most * cost_of("text", curve, **setting)[0]


@pytest.mark.fast_every(2)
@pytest.mark.parametrize("kind", [DraftModelDrafter, HEAD])
def test_a_good_model_is_preferred_to_vague_copies(kind):
    setting = {"copied": 0.0, "vaguely": 1.0, "alpha": 0.85, "own": 0.1, "kind": kind}
    both, _ = cost_of("both", FLAT, **setting)
    assert both < 0.75 * cost_of("text", FLAT, **setting)[0]
    assert both < 1.05 * cost_of("model", FLAT, **setting)[0]


def test_vague_copies_are_preferred_to_a_worse_model():
    setting = {"copied": 0.0, "vaguely": 1.0, "alpha": 0.3, "own": 0.2}
    assert cost_of("both", STEEP, **setting)[0] < 1.03 * cost_of("text", STEEP, **setting)[0]
