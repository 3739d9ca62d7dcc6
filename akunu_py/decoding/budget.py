"""How many tokens to draft: as many as pay on this machine, often none.

A draft of n tokens is cut to the length that maximises E[tokens | n] - lambda cost(n), where lambda
is the running ratio of tokens to cost: what the time of a token more would bring elsewhere. That is
the rule for the best ratio in the long run (renewal reward; theorem 3.8 of Leviathan et al. 2023 is
the case of constant acceptance, C = 1 and lambda at its optimum). Cost is in plain steps with the
next one in flight, which is what n = 0 costs.

The budget decides how much is drafted and never what is chosen, so it cannot change a token.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from akunu_py.cost_curve import CostCurve
from akunu_py.decode_stats import StepStats
from akunu_py.decoding.acceptance import Acceptance
from akunu_py.decoding.drafter_time import DrafterTime, DrafterTimes
from akunu_py.decoding.pass_costs import DEFAULT_PRIOR, PassCosts
from akunu_py.decoding.time_saved import TimeSaved
from akunu_py.decoding.tree_budget import paying_part, rows_behind
from akunu_py.decoding.tree_choice import RowCosts, TreeChoice, TreeEstimate
from akunu_py.draft_trees import best_chain, part, walk
from akunu_py.types import Draft, TreeTarget

_LEAST_GAIN = 0.02
"""Tokens a draft must bring beyond its cost: a tie goes to the plain step."""

_LAMBDA_MEMORY = 0.98
_LAMBDA_START = 8.0
"""Plain steps that lambda begins with; each step, what came before counts 0.98 times as much."""

_OUTLIER = 4.0
"""A step that took this many times what it should counts so many times for lambda."""

_PROBE_SHARE = 0.005
_PROBE_START = 1.0
_PROBE_MOST = 4.0
"""What may be lost with drafts that measure alone: a share of the steps, so many saved at most."""

_PROBE_HOPE = 0.5
"""A probe must pay if passes cost this share more than one row, of what they are thought to."""

_CURVE_EVERY = 16
_CURVE_ROWS = 65

_Path = tuple[Draft, float, list[float]]


@runtime_checkable
class Carrying(Protocol):
    """A target that feeds rows again after a rejection, since its caches cannot drop rows."""

    @property
    def carried_rows(self) -> int:
        """Return how many rows the next pass feeds again, before those of the last token."""

    def replay_rows(self, num_accepted: int = 0) -> int:
        """Return how many rows are fed again if the next draft is rejected after so many."""


@runtime_checkable
class CurveUser(Protocol):
    """A drafter that looks at costs itself; it is told them as they become known."""

    def use_curve(self, curve: CostCurve) -> None:
        """Reason with these costs of passes from now on."""


class DrawnToken(Protocol):
    """A token that is drafted already, as far as the budget looks at it."""

    @property
    def probability(self) -> float:
        """Return the drafter's confidence in it."""


@runtime_checkable
class TokenByToken(Protocol):
    """A drafter that pays for every token it drafts, and so asks before each."""

    def add_rule(self, rule: Callable[[Sequence[DrawnToken]], bool]) -> None:
        """Draft a further token only where the rule, given those drafted so far, returns True."""


class BudgetState:
    """What budgets learned over the replies of one model, on one machine.

    `costs` are those of steps with one in flight, `costs_alone` those of replies whose penalties
    need each token before the next pass can be queued. `times` are those of drafters, by name.
    """

    def __init__(self, prior: CostCurve = DEFAULT_PRIOR) -> None:
        self.costs = PassCosts(prior)
        self.costs_alone = PassCosts(prior)
        self.acceptance = Acceptance()
        self.times: dict[str, DrafterTimes] = {}


