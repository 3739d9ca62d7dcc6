"""What passes cost, learned from the wall times of decoding steps.

The unit is one step of plain decoding with the next one in flight: what a pass must be compared
with, since it is what would be run instead. Costs in that unit move far less than seconds do when
a machine grows warm or gets other work.
"""

import bisect
import math
import statistics
from collections import deque
from collections.abc import Mapping, Sequence

from akunu_py.cost_curve import CostCurve

_CHECK = 0
"""The key of a step whose draft was refuted by the step in flight: no rows of its own."""

_CHECK_PRIOR = 1.02
_SAMPLES = 11
"""Samples kept of each kind: their median stands five outliers."""

_SPEEDS = 5
"""Steps that say how fast the machine is: fewer, so that a change of speed is seen as one before it
can be taken for a change of costs."""

_KNOWN = 5
"""Samples from which on a size counts as known, so that its times tell how fast the machine is."""

_WARM_UP = 3.0
"""A first pass of a size that takes this many times what was expected compiled its kernels."""

_REMEMBERED = 3
"""How many samples a remembered cost stands for: three new ones outvote it."""

_DRAFTS = 128
"""Steps with a draft whose times are kept, for how far times lie from what they should be."""

_FEWEST_DRAFTS = 16
_TENTHS = 10
"""The spread leaves out a tenth of them at either end."""

_REACH = 2
_LONG_AGO = 32
"""Samples of other sizes."""

_CLEARLY = 1.05
_BUCKET_TOKENS = 512


def roofline(ridge: float) -> CostCurve:
    """Return the costs of a pass that reads all weights once and computes for each row.

    With bytes B and operations F a row, bandwidth W and rate R a pass takes B / W + m F / R, and
    `ridge` is the number of rows at which both are equal, B R / (W F) (Williams et al. 2009,
    "Roofline"). Added rather than the larger of the two: kernels for few rows overlap them little,
    and a curve that promises rows for nothing is tried at every size.
    """
    return CostCurve({rows: (ridge + rows) / (ridge + 1) for rows in (1, 2)})


DEFAULT_PRIOR = roofline(3.0)


