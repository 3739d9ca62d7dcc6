"""Costs of passes, learned from the wall times of decoding steps.

The unit is one step of plain decoding with the next one in flight, which is what would run instead
of the pass. In this unit costs change far less than in seconds when a machine grows warm or gets
other work.
"""

import bisect
import math
import statistics
from collections import deque
from collections.abc import Mapping, Sequence

from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.decode_stats import DecodeStats

_CHECK = 0
"""Key, instead of a number of positions, of a step whose draft the step in flight refuted."""

_CHECK_PRIOR = 1.02
_SAMPLES = 11
"""Number of samples kept of each kind; their median tolerates five outliers."""

_SPEEDS = 5
"""Number of steps that measure the machine's speed.

It is below `_SAMPLES`, so that a change of speed is recognised before it looks like a change of
costs.
"""

_KNOWN = 5
"""Number of samples from which a size counts as known and its times measure the speed."""

_WARM_UP = 3.0
"""A first pass of a size that takes this many times the expected time compiled its kernels."""

_REMEMBERED = 3
"""Weight of a remembered cost, in samples: three new ones outvote it."""

_DRAFTS = 128
"""Number of steps with a draft whose times are kept for the spread."""

_FEWEST_DRAFTS = 16
_TENTHS = 10
"""The spread leaves out a tenth of the times at either end."""

_REACH = 2
_LONG_AGO = 32
"""Age, in samples of other sizes, from which an estimate may be refuted."""

_CLEARLY = 1.05
_BUCKET_TOKENS = 512


def roofline(ridge: float) -> CostCurve:
    """Return the costs of a pass that reads all weights once and computes for each position.

    With B bytes of weights, F operations per position, bandwidth W and rate R, a pass over m
    positions takes B / W + m F / R. `ridge` is the number of positions at which the terms are
    equal, B R / (W F) (Williams et al. 2009, "Roofline"). The terms are added, where a roofline
    takes the larger one: kernels for few positions hardly overlap them, and a curve with free
    positions would be tried at every size.
    """
    return CostCurve({rows: (ridge + rows) / (ridge + 1) for rows in (1, 2)})


DEFAULT_PRIOR = roofline(3.0)


