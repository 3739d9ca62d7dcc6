"""Results of a hit-rate run: replies with and without drafting, and the figures over them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from msgspec.structs import replace

from akunu_py.bench import metrics
from akunu_py.bench.bootstrap import Ratio
from akunu_py.bench.metrics import Pass, TimedPair
from akunu_py.bench.result_file import Failure
from akunu_py.bench.rows import Count, Number, Row
from akunu_py.bench.workloads import order_of
from akunu_py.models.pass_times import PassTimes
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import DecodeStats, Exactness, GenerationConfig, RowBits


class Reply(Row, frozen=True):
    """One reply: its tokens, its passes and where the time went.

    `first_token_s` and `whole_s` are the seconds from the call to the first token and to the end:
    making the drafter counts, and the prefill.
    """

    token_ids: tuple[Count, ...]
    finish_reason: str
    prefill_s: Number
    first_token_s: Number
    decode_s: Number
    whole_s: Number
    stats: DecodeStats
    passes: tuple[Pass, ...]
    row_bits: RowBits = "unknown"

    @property
    def tokens_per_s(self) -> float | None:
        """Generated tokens per second of decoding; None if no time passed."""
        return len(self.token_ids) / self.decode_s if self.decode_s > 0 else None


class Outcome(Row, frozen=True):
    """One prompt, answered without (`off`) and with (`on`) drafting.

    `first_difference` is the index of the first generated token that differs; the shorter reply's
    length if the other begins with all of it; None for identical replies. `top2_margin` is the
    difference of the model's two highest logits there. Near 0, passes of different sizes rounded a
    tie differently; far from 0, something is wrong. It is known only at temperature 0, where the
    logits alone decide.
    """

    id: str
    category: str
    session: str
    turn: Count
    num_prompt_tokens: Count
    off: Reply
    on: Reply
    top2_margin: Number | None = None

    @property
    def first_difference(self) -> int | None:
        """The index of the first token that differs; None for identical replies."""
        return metrics.first_difference(self.off.token_ids, self.on.token_ids)

    def with_margin(self, margin: float) -> "Outcome":
        """Return the outcome with the margin at its first difference."""
        return replace(self, top2_margin=margin)


@dataclass(frozen=True)
class Summary:
    """The figures of some prompts. Rates are over all their passes and tokens, not over prompts.

    `off_` means without drafting, `on_` with it. `curve` is the cost of passes, None if that was
    not measured; `exactness` is the report's.
    """

    outcomes: tuple[Outcome, ...]
    curve: CostCurve | None = None
    exactness: Exactness = "stream"

    @property
    def num_prompts(self) -> int:
        """Prompts that were answered."""
        return len(self.outcomes)

    @cached_property
    def num_identical(self) -> int | None:
        """Prompts whose two replies have the same tokens; None if they need not be the same."""
        if self.exactness != "stream":
            return None
        return sum(outcome.first_difference is None for outcome in self.outcomes)

    @cached_property
    def stats(self) -> DecodeStats:
        """Counts of the replies with drafting."""
        return sum((outcome.on.stats for outcome in self.outcomes), DecodeStats())

    @cached_property
    def passes(self) -> tuple[Pass, ...]:
        """All passes of the replies with drafting."""
        return tuple(step for outcome in self.outcomes for step in outcome.on.passes)

    @property
    def off_tokens(self) -> int:
        """Tokens generated without drafting."""
        return sum(len(outcome.off.token_ids) for outcome in self.outcomes)

    @property
    def on_tokens(self) -> int:
        """Tokens generated with drafting."""
        return sum(len(outcome.on.token_ids) for outcome in self.outcomes)

    @property
    def off_decode_s(self) -> float:
        """Seconds of decoding without drafting."""
        return sum(outcome.off.decode_s for outcome in self.outcomes)

    @property
    def on_decode_s(self) -> float:
        """Seconds of decoding with drafting."""
        return sum(outcome.on.decode_s for outcome in self.outcomes)

    @property
    def off_tokens_per_s(self) -> float | None:
        """Generated tokens per second of decoding without drafting; None if no time passed."""
        return self.off_tokens / self.off_decode_s if self.off_decode_s > 0 else None

    @property
    def on_tokens_per_s(self) -> float | None:
        """Generated tokens per second of decoding with drafting; None if no time passed."""
        return self.on_tokens / self.on_decode_s if self.on_decode_s > 0 else None

    @cached_property
    def decode(self) -> Ratio:
        """The speedup of decoding, with its interval."""
        return metrics.speedup([self._pair(item, item.off.decode_s, item.on.decode_s)
                                for item in self.outcomes])  # fmt: skip

    @cached_property
    def end_to_end(self) -> Ratio:
        """The speedup of prefill and decoding together, with its interval."""
        return metrics.speedup([self._pair(item, item.off.whole_s, item.on.whole_s)
                                for item in self.outcomes])  # fmt: skip

    @cached_property
    def normalised_speed(self) -> Ratio | None:
        """The speed under the measured costs of passes; None if those are unknown."""
        if self.curve is None:
            return None
        replies = [(item.session or item.id, item.on.passes) for item in self.outcomes]
        return metrics.normalised_speed(replies, self.curve)

    @cached_property
    def looping_share(self) -> float | None:
        """The share of tokens in loops in the replies without drafting."""
        looping = sum(metrics.looping_tokens(item.off.token_ids) for item in self.outcomes)
        return looping / self.off_tokens if self.off_tokens else None

    def median_first_token_s(self, *, drafting: bool) -> float | None:
        """Return the median time to the first token."""
        times = [(item.on if drafting else item.off).first_token_s for item in self.outcomes]
        return median(times) if times else None

    @staticmethod
    def _pair(item: Outcome, off_s: float, on_s: float) -> TimedPair:
        off, on = len(item.off.token_ids), len(item.on.token_ids)
        return TimedPair(item.session or item.id, off, off_s, on, on_s)


@dataclass(frozen=True)
class HitRateReport:
    """A hit-rate run: each prompt's outcome.

    `config` is the configuration of the replies with drafting. `times` are the costs of passes in
    this run, None if they were not measured.
    """

    config: GenerationConfig
    outcomes: tuple[Outcome, ...]
    failures: tuple[Failure, ...] = ()
    times: PassTimes | None = None
    finished: bool = True

    @cached_property
    def curve(self) -> CostCurve | None:
        """The cost of passes; None if it was not measured."""
        return None if self.times is None else CostCurve({**self.times.costs, 1: 1.0})

    @cached_property
    def categories(self) -> dict[str, Summary]:
        """The figures of each category that has a prompt, in the order of `order_of`."""
        return {
            category: self._summary([item for item in self.outcomes if item.category == category])
            for category in order_of(outcome.category for outcome in self.outcomes)
        }

    @cached_property
    def total(self) -> Summary:
        """The figures of all prompts."""
        return self._summary(self.outcomes)

    @property
    def differences(self) -> tuple[Outcome, ...]:
        """The outcomes whose replies differ with and without drafting although they should not."""
        if self.exactness != "stream":
            return ()
        return tuple(item for item in self.outcomes if item.first_difference is not None)

    @property
    def exactness(self) -> Exactness:
        """What drafting keeps unchanged."""
        return metrics.reply_exactness(self.config)

    @property
    def deterministic_passes(self) -> bool:
        """Whether drafts depend only on the text, not on the measured cost of passes."""
        return self.config.draft_budget == "always"

    def _summary(self, outcomes: Sequence[Outcome]) -> Summary:
        return Summary(tuple(outcomes), self.curve, self.exactness)
