"""A target that only says what its passes were, as `Session` would: for tests of a budget alone."""

from akunu_py.decoding.budget import Budget, BudgetState
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import PassReport, StepStats

UNIT_S = 0.02


class Flight:
    """A target without a model."""

    def __init__(self, *, pipelined=True):
        self.pipelined = pipelined
        self.in_flight = False
        self.look_ahead = True
        self.last_pass = PassReport(0)
        self.waits_s = 0.0

    def wait_in_flight(self):
        return self.waits_s if self.in_flight else 0.0

    def ran(self, stats):
        """Run the pass of a step."""
        was, drafted = self.in_flight, stats.num_draft_tokens
        refused = not stats.num_accepted_tokens and stats.num_tested_tokens
        rows = 1 + drafted
        if was:
            rows = 0 if refused else drafted
        if not drafted:
            self.in_flight = self.pipelined and self.look_ahead
        elif rows:
            self.in_flight = False
        self.last_pass = PassReport(rows, was, self.in_flight)


class FlightBudget(Budget):
    """A budget over a `Flight`, with what tests set and read of its inside."""

    def __init__(self, state, *, context=10, target=None, **options):
        self.flight = target or Flight()
        super().__init__(state, context=context, target=self.flight, **options)
        self.state = state
        self.costs, self.drawing, self.drafter_time = self._costs, self._drawing, self._drafter
        self.acceptance = self._acceptance

    @property
    def allowance(self):
        """Plain steps that drafts may still lose to learn something."""
        return self._allowance

    @allowance.setter
    def allowance(self, steps):
        self._allowance = steps

    def forget_draft(self):
        """Compare no output with the draft that was not verified."""
        self._shadow = None

    def worth(self, everywhere, elsewhere=1.0):
        """Set lambda over all steps, and over those without copies."""
        for rate, value in ((self._rate, everywhere), (self._drawing.rate, elsewhere)):
            for _ in range(2000):
                rate.add(value, 1.0)


def budget_of(state, *, pipelined=True):
    """A budget over a new `Flight`."""
    return FlightBudget(state, target=Flight(pipelined=pipelined))


def balance_of(account):
    """What the account of a model holds, in tokens: the least loss that it does not cover."""
    low, high = -100.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if account.covers(middle) else (low, middle)
    return low


def observe(budget, stats, output):
    """Run a step's pass and tell the budget."""
    budget.flight.ran(stats)
    budget.observe(stats, output)


def step(drafted, accepted, target_s, *, rejected=None, propose_s=0.0):
    rejected = accepted < drafted if rejected is None else rejected
    return StepStats(
        source="test", num_draft_tokens=drafted, num_tested_tokens=accepted + rejected,
        num_accepted_tokens=accepted, num_output_tokens=accepted + 1,
        kind="recovered" if rejected else "bonus", propose_s=propose_s, target_s=target_s,
        commit_s=0.0,
    )  # fmt: skip


def known_state(points, *, context=10):
    """A state that knows costs by rows, and the speed of the machine."""
    state = BudgetState(CostCurve({1: 1.0, 65: 65.0}))
    state.costs.begin(context)
    state.costs_alone.begin(context)
    for costs in (state.costs, state.costs_alone):
        for _ in range(5):
            costs.add_plain(UNIT_S)
        costs.remember({0: points})
    return state
