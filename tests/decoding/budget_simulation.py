"""A target with a clock of its own, over a known text, curve and drafter: what a budget is held to."""

import random
from dataclasses import dataclass, field

from akunu_py.decoding.budget import Budget, BudgetState
from akunu_py.decoding.loop import decode
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import Draft, PassReport

PLAIN_S = 0.02


def never_an_outlier(_rng):
    return 1.0


@dataclass
class SimulatedTarget:
    """Chooses the tokens of a text; each pass moves its clock on by what the curve says.

    As `Session`: a plain step leaves a step in flight, a draft's first token is checked against it,
    and the pass that follows begins with that token's row. A pass that is not overlapped takes
    `lost` plain steps more. `nominal` is what all passes cost without noise and outliers.
    """

    text: list[int]
    curve: CostCurve
    noise: float = 0.03
    outlier: object = never_an_outlier
    lost: float = 0.05
    seed: int = 0
    now: float = 0.0
    position: int = 1
    pipelined: bool = True
    in_flight: bool = False
    look_ahead: bool = True
    rows: list[int] = field(default_factory=list)
    nominal: float = 0.0
    last_pass: PassReport | None = None

    def __post_init__(self):
        self.rng = random.Random(self.seed)

    def clock(self):
        return self.now

    def max_draft_tokens(self):
        return 64

    def wait_in_flight(self):
        return 0.0

    def spend(self, cost):
        factor = max(0.2, self.rng.gauss(1, self.noise)) * self.outlier(self.rng)
        self.now += PLAIN_S * cost * factor
        self.nominal += cost

    def choose(self, last, draft):
        assert last == self.text[self.position - 1]
        true = self.text[self.position : self.position + len(draft) + 1]
        was_in_flight, self.passed = self.in_flight, 0
        if not draft.tokens:
            self.plain_pass()
        elif not self.in_flight:
            self.pass_over(1 + len(draft))
        else:
            self.spend(1.0 + self.lost)
            if draft.tokens[0] == true[0]:
                self.pass_over(len(draft))
        self.last_pass = PassReport(self.passed, was_in_flight, self.in_flight)
        return true

    def plain_pass(self):
        if not self.in_flight:
            self.passed = 1
        queues = self.pipelined and self.look_ahead
        self.spend(1.0 if self.in_flight or not queues else 1.0 + self.lost)
        self.in_flight = queues

    def pass_over(self, rows):
        self.passed = rows
        self.rows.append(rows)
        self.spend(self.curve.cost(rows) + self.lost)
        self.in_flight = False

    def commit(self, accepted):
        self.position += len(accepted) + 1


@dataclass
class SimulatedDrafter:
    """Drafts `length` tokens of the text, each right with the probability that its place has.

    `rate(position)` is that probability; the drafter says `confidence` of each, or `told` of its
    place, or nothing. `takes_s` is what a draft costs, on the target's clock.
    """

    target: SimulatedTarget
    rate: object
    length: int = 8
    takes_s: float = 0.0
    seed: int = 1
    confidence: float | None = None
    told: object = None
    proposals: list[int] = field(default_factory=list)

    def __post_init__(self):
        self.rng = random.Random(self.seed)

    def observe(self, tokens):
        pass

    def propose(self, limit):
        start = self.target.position
        self.proposals.append(start)
        self.target.now += self.takes_s
        tokens = []
        for position in range(start, min(start + min(limit, self.length), len(self.target.text))):
            right = self.rng.random() < self.rate(position)
            tokens.append(self.target.text[position] if right else -1)
        known = () if self.confidence is None else (self.confidence,) * len(tokens)
        if self.told is not None:
            known = tuple(self.told(position) for position in range(start, start + len(tokens)))
        return Draft.chain(tokens, "simulated", 3, known)


def simulate(
    curve, rate, *, tokens=1500, state=None, budget="auto", length=8, limit=64, takes_s=0.0,
    confidence=None, told=None, pipelined=True, kind=SimulatedTarget, **target_options,
):  # fmt: skip
    """Return what decoding cost a token, in plain steps, with its target, drafter, steps and budget.

    `budget` "auto" decides; None verifies all; a number is a fixed size.
    `kind` is the class of the target.
    """
    text = [index % 50 for index in range(tokens + 80)]
    target = kind(text, curve, pipelined=pipelined, **target_options)
    drafter = SimulatedDrafter(target, rate, length, takes_s, confidence=confidence, told=told)
    rule = None
    if budget == "auto":
        rule = Budget(state or BudgetState(), context=1, target=target)
    elif isinstance(budget, int):
        limit = budget
    steps = list(
        decode(
            target, drafter, text[0], num_draft_tokens=limit, max_tokens=tokens, budget=rule,
            clock=target.clock,
        )
    )  # fmt: skip
    assert [token for step in steps for token in step.token_ids] == text[1 : 1 + tokens]
    return target.now / PLAIN_S / tokens, target, drafter, steps, rule
