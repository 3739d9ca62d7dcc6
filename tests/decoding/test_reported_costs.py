"""What a Mac's first replies cost beside replies that knew its passes: curves that others reported."""

import json
import random
import re
from dataclasses import dataclass

import mlx.core as mx
import pytest
from budget_simulation import PLAIN_S, SimulatedTarget
from shared_files import SHARED

from akunu_py.decoding.budget import Budget, BudgetState
from akunu_py.decoding.loop import decode
from akunu_py.drafting.auto import AutoDrafter
from akunu_py.models import budget_memory
from akunu_py.models.metal_costs import reported_costs
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import Draft

# The chip whose prior a reply begins with, and what passes cost there. The fifth and sixth are
# whole passes of mlx-dspark with MLX's product and with its own. What nobody reported is BEYOND.
BEYOND = {32: 6.4, 33: 12.6, 64: 12.8}
REPORTED = {
    "M3 Ultra": ("Apple M3 Ultra", {1: 1.0, 2: 1.83, 4: 3.26, 8: 6.1, 16: 6.32, **BEYOND}),
    "M3 Max": ("Apple M3 Max", {1: 1.0, 2: 1.0, 4: 1.28, 8: 2.5, 10: 3.9, 32: 3.9, 33: 7.8, 64: 7.8}),
    "M4 Pro": ("Apple M4 Pro", {1: 1.0, 2: 1.03, 4: 1.47, 8: 2.69, 10: 4.5, 32: 4.5, **BEYOND}),
    "M5 Max": ("Apple M5 Max", {1: 1.0, 3: 1.11, 5: 1.45, 8: 2.2, 12: 3.2}),
    "M4 Pro, 27B": ("Apple M4 Pro", {1: 1.0, 5: 1.66, 8: 1.66, 9: 3.15, 16: 4.06, **BEYOND}),
    "M4 Pro, few rows": ("Apple M4 Pro", {1: 1.0, 5: 1.41, 8: 1.41, 9: 2.43, 16: 2.43, **BEYOND}),
}  # fmt: skip
PASSES, TOKENS = 64, 600
LOST = 0.05  # of a simulated pass that nothing overlapped


def known(curve):
    """A state that knows what passes cost."""
    state = BudgetState(curve)
    state.costs.begin(1)
    for _ in range(5):
        state.costs.add_plain(PLAIN_S)
    state.costs.remember({0: {rows: curve.cost(rows) + LOST for rows in range(2, 66)}})
    return state


@dataclass
class FixedDrafter:
    """Drafts the text where it is `right`, whoever asks."""

    target: SimulatedTarget
    right: list[bool]

    def observe(self, tokens):
        pass

    def propose(self, limit):
        at, text = self.target.position, self.target.text
        places = range(at, min(at + min(limit, 24), len(text)))
        return Draft.chain([text[p] if self.right[p] else -1 for p in places], "simulated", 3)


def play(curve, state, text, make_drafter, prompt=1):
    """Yield the position and the cost so far after each pass."""
    target = SimulatedTarget(text, curve, lost=LOST, position=prompt)
    drafter = make_drafter(target)
    drafter.observe(text[:prompt])
    budget = Budget(state, context=prompt, target=target, drafter=drafter)
    left = len(text) - prompt - 70
    for _ in decode(
        target, drafter, text[prompt - 1], num_draft_tokens=48, max_tokens=left, budget=budget,
        clock=target.clock,
    ):  # fmt: skip
        yield target.position, target.nominal


def spent(steps, begin, end):
    """Cost between two positions, between passes by the share of their tokens."""

    def at(place):
        before = (steps[0][0], 0.0)
        for position, cost in steps:
            if position >= place:
                share = (place - before[0]) / max(1, position - before[0])
                return before[1] + share * (cost - before[1])
            before = (position, cost)
        return before[1]

    return at(end) - at(begin)


def compare(curve, prior, *text):
    """Costs of the first passes and of the tokens behind them: with the prior, and with knowledge.

    First the number of tokens of the first passes.
    """
    ours, known_ones = [], []
    for position, cost in play(curve, BudgetState(prior), *text):
        ours.append((position, cost))
        if len(ours) >= PASSES and position >= ours[PASSES - 1][0] + TOKENS:
            break
    begin, middle, end = ours[0][0], ours[min(PASSES, len(ours)) - 1][0], ours[-1][0]
    for position, cost in play(curve, known(curve), *text):
        known_ones.append((position, cost))
        if position >= end:
            break
    return [
        middle - begin,
        *(
            spent(steps, *places)
            for places in ((begin, middle), (middle, end))
            for steps in (ours, known_ones)
        ),
    ]