def context_bucket(context: int) -> int:
    """Return the bucket of a context length; bounds are 512, 1024, 2048, ... tokens."""
    return (context // _BUCKET_TOKENS).bit_length()


class PassCosts:
    """Costs of passes by number of positions and length of context.

    They are medians of recent samples, which ignores stalls of the machine, and never fall with
    more positions. Between measured sizes they are interpolated (`CostCurve.share`), beyond the
    largest one extrapolated (`_extrapolate`). For a length of context without measurements the
    nearest one serves, a shorter one first.

    The speed of the machine, in seconds per unit, is the median ratio of recent step times to
    expected costs. It follows the clock as long as plain steps or known sizes are among them.
    """

    def __init__(self, prior: CostCurve = DEFAULT_PRIOR) -> None:
        self._prior = prior
        self._speeds: deque[float] = deque(maxlen=_SPEEDS)
        self._samples: dict[int, dict[int, deque[float]]] = {}
        self._estimates: dict[int, dict[int, float]] = {}
        # Value of num_samples at the last measurement of a size, by bucket and positions.
        self._last: dict[tuple[int, int], int] = {}
        self._warm: set[int] = set()
        self._restarts: deque[float] = deque(maxlen=_SPEEDS)
        self._plain: deque[float] = deque(maxlen=_SPEEDS)
        self._drafts: deque[float] = deque(maxlen=_DRAFTS)
        self._bucket = -1
        # Interpolated costs by bucket, made on demand, and the measured points behind them.
        self._memo: dict[int, dict[int, float]] = {}
        self._points: dict[int, tuple[list[int], list[float]]] = {}
        self.num_samples = 0
        self.shared = False
        """Whether passes of other replies run in between, so that only plain steps are measured:
        one of them costs a turn whoever made it, and a draft would be charged for it as well."""
        self.unit_s: float | None = None
        """Seconds of a plain step at present; None before the third step."""

    def begin(self, context: int) -> None:
        """Begin a reply; a much longer or shorter context means measuring the unit anew."""
        bucket = context_bucket(context)
        if bucket != self._bucket:
            self._bucket = bucket
            self._speeds.clear()
            self._plain.clear()
            self.unit_s = None

    def add_plain(self, seconds: float) -> None:
        """Add a plain step with the next one in flight."""
        self._plain.append(seconds)
        self._add_speed(seconds)

    def add_pass(self, context: int, rows: int, seconds: float) -> None:
        """Add a pass over `rows` positions after `context` tokens that nothing overlapped.

        It is ignored before the first plain steps, when there is no unit yet.
        """
        if self.unit_s is None or self.shared:
            return
        expected = self.cost(context, rows)
        cost = seconds / self.unit_s
        if rows not in self._warm:
            self._warm.add(rows)
            if cost > _WARM_UP * expected:
                return
        if self._add(context, rows, cost) > _KNOWN:
            self._add_speed(seconds / expected)

    def add_check(self, context: int, seconds: float) -> None:
        """Add a step whose draft the step in flight refuted at its first token."""
        if self.unit_s is not None and not self.shared:
            self._add(context, _CHECK, seconds / self.unit_s)

    def add_restart(self, seconds: float) -> None:
        """Add a plain step that found nothing in flight and queued the next one."""
        if self.unit_s is not None and not self.shared:
            self._restarts.append(seconds / self.unit_s)

    def add_draft(self, seconds: float, cost: float) -> None:
        """Add a step with a draft, or the one after it, and its expected cost."""
        if self.plain_s is not None:
            self._drafts.append(seconds / (cost * self.plain_s))

    @property
    def plain_s(self) -> float | None:
        """Seconds of a plain step, measured by plain steps alone; None before the first one.

        Between plain steps `unit_s` follows the clock by estimated costs, which may be wrong; this
        does not.
        """
        return statistics.median(self._plain) if self._plain else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """Range in which 8 in 10 ratios of real to expected time of drafted steps lie.

        None before the sixteenth such step.
        """
        if len(self._drafts) < _FEWEST_DRAFTS:
            return None
        tenths = statistics.quantiles(self._drafts, n=_TENTHS, method="inclusive")
        return tenths[0], tenths[-1]

    @property
    def prepaid(self) -> float:
        """Share of the next step that a restart, which queues it, already waits for: 0 to 1.

        It is near 0 where queueing a pass takes no time, and 1 where it takes as long as running
        the pass: MLX's CPU backend queues few operations. The next step is shorter by this share.
        """
        if not self._restarts:
            return 0.0
        return min(1.0, max(0.0, statistics.median(self._restarts) - 1.0))

    def cost(self, context: int, rows: int) -> float:
        """Return the cost of a pass over `rows` positions, 1 or more."""
        bucket = context_bucket(context)
        memo = self._memo.setdefault(bucket, {})
        cost = memo.get(rows)
        if cost is None:
            cost = memo[rows] = self._interpolate(bucket, rows)
        return cost

    def check_cost(self, context: int) -> float:
        """Return the cost of a step whose draft the step in flight refutes."""
        bucket = context_bucket(context)
        return max(1.0, self._estimates.get(bucket, {}).get(_CHECK, _CHECK_PRIOR))

    def curve(self, context: int, longest: int) -> CostCurve:
        """Return the costs of 1 to `longest` positions after `context` tokens."""
        return CostCurve({rows: self.cost(context, rows) for rows in range(1, longest + 1)})

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return the measured costs by bucket and positions, with keys as in JSON."""
        return {
            str(bucket): {str(rows): round(cost, 4) for rows, cost in sorted(estimates.items())}
            for bucket, estimates in sorted(self._estimates.items())
        }

    def remember(self, costs: Mapping[int, Mapping[int, float]]) -> None:
        """Add costs measured by an earlier run, by bucket and tokens; new samples outvote them."""
        for bucket, by_rows in costs.items():
            for rows, cost in by_rows.items():
                samples = deque([cost] * _REMEMBERED, maxlen=_SAMPLES)
                self._samples.setdefault(bucket, {})[rows] = samples
                self._estimates.setdefault(bucket, {})[rows] = cost
        self._forget_memo()

    def learn(self, context: int, plain_s: Sequence[float], costs: Mapping[int, float]) -> None:
        """Add a whole measurement: seconds of plain steps, and costs by positions."""
        self.begin(context)
        for seconds in plain_s[-_SPEEDS:]:
            self.add_plain(seconds)
        several = {rows: cost for rows, cost in costs.items() if rows > 1}
        self.remember({context_bucket(context): several})

    def _add(self, context: int, rows: int, cost: float) -> int:
        """Add a sample; return how many there are of its kind."""
        bucket = context_bucket(context)
        # Estimated from other sizes if there are any: the prior alone would drag neighbours down.
        prior = self.cost(context, rows) if rows != _CHECK else _CHECK_PRIOR
        samples = self._samples.setdefault(bucket, {}).get(rows)
        if samples is None:
            samples = self._samples[bucket][rows] = deque(maxlen=_SAMPLES)
        samples.append(cost)
        self.num_samples += 1
        self._last[bucket, rows] = self.num_samples
        if len(samples) == 1:
            # A stall makes a pass look expensive; nothing makes one look cheap.
            estimate = cost if cost < prior else math.sqrt(prior * cost)
        elif len(samples) == 2:
            estimate = statistics.median((prior, *samples))
        else:
            estimate = statistics.median(samples)
        before = self._estimates.setdefault(bucket, {}).get(rows)
        if before is None or abs(estimate - before) > 0.01 * before:
            self._estimates[bucket][rows] = estimate
            self._forget_refuted(bucket, rows, estimate)
            self._forget_memo()
        return len(samples)

    def _add_speed(self, unit_s: float) -> None:
        self._speeds.append(unit_s)
        if len(self._speeds) >= 3:
            self.unit_s = statistics.median(self._speeds)

    def _forget_refuted(self, bucket: int, rows: int, cost: float) -> None:
        """Forget old samples of smaller sizes that would cost more: the machine has changed."""
        estimates = self._estimates[bucket]
        for other in [size for size in estimates if _CHECK < size < rows]:
            age = self.num_samples - self._last.get((bucket, other), 0)
            if age > _LONG_AGO and estimates[other] > _CLEARLY * cost:
                del estimates[other], self._samples[bucket][other]

    def _forget_memo(self) -> None:
        self._memo.clear()
        self._points.clear()

    def _interpolate(self, bucket: int, rows: int) -> float:
        points = self._points.get(bucket)
        if points is None:
            points = self._points[bucket] = self._measured_costs(bucket)
        sizes, costs = points
        index = bisect.bisect_left(sizes, rows)
        if index < len(sizes) and sizes[index] == rows:
            return costs[index]
        if index == len(sizes):
            return self._extrapolate(sizes[-1], costs[-1], rows)
        share = self._prior.share(sizes[index - 1], rows, sizes[index])
        return costs[index - 1] + share * (costs[index] - costs[index - 1])

    def _extrapolate(self, largest: int, cost: float, rows: int) -> float:
        """Return the cost of more positions than were measured.

        Up to twice as many positions the estimate is optimistic, the lower of the measured slope
        and the prior: a size that looks too expensive would never be measured. So sizes are
        explored step by step.
        """
        pessimistic = cost * self._prior.cost(rows) / self._prior.cost(largest)
        if largest == 1 or rows > _REACH * largest:
            return pessimistic
        slope = max(0.0, (cost - 1.0) / (largest - 1))
        return min(pessimistic, cost + slope * (rows - largest))

    def _measured_costs(self, bucket: int) -> tuple[list[int], list[float]]:
        """Return the sizes and costs that apply to a bucket."""
        merged: dict[int, float] = {}
        # The nearest bucket comes last and wins; of two equally near ones the shorter one wins.
        for other in sorted(self._estimates, key=lambda b: (-abs(b - bucket), -b)):
            merged |= self._estimates[other]
        merged.pop(_CHECK, None)
        # A pass over one position is the unit.
        merged[1] = 1.0
        sizes = sorted(merged)
        return sizes, _never_falling([merged[rows] for rows in sizes])


def _never_falling(costs: list[float]) -> list[float]:
    """Return the nearest costs to these that are at least 1 and do not fall.

    Neighbours out of order are replaced by their mean until all are in order (pool adjacent
    violators; Ayer et al. 1955). On a busy machine the order of two sizes is what suffers most.
    """
    pools: list[tuple[float, int]] = []
    for cost in costs:
        mean, size = max(1.0, cost), 1
        while pools and pools[-1][0] > mean:
            before, count = pools.pop()
            mean = (before * count + mean * size) / (count + size)
            size += count
        pools.append((mean, size))
    return [mean for mean, size in pools for _ in range(size)]


Range = tuple[float, float]


class TimeSaved:
    """The share of plain decoding's time that drafts saved in one reply, as a range.

    A draft saves the plain steps of its tokens and costs its passes, by the curve of `PassCosts`.
    A stall could distort the times of a single reply. So the cost is multiplied by the ratio of
    real to expected times of recent passes, once with each end of `PassCosts.spread`, between which
    8 in 10 ratios lie. Steps without a draft are plain decoding itself. The drafter's time is a
    cost too, but only at the lower end of the range if a pass may have hidden it. A pass takes at
    least a plain step, so the saved share is at most 1 - passes / tokens.
    """

    def __init__(self, costs: PassCosts) -> None:
        self._costs = costs
        # Passes with a draft, and the plain steps after them, which find nothing in flight.
        self._passes = 0
        self._cost = 0.0
        self._after_draft = False
        self._drafter_s = self._hidden_s = 0.0

    def add(self, cost: float, seconds: float, *, drafted: bool, settled: bool) -> None:
        """Add a step: its expected cost in plain steps, and the seconds of its pass.

        A step that is not `settled` leaves nothing in flight, which makes the next one more
        expensive.
        """
        if drafted or self._after_draft:
            self._passes += 1
            self._cost += cost
            self._costs.add_draft(seconds, cost)
            self._after_draft = not settled

    def add_drafter(self, seconds: float, *, hidden: bool) -> None:
        """Add the drafter's own time in a step; `hidden`: a pass may have run meanwhile."""
        if hidden:
            self._hidden_s += seconds
        else:
            self._drafter_s += seconds

    def share(self, stats: DecodeStats) -> Range | None:
        """Return the range for a reply with these counts; negative if drafting cost time.

        None if nothing was drafted, or if too few drafts were timed so far.
        """
        spread, plain_s = self._costs.spread, self._costs.plain_s
        if not (self._passes and stats.output_tokens) or spread is None or plain_s is None:
            return None
        low, high = (self._cost * factor for factor in spread)
        replaced = stats.output_tokens - (stats.steps - self._passes)
        sure = replaced - self._drafter_s / plain_s
        most = min(sure - low, stats.output_tokens - stats.steps)
        least = min(sure - high - self._hidden_s / plain_s, most)
        return least / stats.output_tokens, most / stats.output_tokens
