"""The draft budget: how many tokens to draft, as many as pay on this machine, often none.

A draft is cut to the n tokens that maximise E[tokens | n] - lambda cost(n). lambda is the running
ratio of tokens to cost: the tokens that the same time would bring elsewhere. This rule gives the
best ratio in the long run (renewal reward; theorem 3.8 of Leviathan et al. 2023 is the case of
constant acceptance, C = 1 and the optimal lambda). The unit of cost is a plain step with the next
one in flight, which is the cost of n = 0.

The budget decides how much is drafted, never what is chosen, so it cannot change a token.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from akunu_py.decoding.acceptance import Acceptance
from akunu_py.decoding.drafter_time import (
    STEP_CREDIT,
    DrafterTime,
    DrafterTimes,
    Drawing,
    DrawingState,
    RunningRate,
)
from akunu_py.decoding.pass_costs import DEFAULT_PRIOR, PassCosts, TimeSaved
from akunu_py.decoding.shared_passes import Company, Offer, SharedCosts, SharedPasses
from akunu_py.protocols import Drafter, RatedToken, Target, as_target
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.decode_stats import StepStats
from akunu_py.values.types import Draft, PassReport, TreePrices

_LEAST_GAIN = 0.02
"""Least gain of a draft, in tokens, so that a tie goes to the plain step."""

_OUTLIER = 4.0
"""Most that a stalled step counts for lambda, in multiples of its expected cost."""

_PROBE_SHARE = 0.005
_PROBE_START = 1.0
_PROBE_MOST = 4.0
"""Budget for exploratory drafts, in plain steps: 0.5 % of all steps, at most 4 saved up."""

_PROBE_HOPE = 0.5
"""A probe must pay if its extra positions cost this share of their estimated cost."""

_CURVE_EVERY = 16
_CURVE_ROWS = 65

_NOTHING = Draft.empty()


class BudgetState:
    """Everything that budgets learn from the replies of one model on one machine.

    `costs` holds for replies that keep a step in flight, `costs_alone` for replies whose penalties
    need each token before the next pass can be queued, `shared_costs` for passes of several.
    `times` has the drafters' own times by name, `drawing` what is known of the models that they
    ask.
    """

    def __init__(self, prior: CostCurve = DEFAULT_PRIOR) -> None:
        self.costs = PassCosts(prior)
        self.costs_alone = PassCosts(prior)
        self.shared_costs = SharedCosts(self.costs)
        self.acceptance = Acceptance()
        self.times: dict[str, DrafterTimes] = {}
        self.drawing: dict[str, DrawingState] = {}


@dataclass(frozen=True, slots=True)
class OwnCost:
    """A drafter's own cost of a draft, in plain steps.

    The first `sunk` tokens are there already. The next one takes `passes` passes, and each one
    after it `further`.
    """

    a_pass: float
    sunk: int = 0
    passes: int = 1
    further: int = 1

    def cost(self, size: int) -> float:
        """Return the cost of a draft of `size` tokens."""
        more = size - self.sunk
        return self.a_pass * (self.passes + self.further * (more - 1)) if more > 0 else 0.0


class Budget:
    """The draft budget of one reply.

    A target reports what its passes were and says which trees it takes. A drafter whose tokens take
    time asks the budget before each, and one that uses the cost curve gets it.

    Args:
        state: what earlier replies taught.
        context: length of the prompt in tokens.
        target: verifies the drafts.
        drafter: makes the drafts.
        pipelined: False if the target is used in a way that keeps no step in flight.
        name: name of the drafter, under which its times are remembered.
        shared: the passes that the reply shares with others, if it does. Beside others it offers
            its draft, and whoever runs the passes cuts it.
    """

    def __init__(
        self,
        state: BudgetState,
        *,
        context: int,
        target: Target | None = None,
        drafter: Drafter | None = None,
        pipelined: bool = True,
        name: str = "",
        shared: SharedPasses | None = None,
    ) -> None:
        self._shared = shared or SharedPasses(state.shared_costs)
        self._company = self._shared.company
        self.offer: Offer | None = None
        """What the last draft promises to a shared pass; None if it is verified as it is."""
        self._target = Target() if target is None else as_target(target)
        drafter = None if drafter is None else Drafter.of(drafter)
        self._tell = drafter.use_curve if drafter is not None and drafter.uses_curve else None
        self._pipelined = pipelined and self._target.pipelined
        self._costs = state.costs if self._pipelined else state.costs_alone
        self._acceptance = state.acceptance.begin_reply()
        self._context = context
        self._rate = RunningRate()
        # A draft as it was proposed, and the tokens that the target has chosen in its place so far.
        self._shadow: Draft | None = None
        self._chosen: list[int] = []
        self.saved = TimeSaved(self._costs)
        self._allowance = _PROBE_START
        self._steps = 0
        self._drafter = DrafterTime(state.times.setdefault(name, DrafterTimes()))
        self._drawing = Drawing(state.drawing.setdefault(name, DrawingState()))
        # Source of the last draft, and its length as proposed.
        self._source, self._proposed = name, 0
        # Drafted positions of this reply in the last pass.
        self._own_drafted = 0
        # What the drafter's curve was made of.
        self._told: tuple[Company | None, int] = (None, -1)
        if drafter is not None:
            drafter.use_rule(self)
        self._costs.begin(context)
        self._tell_curve()

    @property
    def rate(self) -> float:
        """lambda, at least 1: tokens per plain step's time over about the last fifty steps.

        In company these are the tokens of all, for the time of a plain pass of all.
        """
        return (self._rate if self._company is None else self._company.rate).value

    def limit(self, most: int) -> int:
        """Return how many tokens the drafter may propose: `most`, or 0 to leave it alone."""
        self._company = self._shared.company
        self.offer, self._proposed = None, 0
        asks = most > 0 and self._unit_s is not None and self._drafter.may_ask()
        return most if asks else 0

    def trim(self, draft: Draft) -> Draft:
        """Return the part of a draft that pays; of a tree, by `Draft.cut_tree`.

        In company a draft is offered as a whole, and a tree's best chain in its place.
        """
        self._proposed = size = len(draft.tokens)
        self._drawing.copied = size - draft.drawn
        gain = 0.0
        if size > draft.sure:
            draft, gain = self._cut(draft)
        elif size:
            return draft
        self._drafter.pace(gain, self.rate, in_company=self._company is not None)
        return draft

    def _cut(self, draft: Draft) -> tuple[Draft, float]:
        """Return what stays of a draft, and its gain in tokens; in company make the offer."""
        self._source = draft.source
        if self._shadow is None:
            self._shadow, self._chosen = draft, []
        alone = self._company is None
        kept = draft if alone else draft.best_chain()
        probabilities = self._acceptance.probabilities(kept)
        if not kept.is_chain:
            return self._cut_tree(kept, probabilities)
        rate = self._rate_behind(self._drawing.copied)
        size, gain = self._best_size(probabilities, rate, probe=alone)
        if alone:
            return kept.first(max(size, kept.sure)), gain
        # Behind a step in flight the first token needs no row.
        checked = 1 if self._in_flight else 0
        reaches = tuple(accumulate(probabilities[checked:], operator.mul))
        self.offer = Offer(reaches, probabilities[0] if checked else 1.0, checked, kept.sure)
        return kept, gain

    def pays(
        self,
        before: Draft,
        drawn: Sequence[RatedToken],
        *,
        room: int,
        passes: int = 1,
        further: int = 1,
    ) -> bool:
        """Return whether a model should draw another token; see `DrawingRule`.

        It should if some longer draft has a larger expected gain, after the model's own time for
        the further tokens. Their probabilities come from the model's record at these positions.
        """
        drawing = self._drawing
        if room <= 0 or not (drawn or drawing.account.covers(0.0)):
            return False
        held = len(before) + len(drawn)
        drawing.asked = True
        probabilities = self._expect(before, drawn, room)
        own = OwnCost(drawing.a_pass, held, passes, further)
        rate = self._rate_behind(len(before))
        size, _ = self._best_size(probabilities, rate, own, probe=False)
        # Behind a step in flight one token brings nothing, so nothing would be learned either.
        if size > held or (not held and not self._in_flight and self._may_try(probabilities[0])):
            if not drawing.passes:
                # The model's passes come behind the step in flight, whose time is not theirs.
                drawing.waited_s = self._target.wait_in_flight()
            drawing.passes += passes
            return True
        return False

    def draws_instead(self, copied: Draft, *, room: int, further: int = 1) -> bool:
        """Return whether a model's own draft has a larger expected gain; see `DrawingRule`."""
        if not self._drawing.account.covers(0.0):
            return False
        own = OwnCost(self._drawing.a_pass, further=further)
        drawn = self._expect(_NOTHING, (), room)
        copies = self._acceptance.probabilities(copied)
        gains = [
            self._best_size(found, self.rate, cost, probe=False)[1]
            for found, cost in ((drawn, own), (copies, None))
        ]
        return gains[0] > gains[1]

    def _expects_to_draw(self) -> bool:
        """Return whether the model will draw a draft of its own, if no step is in flight."""
        if not self._drawing.asked or self._drafter.resting or self._unit_s is None:
            return False
        return self._may_try(self._expect(_NOTHING, (), 1)[0])

    def _rate_behind(self, copied: int) -> float:
        """Return lambda for tokens that a model draws after `copied` copied ones.

        Without copies in front a token is worth the time that it takes there; see `Drawing.rate`.
        """
        return self.rate if copied or self._company is not None else self._drawing.rate.value

    def _expect(self, before: Draft, drawn: Sequence[RatedToken], room: int) -> list[float]:
        """Return the probabilities of a draft that goes on, after these tokens, by `room` more."""
        size = len(drawn) + room
        confidence = (
            *(before.confidence or [-1.0] * len(before)),
            *(token.probability for token in drawn),
            *[-1.0] * room,
        )
        draft = Draft.chain(
            range(len(before) + size),
            before.source or self._source,
            before.match_length,
            confidence,
            drawn=size,
        )
        return self._acceptance.probabilities(draft)

    def _may_try(self, probability: float) -> bool:
        """Return whether to draw one token that does not pay, to learn about this text."""
        return self._drawing.account.covers(self._trial_loss(probability, self._drawing.a_pass))

    def _trial_loss(self, probability: float, own: float) -> float:
        """Return the expected loss of drafting one token for `own` plain steps, in tokens."""
        costs, context, base = self._pass_without_draft()
        extra = costs.cost(context, base + 1) - costs.cost(context, base)
        return self._rate_behind(0) * (extra + own) - probability

    def observe(self, stats: StepStats, output: Sequence[int]) -> None:
        """Learn from a finished step: from its time and from the tokens of the target."""
        company = self._company = self._shared.company
        drawing, drafted = self._drawing, stats.num_draft_tokens
        own_s, cost = stats.propose_s - drawing.waited_s, 0.0
        if (unit_s := self._unit_s) is not None:
            # Either the drafter or the model that it asks is charged.
            if drawing.passes:
                drawing.add_time(own_s / unit_s)
            else:
                counts = drafted > 0 or company is not None
                self._drafter.add(own_s / unit_s, self._proposed, drafted=counts)
        drawing.account.add_draft(STEP_CREDIT, 0.0)
        self._own_drafted = drafted
        if company is None or drawing.passes:
            done = self._target.last_pass or PassReport(1 + drafted)
            if company is None:
                cost = self._measure(stats, done, own_s)
            if drawing.passes:
                self._settle(drafted, done, len(output))
        if company is None:
            self._rate.add(len(output), cost)
            if not min(drawing.copied, drafted):
                drawing.rate.add(len(output), cost)
        self._allowance = min(_PROBE_MOST, self._allowance + _PROBE_SHARE)
        if self._shadow is not None:
            self._compare(self._shadow, output)
        self._context += len(output)
        self._steps += 1
        if drawing.asked:
            self._target.look_ahead = not self._expects_to_draw()
        if self._steps % _CURVE_EVERY == 0:
            self._tell_curve()

    def _pass_without_draft(self) -> tuple[PassCosts, int, int]:
        """Return costs, context and positions of the next pass if this reply drafts nothing.

        Others draft as many positions as they did last.
        """
        if self._company is None:
            return self._costs, self._context, 1
        others = max(0, self._shared.drafted - self._own_drafted)
        return self._company.costs, Company.context, 1 + others

    @property
    def _unit_s(self) -> float | None:
        """Seconds of a plain step at present, None if unknown."""
        return (self._costs if self._company is None else self._company.costs).unit_s

    @property
    def _in_flight(self) -> bool:
        return self._pipelined and self._target.in_flight

    def _best_size(
        self,
        probabilities: list[float],
        rate: float,
        own: OwnCost | None = None,
        *,
        probe: bool = True,
    ) -> tuple[int, float]:
        """Return the size with the largest gain over a plain step, and that gain in tokens.

        `rate` is lambda, in tokens for the time of a plain step. `own` is the cost of tokens that
        are not drawn yet. With `probe` a size that does not pay may be tried.
        """
        costs, context, base = self._pass_without_draft()
        # With a step in flight the first token is checked for free, and the pass that follows
        # begins with its row, as a plain step would.
        free = 1 if self._in_flight else 0
        sure = probabilities[0] if free else 1.0
        plain = costs.cost(context, base)
        # In company the pass of the others goes on.
        alone = free and self._company is None
        checking = rate * (costs.check_cost(context) - 1.0) if alone else 0.0
        best, best_gain = 0, _LEAST_GAIN
        hoped, hoped_size, hoped_gain = 0.0, 0, 0.0
        reach, tokens = 1.0, 0.0
        for drafted, probability in enumerate(probabilities[free:], start=1):
            reach *= probability
            tokens += reach
            cost = costs.cost(context, base + drafted) - plain
            spent = checking + (rate * own.cost(free + drafted) if own else 0.0)
            gain = sure * (tokens - rate * cost) - spent
            if gain > best_gain:
                best, best_gain = free + drafted, gain
            hope = sure * (tokens - rate * cost * _PROBE_HOPE) - spent
            if hope > hoped:
                hoped, hoped_size, hoped_gain = hope, free + drafted, gain
        gain = best_gain if best else 0.0
        if probe and hoped_size > best and gain - hoped_gain < self._allowance:
            self._allowance -= gain - hoped_gain
            return hoped_size, gain
        return best, gain

    def _size_to_draw(self, probabilities: list[float]) -> int:
        """Return how many tokens pay if the drafter takes its usual time for each."""
        return self._best_size(probabilities, self.rate, OwnCost(self._drafter.a_token))[0]

    def _cut_tree(self, draft: Draft, probabilities: Sequence[float]) -> tuple[Draft, float]:
        """Return the part of a tree that pays, and its gain in tokens.

        Where none pays, or the target refuses it, the best chain is cut instead. The target is
        asked only about a part that pays, because its first answer may cost many passes.
        """
        rate, costs, context = self.rate, self._costs, self._context
        prices = TreePrices(
            probabilities,
            lambda rows: rate * (costs.cost(context, 1 + rows) - 1.0),
            rate * (costs.check_cost(context) - 1.0) if self._in_flight else None,
        )
        kept, gain = draft.cut_tree(prices)
        if gain > _LEAST_GAIN and (kept.is_chain or self._target.takes_tree(kept)):
            return kept, gain
        # Probes are chains: the cost of positions does not depend on the shape of the tree.
        chain = draft.best_chain()
        size, gain = self._best_size(self._acceptance.probabilities(chain), rate)
        return chain.first(size), gain

    def _measure(self, stats: StepStats, done: PassReport, own_s: float) -> float:
        """Add a step's time to the cost samples; return the step's cost for lambda."""
        drafted, unit_s = stats.num_draft_tokens, self._costs.unit_s
        waited_s, passes = self._drawing.waited_s, self._drawing.passes
        target_s = stats.target_s + waited_s
        whole_s = own_s + target_s + stats.commit_s
        # The drafter ran beside the step in flight, unless it needs the same device.
        beside = done.was_in_flight and not passes
        pass_s = whole_s if beside else target_s + stats.commit_s
        expected, due = self._add_sample(done, pass_s, drafted=drafted > 0)
        self.saved.add_drafter(own_s, hidden=beside)
        settled = done.in_flight or not self._pipelined
        self.saved.add(due, pass_s, drafted=drafted > 0, settled=settled)
        if unit_s is None:
            return expected
        return min(whole_s / unit_s, _OUTLIER * expected)

    def _add_sample(self, done: PassReport, pass_s: float, *, drafted: bool) -> tuple[float, float]:
        """Add a step's time to the samples of its kind; return its expected cost, and what was due.

        `due` is the part of the cost that falls into this step: the step before may have waited for
        some of it, and this one may wait for some of the step that it queues.
        """
        costs, context, rows, prepaid = self._costs, self._context, done.rows, self._costs.prepaid
        if done.was_in_flight and (rows or drafted):
            checked = costs.check_cost(context)
            if not rows:
                # The step in flight refuted the draft.
                costs.add_check(context, pass_s)
                return checked, checked
            expected = checked + costs.cost(context, rows)
            if (unit_s := costs.unit_s) is not None:
                rest_s = pass_s - max(0.0, checked - prepaid) * unit_s
                costs.add_pass(context, rows, max(0.1 * unit_s, rest_s))
            return expected, expected - prepaid
        if drafted:
            expected = costs.cost(context, rows)
            costs.add_pass(context, rows, pass_s)
            return expected, expected
        if self._pipelined and not done.in_flight:
            # Nothing was queued: no step like those that the unit is measured by.
            return 1.0, 1.0 - (prepaid if done.was_in_flight else 0.0)
        if self._pipelined and not done.was_in_flight:
            costs.add_restart(pass_s)
            return 1.0, 1.0 + prepaid
        costs.add_plain(pass_s)
        return 1.0, 1.0

    def _settle(self, num_drafted: int, done: PassReport, num_output: int) -> None:
        """Charge the model for what it drew, and credit it with what that brought."""
        drawing = self._drawing
        costs, context, base = self._pass_without_draft()
        others = base - 1 + done.rows - num_drafted

        def cost(drafted: int) -> float:
            # The cost of this step with that many drafted tokens.
            rows = costs.cost(context, max(base, others + drafted)) if done.rows else 0.0
            if not done.was_in_flight or self._company is not None:
                return rows
            return costs.check_cost(context) + rows if drafted else 1.0

        copied = min(drawing.copied, num_drafted)
        brought = max(0, num_output - 1 - copied)
        extra = cost(num_drafted) - cost(copied) + drawing.passes * drawing.a_pass
        drawing.account.add_draft(brought, self._rate_behind(copied) * extra)
        drawing.passes, drawing.waited_s = 0, 0.0

    def _compare(self, shadow: Draft, output: Sequence[int]) -> None:
        """Compare a draft with the target's tokens once they have left it or reached its end."""
        self._chosen += output
        *_, (_, node) = shadow.walk(self._chosen)
        if node is None or node not in shadow.parents:
            self._acceptance.observe(shadow, self._chosen)
            self._shadow = None
            if node is not None:
                # All of a path was right: the drafter may be worth asking again.
                self._drafter.resume()

    def _tell_curve(self) -> None:
        company = self._company
        # In company the samples of all add up, and a curve takes time to make.
        known = self._costs.num_samples if company is None else company.costs.num_samples // 16
        if self._tell is not None and (company, known) != self._told:
            self._told = company, known
            self._tell(
                self._costs.curve(self._context, _CURVE_ROWS)
                if company is None
                else company.curve(_CURVE_ROWS)
            )


class VerifyAll:
    """Stands in for a budget: whole drafts are verified.

    Where the target refuses a tree, its path of largest probability is verified.
    """

    def __init__(self, target: Target) -> None:
        self._target = as_target(target)

    def limit(self, most: int) -> int:
        """Return `most`."""
        return most

    def trim(self, draft: Draft) -> Draft:
        """Return the draft, or the best path of a tree that the target refuses."""
        if draft.is_chain or self._target.takes_tree(draft):
            return draft
        return draft.best_chain()

    def observe(self, stats: StepStats, output: Sequence[int]) -> None:
        """Learn nothing."""