def chance(kind, position):
    """How probably a draft is right: copies now and then, an edit, or always the same."""
    if kind == "copies":
        return 0.97 if position // 60 % 2 else 0.05
    if kind == "edit":
        return 0.97 if position % 80 > 12 else 0.3
    return kind


def simulated_texts(seeds):
    text = [index % 50 for index in range(3000)]
    for kind in ("copies", "edit", 0.3, 0.6, 0.9):
        for seed in seeds:
            rng = random.Random(seed)
            right = [rng.random() < chance(kind, place) for place in range(len(text))]
            yield text, lambda target, right=right: FixedDrafter(target, right)


def recorded_texts():
    """Outputs of others as words, which `auto` drafts."""
    for name in (
        "code_edit_canitedit_Qwen2.5-Coder-7B-Instruct", "agentic_swe_turns",
        "specbench_vicuna7b_chat",
    ):  # fmt: skip
        file = SHARED / "traces" / f"{name}.jsonl"
        if not file.is_file():
            pytest.skip("the recorded outputs are absent: they are not part of the project")
        lines = [json.loads(line) for line in file.read_text().splitlines()[:60]]
        for line in [one for one in lines if len(one["output"]) > 2500][:4]:
            prompt, output = (
                re.findall(r"\w+|\s+|\W", line[part]) for part in ("prompt", "output")
            )
            ids = {}
            text = [ids.setdefault(word, len(ids)) for word in [*prompt[-3000:], *output[:1500]]]
            yield text, lambda _target: AutoDrafter(), len(prompt[-3000:])


def regret(name, texts):
    """Share of time lost behind the first passes, and in them beside plain decoding."""
    chip, points = REPORTED[name]
    curve, prior = CostCurve(points), reported_costs(chip)
    plain, first, _, ours, best = (
        sum(part) for part in zip(*(compare(curve, prior, *text) for text in texts), strict=True)
    )
    return ours / best - 1, first / plain - 1


@pytest.mark.fast_every(6)
@pytest.mark.parametrize("name", REPORTED)
def test_behind_the_first_passes_at_most_three_percent_are_lost(name):
    lost, first = regret(name, simulated_texts(range(2)))
    assert lost <= 0.03
    assert first <= 0.03  # a curve that is too cheap loses more


@pytest.mark.slow
@pytest.mark.parametrize("name", REPORTED)
def test_recorded_outputs(name):
    lost, first = regret(name, recorded_texts())
    assert lost <= 0.03
    assert first <= 0


def test_what_a_mac_begins_with(monkeypatch):
    """A row is as dear as any reported where no kernel for few rows is known to be used."""
    dearest = reported_costs("Apple M3 Ultra").points
    for chip in ("Apple M1 Max", "Apple M2", "Apple Paravirtual device", ""):
        assert reported_costs(chip).points == dearest
    later = [reported_costs(f"Apple {chip}").points for chip in ("M5", "M6 Pro", "M12")]
    assert later == [REPORTED["M5 Max"][1]] * 3
    assert reported_costs("Apple M3").cost(8) == 2.5
    assert reported_costs("Apple M4").cost(8) == 2.2
    monkeypatch.setattr(budget_memory, "on_cpu", lambda: False)
    assert budget_memory._prior().cost(9) == pytest.approx(2.6)  # another maker's GPU
    monkeypatch.setattr(mx.metal, "is_available", lambda: True)
    monkeypatch.setattr(mx, "device_info", lambda: {"device_name": "Apple M4 Pro"})
    assert budget_memory._prior().cost(8) == 2.2


def test_a_step_of_kernels_is_known_by_one_of_its_sizes():
    """Eight rows cost what six do, though nine or more were found dear; else costs rise evenly."""
    steps = {1: 1.0, 5: 1.5, 8: 1.5, 9: 2.5, 16: 2.5}
    for curve, expected in ((CostCurve(steps, stepped=True), 1.6), (CostCurve(steps), 2.0)):
        state = BudgetState(curve)
        state.costs.remember({0: {6: 1.6, 10: 2.4}})
        assert state.costs.cost(1, 8) == pytest.approx(expected)