class Budget:
    """Decides for one reply.

    `context` is the length of the prompt in tokens. `pipelined` says whether the target keeps a
    step in flight while nothing is drafted, as `akunu_py.models.session.Session` does: then the
    first token of a draft is compared with that step's result, and the pass is run for the others
    if it is right. `drafter` is the drafter's name, under which what it takes is remembered.
    `tree` says what was made of the last drafted tree, `saved` what drafting saved so far.
    """

    def __init__(
        self,
        state: BudgetState,
        *,
        context: int,
        pipelined: bool = True,
        drafter: str = "",
        tell: Callable[[CostCurve], None] | None = None,
    ) -> None:
        self._state = state
        self._costs = state.costs if pipelined else state.costs_alone
        self._acceptance = state.acceptance
        self._acceptance.recent = 0.5
        self._context = context
        self._pipelined = pipelined
        self._in_flight = False
        self._tokens = self._cost = _LAMBDA_START
        # The last draft as it was proposed, and what the target has chosen in its place so far.
        self._shadow: Draft | None = None
        # The part of it that was verified.
        self._cut = Draft.empty()
        self._chosen: list[int] = []
        self.tree: TreeChoice | None = None
        self.saved = TimeSaved(self._costs)
        self._allowance = _PROBE_START
        self._steps = 0
        self._by_token = False  # a drafter that asks before each token is a model on that device
        self._drafter = DrafterTime(state.times.setdefault(drafter, DrafterTimes()))
        # Whose the last draft was, and how many tokens it might and did have.
        self._source = drafter
        self._most = self._proposed = 0
        self._tell = tell
        self._samples_told = -1
        self._costs.begin(context)
        self._tell_curve()

    @property
    def rate(self) -> float:
        """Lambda: tokens for the time of a plain step, over about the last fifty steps; >= 1."""
        return max(1.0, self._tokens / self._cost)

    def limit(self, most: int) -> int:
        """Return how many tokens the drafter may propose now: `most`, or 0 not to ask it."""
        self._drafter.asked = False
        self._most = self._proposed = 0
        if self._costs.unit_s is not None and self._drafter.may_ask():
            self._drafter.asked, self._most = most > 0, most
        return self._most

    def trim(
        self, draft: Draft, carrying: Carrying | None = None, trees: TreeTarget | None = None
    ) -> Draft:
        """Return as much of a draft as pays; of a tree its likeliest part, often a chain.

        `carrying` is the target, where it feeds rows again after a rejection, `trees` where it may
        not take trees: a path is returned then, if need be. It is asked of a part that pays alone,
        since its first answer may take a try that costs many passes.
        """
        self._cut = draft
        self._proposed = len(draft)
        if not draft.tokens:
            if self._drafter.asked:
                self._drafter.pace(0.0, self.rate)
            return draft
        self._source = draft.source
        if self._shadow is None:
            self._shadow = draft
            self._chosen = []
        probabilities = self._acceptance.probabilities(draft)
        if draft.is_chain:
            size, gain = self._best_size(probabilities, carrying)
            self._cut = draft.first(size)
        else:
            self._cut, gain, weighed = self._best_part(draft, probabilities, carrying)
            taken = self._cut.is_chain or trees is None or trees.takes_tree(self._cut)
            if not taken:
                self._cut, gain, path = self._best_path(draft, carrying)
                weighed = replace(weighed, path=path)
            self.tree = TreeChoice.weighed(draft, self._cut, gain, weighed, taken=taken)
        self._drafter.pace(gain, self.rate)
        return self._cut

    def plan(self, most: int, carrying: Carrying | None = None) -> int:
        """Return how many tokens, at most `most`, a drafter may draw that samples from q.

        Decided before it draws them: a draft that is cut for what was drawn biases what rejection
        sampling emits. So the estimate knows the drafter's record alone, and its time a token.
        """
        if most <= 0:
            return 0
        probabilities = self._acceptance.probabilities(Draft.chain(range(most), self._source))
        own = self._drafter.a_token
        size, _ = self._best_size(probabilities, carrying, own)
        return size or int(self._may_try(probabilities[0], own))

    def pays(self, drawn: Sequence[DrawnToken], carrying: Carrying | None = None) -> bool:
        """Return whether drafting goes on behind these tokens, for a drafter that pays for each.

        That is where some longer draft is expected to gain more than this one, what the drafter
        spends on the further tokens included. Those are as likely as its tokens were so far at
        their places, whatever it thought of them.
        """
        self._by_token = True
        further = self._most - len(drawn)
        if further <= 0:
            return False
        confidence = (*(token.probability for token in drawn), *[-1.0] * further)
        expected = Draft.chain(range(self._most), self._source, 0, confidence)
        probabilities = self._acceptance.probabilities(expected)
        own = self._drafter.a_token
        size, _ = self._best_size(probabilities, carrying, own, sunk=len(drawn), probe=False)
        return size > len(drawn) or (not drawn and self._may_try(probabilities[0], own))

    def _may_try(self, probability: float, own: float) -> bool:
        """Return whether one token is drafted that does not pay, to learn of this text."""
        costs, context = self._costs, self._context
        loss = self.rate * (costs.cost(context, 2) - 1.0 + own) - probability
        if loss >= self._allowance:
            return False
        self._allowance -= max(0.0, loss)
        return True

    def expect(self, draft: Draft) -> Draft:
        """Take in a draft that was drawn as planned; return it."""
        self._cut = draft
        self._proposed = len(draft)
        if draft.tokens:
            self._source = draft.source
            self._shadow = Draft(draft.tokens, draft.parents, draft.source)
            self._chosen = []
        return draft

    def observe(self, stats: StepStats, output: Sequence[int], carried_rows: int = 0) -> None:
        """Take in a finished step: what it took, and the tokens the target chose.

        `carried_rows` is how many rows the pass fed again before its own.
        """
        cost = self._measure(stats, output, carried_rows)
        self._tokens = self._tokens * _LAMBDA_MEMORY + len(output)
        self._cost = self._cost * _LAMBDA_MEMORY + cost
        self._allowance = min(_PROBE_MOST, self._allowance + _PROBE_SHARE)
        if self._shadow is not None:
            self._compare(output)
        self._context += len(output)
        self._steps += 1
        if self._steps % _CURVE_EVERY == 0:
            self._tell_curve()

    def _best_size(
        self,
        probabilities: list[float],
        carrying: Carrying | None,
        own: float = 0.0,
        *,
        sunk: int = 0,
        probe: bool = True,
    ) -> tuple[int, float]:
        """Return the size with the largest gain over a plain step, and that gain in tokens.

        `own` is what each token but the first `sunk` costs the drafter. With `probe` a size that
        does not pay may be tried.
        """
        rate, costs, context = self.rate, self._costs, self._context
        carried = 0 if carrying is None else carrying.carried_rows
        # With a step in flight the first token is checked for nothing, and the pass that follows
        # begins with its row: what the pass could do without a draft is a plain step.
        free = 1 if self._in_flight else 0
        sure = probabilities[0] if free else 1.0
        base = 1 + carried
        plain = 1.0 if not carried else costs.cost(context, base)
        checking = rate * (costs.check_cost(context) - 1.0) if free else 0.0
        best, best_gain = 0, _LEAST_GAIN
        hoped, hoped_size, hoped_gain = 0.0, 0, 0.0
        reach, tokens, replayed = 1.0, 0.0, 0.0
        for drafted, probability in enumerate(probabilities[free:], start=1):
            if carrying is not None and (rows := carrying.replay_rows(free + drafted - 1)):
                extra = costs.cost(context, 1 + rows) - costs.cost(context, 1)
                replayed += reach * (1 - probability) * extra
            reach *= probability
            tokens += reach
            cost = costs.cost(context, base + drafted) + replayed - plain
            spent = checking + rate * own * max(0, free + drafted - sunk)
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

    def _best_part(
        self, draft: Draft, probabilities: list[float], carrying: Carrying | None
    ) -> tuple[Draft, float, TreeEstimate]:
        """Return the part of a tree with the largest gain, that gain in tokens, and its reasons."""
        rate, costs, context = self.rate, self._costs, self._context
        base = 1 if carrying is None else 1 + carrying.carried_rows
        plain = 1.0 if base == 1 else costs.cost(context, base)
        price = RowCosts(lambda rows: costs.cost(context, base + rows) - plain, rate)
        flying = self._in_flight
        checking = costs.check_cost(context) - 1.0 if flying else 0.0
        best = paying_part(draft, probabilities, price, in_flight=flying, checking=rate * checking)
        weighed = TreeEstimate(probabilities, price.known, rate, checking if flying else None)
        if best.gain > _LEAST_GAIN:
            return part(draft, best.nodes), best.gain, weighed
        # What rows cost is tried with chains: it does not depend on who follows whom.
        cut, gain, path = self._best_path(draft, carrying)
        return cut, gain, replace(weighed, path=path)

    def _best_path(self, draft: Draft, carrying: Carrying | None) -> _Path:
        """Return what pays of a tree's best path, its gain in tokens, and its probabilities."""
        chain = best_chain(draft)
        probabilities = self._acceptance.probabilities(chain)
        size, gain = self._best_size(probabilities, carrying)
        return chain.first(size), gain, probabilities[:size]

    def _measure(self, stats: StepStats, output: Sequence[int], carried_rows: int) -> float:
        """Add a step's time to the costs; return the step's cost for lambda."""
        costs, context = self._costs, self._context
        drafted, accepted = stats.num_draft_tokens, stats.num_accepted_tokens
        whole_s = stats.propose_s + stats.target_s + stats.commit_s
        # The drafter ran while the step in flight did, unless it needs the same device.
        beside = self._in_flight and not (self._by_token and self._proposed)
        pass_s = whole_s if beside else stats.target_s + stats.commit_s
        unit_s = costs.unit_s
        if unit_s is not None:
            self._drafter.add(stats.propose_s / unit_s, self._proposed, drafted=drafted > 0)
        rows = 1 + drafted + carried_rows
        # `due` is what this step's time should be: what it puts in flight may be paid for in it.
        if not drafted:
            expected = due = 1.0
            if self._in_flight or (not self._pipelined and not carried_rows):
                costs.add_plain(pass_s)
            elif not carried_rows:
                due += costs.prepaid
                costs.add_restart(pass_s)
            else:
                prepaid = costs.prepaid if self._pipelined else 0.0
                due = costs.cost(context, rows) + prepaid
                if unit_s is not None:
                    costs.add_pass(context, rows, max(0.1 * unit_s, pass_s - prepaid * unit_s))
            self._in_flight = self._pipelined
        elif not self._in_flight:
            expected = due = costs.cost(context, rows)
            costs.add_pass(context, rows, pass_s)
        elif not accepted and stats.num_tested_tokens:
            expected = due = costs.check_cost(context)
            costs.add_check(context, pass_s)
        else:
            # The row of the first token and those below it: of a tree, not the other branches.
            rows = rows_behind(self._cut, output[0], drafted)
            checked = costs.check_cost(context)
            expected = checked + costs.cost(context, rows)
            prepaid = costs.prepaid
            due = expected - prepaid
            if unit_s is not None:
                waited_s = max(0.0, checked - prepaid) * unit_s
                costs.add_pass(context, rows, max(0.1 * unit_s, pass_s - waited_s))
            self._in_flight = False
        self.saved.add_drafter(stats.propose_s, hidden=beside)
        settled = self._in_flight or not self._pipelined
        self.saved.add(due, pass_s, drafted=drafted > 0 or carried_rows > 0, settled=settled)
        if unit_s is None:
            return expected
        return min(whole_s / unit_s, _OUTLIER * expected)

    def _compare(self, output: Sequence[int]) -> None:
        """Compare what the target chose with the draft it belongs to, once that is known."""
        shadow = self._shadow
        if shadow is None:
            return
        if not shadow.is_chain:
            self._compare_tree(shadow, output)
            return
        known = len(self._chosen)
        self._chosen += output[: len(shadow) - known]
        drafted = shadow.tokens[known : len(self._chosen)]
        if len(self._chosen) == len(shadow) or drafted != tuple(self._chosen[known:]):
            self._acceptance.observe(shadow, self._chosen)
            self._shadow = None
            if drafted and drafted[-1] == self._chosen[-1]:
                # All of it was right: a drafter that was not worth asking may be now.
                self._drafter.resume()

    def _compare_tree(self, shadow: Draft, output: Sequence[int]) -> None:
        """Compare as `_compare` does, once the target's text has left the tree."""
        self._chosen += output
        taken = [node for _, node in walk(shadow, self._chosen)]
        if taken[-1] is None or taken[-1] not in shadow.parents:
            self._acceptance.observe(shadow, self._chosen)
            self._shadow = None
            if taken[-1] is not None:
                self._drafter.resume()

    def _tell_curve(self) -> None:
        if self._tell is not None and self._costs.num_samples != self._samples_told:
            self._samples_told = self._costs.num_samples
            self._tell(self._costs.curve(self._context, _CURVE_ROWS))