def context_bucket(context: int) -> int:
    """Return the bucket of a context length: below 512 tokens, 1024, 2048, ..."""
    return (context // _BUCKET_TOKENS).bit_length()


class PassCosts:
    """The costs of passes by their rows and by the length of the context.

    Medians of the last samples, so that stalls of the machine do not count; more rows never cost
    less. Where a size was not measured costs are interpolated, beyond the largest one extrapolated
    (`_beyond`); where a length of context was not, those of the nearest serve, shorter ones first.

    How fast the machine is (seconds a unit) is the median of the last steps over what each should
    have cost. So long as plain steps are among them, or sizes that are known, it follows the clock.
    """

    def __init__(self, prior: CostCurve = DEFAULT_PRIOR) -> None:
        self._prior = prior
        self._speeds: deque[float] = deque(maxlen=_SPEEDS)
        self._samples: dict[int, dict[int, deque[float]]] = {}
        self._estimates: dict[int, dict[int, float]] = {}
        # num_samples when a size was last measured, by bucket and rows.
        self._last: dict[tuple[int, int], int] = {}
        self._warm: set[int] = set()
        self._restarts: deque[float] = deque(maxlen=_SPEEDS)
        self._plain: deque[float] = deque(maxlen=_SPEEDS)
        self._drafts: deque[float] = deque(maxlen=_DRAFTS)
        self._bucket = -1
        # Interpolated costs by bucket, made when asked for, and the measured ones they come from.
        self._memo: dict[int, dict[int, float]] = {}
        self._points: dict[int, tuple[list[int], list[float]]] = {}
        self.num_samples = 0
        self.unit_s: float | None = None
        """Seconds of a plain step now; None before the third one."""

    def begin(self, context: int) -> None:
        """Begin a reply; where its context is much longer or shorter the unit is measured anew."""
        bucket = context_bucket(context)
        if bucket != self._bucket:
            self._bucket = bucket
            self._speeds.clear()
            self._plain.clear()
            self.unit_s = None

    def add_plain(self, seconds: float) -> None:
        """Take in a plain step with one in flight."""
        self._plain.append(seconds)
        self._add_speed(seconds)

    def add_pass(self, context: int, rows: int, seconds: float) -> None:
        """Take in a pass over `rows` rows that nothing overlapped, after `context` tokens.

        What comes before the first plain steps is left out: there is no unit yet.
        """
        if self.unit_s is None:
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
        """Take in a step whose draft the step in flight refuted at its first token."""
        if self.unit_s is not None:
            self._add(context, _CHECK, seconds / self.unit_s)

    def add_restart(self, seconds: float) -> None:
        """Take in a plain step that found nothing in flight, and put the next one there."""
        if self.unit_s is not None:
            self._restarts.append(seconds / self.unit_s)

    def add_draft(self, seconds: float, cost: float) -> None:
        """Take in a step that drafted, or came after a draft, and what it should have cost."""
        if self.plain_s is not None:
            self._drafts.append(seconds / (cost * self.plain_s))

    @property
    def plain_s(self) -> float | None:
        """Seconds of a plain step, by plain steps alone; None before the first at this length.

        `unit_s` follows the clock through long drafts, by costs that may be off; this does not.
        """
        return statistics.median(self._plain) if self._plain else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """Times of such steps over what each should have cost: 8 in 10 lie between these two.

        None before the sixteenth.
        """
        if len(self._drafts) < _FEWEST_DRAFTS:
            return None
        tenths = statistics.quantiles(self._drafts, n=_TENTHS, method="inclusive")
        return tenths[0], tenths[-1]

    @property
    def prepaid(self) -> float:
        """How much of the step it puts in flight a restart waits for, from 0 to 1.

        Near 0 where passes are queued in no time, 1 where queueing a pass takes as long as running
        it: MLX's CPU backend lets few operations wait. Whoever finds that step in flight then has
        that much less to wait for.
        """
        if not self._restarts:
            return 0.0
        return min(1.0, max(0.0, statistics.median(self._restarts) - 1.0))

    def cost(self, context: int, rows: int) -> float:
        """Return what a pass over `rows` rows costs, at least 1 of them."""
        bucket = context_bucket(context)
        memo = self._memo.setdefault(bucket, {})
        cost = memo.get(rows)
        if cost is None:
            cost = memo[rows] = self._interpolated(bucket, rows)
        return cost

    def check_cost(self, context: int) -> float:
        """Return what a step costs whose draft is refuted by the step in flight."""
        bucket = context_bucket(context)
        return max(1.0, self._estimates.get(bucket, {}).get(_CHECK, _CHECK_PRIOR))

    def is_measured(self, context: int, rows: int) -> bool:
        """Return whether passes of that size were measured at about that context length."""
        return rows in self._estimates.get(context_bucket(context), {})

    def curve(self, context: int, longest: int) -> CostCurve:
        """Return the costs of 1 to `longest` rows after `context` tokens."""
        return CostCurve({rows: self.cost(context, rows) for rows in range(1, longest + 1)})

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return the measured costs by bucket and rows, as JSON has them."""
        return {
            str(bucket): {str(rows): round(cost, 4) for rows, cost in sorted(estimates.items())}
            for bucket, estimates in sorted(self._estimates.items())
        }

    def remember(self, costs: Mapping[int, Mapping[int, float]]) -> None:
        """Take in what an earlier run measured, by bucket and rows; later samples outvote it."""
        for bucket, by_rows in costs.items():
            for rows, cost in by_rows.items():
                samples = deque([cost] * _REMEMBERED, maxlen=_SAMPLES)
                self._samples.setdefault(bucket, {})[rows] = samples
                self._estimates.setdefault(bucket, {})[rows] = cost
        self._forget_memo()

    def learn(self, context: int, plain_s: Sequence[float], costs: Mapping[int, float]) -> None:
        """Take over what was measured at once: seconds of plain steps, costs by rows."""
        self.begin(context)
        for seconds in plain_s[-_SPEEDS:]:
            self.add_plain(seconds)
        several = {rows: cost for rows, cost in costs.items() if rows > 1}
        self.remember({context_bucket(context): several})

    def _add(self, context: int, rows: int, cost: float) -> int:
        """Take in a sample; return how many there are of its kind."""
        bucket = context_bucket(context)
        # What other sizes say, once there are some: the prior alone would drag down neighbours.
        prior = self.cost(context, rows) if rows != _CHECK else _CHECK_PRIOR
        samples = self._samples.setdefault(bucket, {}).get(rows)
        if samples is None:
            samples = self._samples[bucket][rows] = deque(maxlen=_SAMPLES)
        samples.append(cost)
        self.num_samples += 1
        self._last[bucket, rows] = self.num_samples
        if len(samples) == 1:
            # A stall makes a pass dear, nothing makes one cheap.
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
        """Forget smaller sizes measured long ago that would cost more: the machine has changed."""
        estimates = self._estimates[bucket]
        for other in [size for size in estimates if _CHECK < size < rows]:
            age = self.num_samples - self._last.get((bucket, other), 0)
            if age > _LONG_AGO and estimates[other] > _CLEARLY * cost:
                del estimates[other], self._samples[bucket][other]

    def _forget_memo(self) -> None:
        self._memo.clear()
        self._points.clear()

    def _interpolated(self, bucket: int, rows: int) -> float:
        points = self._points.get(bucket)
        if points is None:
            points = self._points[bucket] = self._measured(bucket)
        sizes, costs = points
        index = bisect.bisect_left(sizes, rows)
        if index < len(sizes) and sizes[index] == rows:
            return costs[index]
        if index == len(sizes):
            return self._beyond(sizes[-1], costs[-1], rows)
        low, high = sizes[index - 1], sizes[index]
        share = (rows - low) / (high - low)
        return costs[index - 1] + share * (costs[index] - costs[index - 1])

    def _beyond(self, largest: int, cost: float, rows: int) -> float:
        """Return the cost of more rows than were measured.

        Up to about twice as many it is hoped to rise no faster than it did so far, or than the
        prior does: what is thought too dear is never measured. Sizes are found out step by step.
        """
        dear = cost * self._prior.cost(rows) / self._prior.cost(largest)
        if largest == 1 or rows > _REACH * largest:
            return dear
        slope = max(0.0, (cost - 1.0) / (largest - 1))
        return min(dear, cost + slope * (rows - largest))

    def _measured(self, bucket: int) -> tuple[list[int], list[float]]:
        """Return sizes and costs that hold for a bucket."""
        merged: dict[int, float] = {}
        # The nearest bucket comes last and wins, among two as near the shorter one.
        for other in sorted(self._estimates, key=lambda b: (-abs(b - bucket), -b)):
            merged |= self._estimates[other]
        merged.pop(_CHECK, None)
        # A single row is what the unit is.
        merged[1] = 1.0
        sizes = sorted(merged)
        return sizes, _never_falling([merged[rows] for rows in sizes])


def _never_falling(costs: list[float]) -> list[float]:
    """Return the costs nearest to these that are at least 1 and do not fall.

    Neighbours out of order are replaced by their mean until none are (pool adjacent violators; Ayer
    et al. 1955): what a busy machine disturbs most is which of two sizes is the dearer one.
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
