"""The draft budget of passes that several replies share.

The drafts of all replies compete for the positions of a pass. Positions are taken in the order of
the probability that their token is kept, as many as maximise E[tokens] - lambda cost: the rule of
`akunu_py.decoding.budget`, with the tokens of all. The more replies share a pass, the less time a
token takes without a draft, and the surer a drafted one has to be.

The unit of cost is a plain pass of as many replies, each with a position, and with the next pass in
flight.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from akunu_py.decoding.drafter_time import RunningRate
from akunu_py.decoding.pass_costs import PassCosts
from akunu_py.values.cost_curve import CostCurve

_LEAST_GAIN = 0.04
"""Least gain of all drafts of a pass, as a share of a plain pass's tokens. Beside its positions a
pass with drafts costs about 0.04 plain ones (eight replies, Intel Xeon): its choices are read at
once, and nothing is in flight while the next one is built."""

_PROBE_SHARE = 0.001
_PROBE_MOST = 2.0
"""Budget for drafts that do not pay: 0.1 % of all tokens, at most 2 saved up. Costs that look too
high would not be measured again without them."""

_PROBE_HOPE = 0.5
"""Such a draft must pay if its positions cost this share of their estimated cost."""

_PRIOR_ROWS = 33


@dataclass(frozen=True, slots=True)
class Offer:
    """What the positions of a reply's draft promise.

    Entry i of `reaches` is the probability that the token of drafted row i is kept, given that the
    positions are fed at all; `chance` is the probability of that. It is below 1 where a step in
    flight checks the first token, which then needs no further position: `checked` is 1.
    """

    reaches: tuple[float, ...]
    chance: float = 1.0
    checked: int = 0
    least: int = 0
    """Tokens of the draft that are sure, and stay."""

    def size(self, rows: int) -> int:
        """Return how many tokens of the draft these positions are."""
        return max(self.least, rows + self.checked if rows else 0)


class Company:
    """What is known of the passes of one number of replies.

    `costs` are by the drafted positions of a pass and one more, so that a plain pass costs 1.
    """

    context = 0
    """All lengths of context have the same costs: drafted positions add about as much to each."""

    def __init__(self, replies: int, costs: PassCosts) -> None:
        self.replies, self.costs = replies, costs
        self.rate = RunningRate(replies)

    def price(self, rows: float) -> float:
        """Return the price of drafted rows beyond a plain pass, in tokens; `rows` may be a mean."""
        whole = math.floor(rows)
        below, above = (self.costs.cost(self.context, 1 + whole + more) for more in (0, 1))
        return self.rate.value * (below + (rows - whole) * (above - below) - 1.0)

    def curve(self, longest: int) -> CostCurve:
        """Return the costs of 1 to `longest` positions of a reply, in its share of a plain pass."""
        costs = (self.costs.cost(self.context, rows) for rows in range(1, longest + 1))
        return CostCurve(
            {rows: 1.0 + self.replies * (cost - 1.0) for rows, cost in enumerate(costs, start=1)}
        )


class SharedCosts:
    """What is known of shared passes, by the number of replies and whether some reply waits.

    One with penalties or a constraint waits for each pass: nobody has a step in flight behind it. A
    number without measurements begins with the costs of passes of one reply over as many positions.
    """

    def __init__(self, alone: PassCosts) -> None:
        self._alone = alone
        self._known: dict[tuple[int, bool], Company] = {}

    def of(self, replies: int, *, waits: bool) -> Company:
        """Return the record of passes of this number of replies."""
        found = self._known.get((replies, waits))
        if found is None:
            costs = [self._alone.cost(Company.context, replies + n) for n in range(_PRIOR_ROWS)]
            prior = CostCurve({rows: cost / costs[0] for rows, cost in enumerate(costs, start=1)})
            found = self._known[replies, waits] = Company(replies, PassCosts(prior))
        return found

    @property
    def num_samples(self) -> int:
        """Number of samples so far."""
        return sum(company.costs.num_samples for company in self._known.values())

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return measured costs by replies and tokens, with keys as in JSON, where nobody waits."""
        return {
            str(replies): rows
            for (replies, waits), company in self._known.items()
            if not waits and (rows := company.costs.to_dict().get("0"))
        }

    def remember(self, known: Mapping[int, Mapping[int, float]]) -> None:
        """Add costs measured by an earlier run, by replies and tokens; new samples outvote them."""
        for replies, rows in known.items():
            for waits in (False, True):
                self.of(replies, waits=waits).costs.remember({0: rows})


class SharedPasses:
    """The passes of some replies of one model, whose runner reports them here.

    `company` is None while there is one reply, which then decides for itself.
    """

    def __init__(self, costs: SharedCosts) -> None:
        self._costs = costs
        self._waits = False
        # Whether the last pass was waited for, so that nothing was in flight behind it.
        self._waited = True
        self._allowance = 0.0
        self.company: Company | None = None
        self.drafted = 0
        """Drafted positions of the last pass."""

    def begin(self, replies: int, *, waits: bool | None = None) -> None:
        """Begin a pass; `waits` is as in the last pass until it is known."""
        self._waits = self._waits if waits is None else waits
        self.company = self._costs.of(replies, waits=self._waits) if replies > 1 else None

    def share(self, offers: Sequence[Offer], drafted: int = 0) -> list[int]:
        """Return how many tokens of each draft to verify; `drafted` further rows are fed anyway."""
        company = self.company
        if company is None:
            return [offer.least for offer in offers]
        order = sorted(
            ((reach, place) for place, offer in enumerate(offers) for reach in offer.reaches),
            key=lambda row: -row[0],
        )
        least = _LEAST_GAIN * company.replies
        best, most = 0, least
        probe, loss = 0, self._allowance
        tokens, rows = 0.0, float(drafted)
        plain = company.price(rows)
        for count, (reach, place) in enumerate(order, start=1):
            tokens += offers[place].chance * reach
            rows += offers[place].chance
            price = company.price(rows) - plain
            gain = tokens - price
            if gain > most:
                best, most = count, gain
            elif tokens > _PROBE_HOPE * price and least - gain < loss:
                probe, loss = count, least - gain
        if probe and not best:
            best = probe
            self._allowance -= loss
        sizes = [0] * len(offers)
        for _, place in order[:best]:
            sizes[place] += 1
        return [offer.size(size) for offer, size in zip(offers, sizes, strict=True)]

    def observe(
        self, *, seconds: float, feeding_s: float, drafted: int, tokens: int, steady: bool
    ) -> None:
        """Learn from a pass over `drafted` drafted tokens, which brought `tokens` to all replies.

        `seconds` are those of the round, and `feeding_s` those since the positions were fed. The
        round is `steady` if each reply had a step in flight.
        """
        company, waited = self.company, self._waited
        self._allowance = min(_PROBE_MOST, self._allowance + _PROBE_SHARE * tokens)
        self.drafted = drafted
        self._waited = drafted > 0 or self._waits
        if company is None:
            return
        if drafted:
            # What was in flight before is complete once a draft's positions are fed.
            company.costs.add_pass(company.context, 1 + drafted, feeding_s)
        elif self._waits or (steady and not waited):
            company.costs.add_plain(seconds)
        company.rate.add(tokens, company.costs.cost(company.context, 1 + drafted))
