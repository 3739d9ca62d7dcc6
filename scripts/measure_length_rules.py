"""What the budget's cut costs or brings behind `auto`, which chooses lengths itself.

    python scripts/measure_length_rules.py [CURVE]...

Replies made from the standard library (`drafter_examples`) are decoded by simulated targets, with curves
from gentle to steep: `auto` by its own rule with the true curve; behind a budget; behind one that cuts
nothing; behind one that takes the draft's confidences for the probabilities. Printed is how many times as
fast as plain decoding each is. Costs are known to the budgets beforehand, as after `akunu tune`.
"""

import random
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts"), str(ROOT / "tests" / "decoding")]

from budget_simulation import PLAIN_S, SimulatedTarget
from drafter_examples import make_examples

from akunu_py.decoding.budget import Budget, BudgetState
from akunu_py.decoding.loop import decode
from akunu_py.drafting import AutoDrafter, AutoState
from akunu_py.gguf import GGUFFile
from akunu_py.tokenizers import from_gguf
from akunu_py.values.cost_curve import CostCurve

CURVES = {
    "gentle": CostCurve({1: 1.0, 2: 1.05, 21: 2.0}),
    "m5": CostCurve({1: 1.0, 3: 1.115, 5: 1.45, 9: 2.2}),
    "m4": CostCurve({1: 1.0, 3: 1.13, 4: 1.43, 5: 1.75, 8: 2.84}, flat=(13, 32)),
    "moe": CostCurve({1: 1.0, 4: 3.12, 5: 3.82, 9: 6.13}),
    "steep": CostCurve({1: 1.0, 2: 1.62, 5: 3.63, 9: 6.27}),
}
SEED, ITEMS = 5, 80


class Uncut(Budget):
    def trim(self, draft, carrying=None):  # noqa: ARG002
        return draft


class _Confidences:
    """In the place of what was learned: what the drafter says."""

    recent = 0.5

    def probabilities(self, draft):
        return list(draft.confidence)

    def observe(self, draft, chosen):
        pass


class Trusting(Budget):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self._acceptance = _Confidences()


def replies():
    """Return (prompt, reply) in the shipped model's tokens, as many of each kind."""
    with GGUFFile.open(ROOT / "models" / "akunu-tiny.gguf") as file:
        tokenizer = from_gguf(file.metadata)
    by_kind = {}
    for example in make_examples(SEED, 0.15, held_out=True):
        if len(example.prompt) < 12000 and 60 < len(example.reply) < 3000:
            by_kind.setdefault(example.kind, []).append(example)
    rng = random.Random(SEED)
    chosen = [
        example
        for examples in by_kind.values()
        for example in rng.sample(examples, min(ITEMS // len(by_kind), len(examples)))
    ]
    rng.shuffle(chosen)
    return [(tokenizer.encode(e.prompt), tokenizer.encode(e.reply)) for e in chosen]


def speed(items, curve, rule):
    """Return plain decoding's time over that of `auto` under a rule, or under its own."""
    auto, state = AutoState(), BudgetState()
    costs = {rows: curve.cost(rows) for rows in range(2, 34)}
    state.costs.remember(dict.fromkeys(range(6), costs))
    tokens = spent = 0
    for number, (prompt, reply) in enumerate(items):
        target = SimulatedTarget([*prompt, *reply, 0], curve, seed=number)
        target.position = len(prompt)
        drafter = AutoDrafter(state=auto, curve=curve) if rule is None else AutoDrafter(state=auto)
        drafter.observe(prompt)
        budget = rule and rule(state, context=len(prompt), tell=drafter.use_curve)
        for _ in decode(
            target, drafter, prompt[-1], num_draft_tokens=32, max_tokens=len(reply), budget=budget,
            clock=target.clock,
        ):  # fmt: skip
            pass
        tokens += len(reply)
        spent += target.now / PLAIN_S
    return tokens / spent


def main(names):
    items = replies()
    print(f"{len(items)} replies, {sum(len(reply) for _, reply in items)} tokens")
    print(f"{'curve':8}{'own rule':>10}{'budget':>10}{'uncut':>10}{'trusting':>10}")
    for name in names or CURVES:
        figures = [speed(items, CURVES[name], rule) for rule in (None, Budget, Uncut, Trusting)]
        print(f"{name:8}" + "".join(f"{figure:10.3f}" for figure in figures), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
