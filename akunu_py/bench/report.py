"""What a hit-rate run came to: replies with and without drafting, and the rates over them."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from akunu_py.bench.environment import Environment
from akunu_py.bench.measured_model import Model as Model  # noqa: PLC0414 - offered here too
from akunu_py.bench.workloads import order_of
from akunu_py.types import DecodeStats, GenerationConfig, GenerationResult


@dataclass(frozen=True, slots=True)
class Outcome:
    """One prompt, answered without (`off`) and with (`on`) drafting.

    `first_difference` is the index of the first generated token that differs, the shorter reply's
    length where one reply begins with all of the other, None for identical replies. `top2_margin`
    is how far the model's two highest logits lie apart there: near 0 the passes of different sizes
    rounded a tie differently, far from 0 something is wrong. It is known at temperature 0 only,
    where the logits alone decide.
    """

    id: str
    category: str
    off: GenerationResult
    on: GenerationResult
    first_difference: int | None = None
    top2_margin: float | None = None

    @property
    def speedup(self) -> float | None:
        """Tokens a second with drafting over those without; None where either is unknown."""
        return _ratio(self.on.decode_tokens_per_s, self.off.decode_tokens_per_s)

    def to_dict(self) -> dict[str, object]:
        """Return counts, seconds and the difference as JSON-ready values."""
        return {
            "id": self.id,
            "category": self.category,
            "num_prompt_tokens": self.on.num_prompt_tokens,
            "off": _reply_dict(self.off),
            "on": _reply_dict(self.on),
            "drafted": self.on.stats.drafted,
            "accepted": self.on.stats.accepted,
            "steps": self.on.stats.steps,
            "first_difference": self.first_difference,
            "top2_margin": self.top2_margin,
        }


def _ratio(on: float | None, off: float | None) -> float | None:
    return on / off if on is not None and off else None


def _reply_dict(result: GenerationResult) -> dict[str, object]:
    return {
        "tokens": len(result.token_ids),
        "finish_reason": result.finish_reason,
        "prefill_s": result.prefill_s,
        "decode_s": result.decode_s,
    }


@dataclass(frozen=True, slots=True)
class Summary:
    """The totals over some prompts. Rates are over all their passes and tokens, not over prompts.

    `off_` is without, `on_` with drafting; `stats` are those of the replies with drafting.
    `median_speedup` is that over the prompts: one that the machine stalled in hardly moves it.
    """

    num_prompts: int
    num_identical: int
    off_tokens: int
    off_decode_s: float
    on_tokens: int
    on_decode_s: float
    stats: DecodeStats
    median_speedup: float | None

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> "Summary":
        """Add up outcomes."""
        speedups = [item.speedup for item in outcomes if item.speedup is not None]
        return cls(
            num_prompts=len(outcomes),
            num_identical=sum(outcome.first_difference is None for outcome in outcomes),
            off_tokens=sum(len(outcome.off.token_ids) for outcome in outcomes),
            off_decode_s=sum(outcome.off.decode_s for outcome in outcomes),
            on_tokens=sum(len(outcome.on.token_ids) for outcome in outcomes),
            on_decode_s=sum(outcome.on.decode_s for outcome in outcomes),
            stats=sum((outcome.on.stats for outcome in outcomes), DecodeStats()),
            median_speedup=median(speedups) if speedups else None,
        )

    @property
    def off_tokens_per_s(self) -> float | None:
        """Generated tokens a second of decoding without drafting; None where no time passed."""
        return self.off_tokens / self.off_decode_s if self.off_decode_s > 0 else None

    @property
    def on_tokens_per_s(self) -> float | None:
        """Generated tokens a second of decoding with drafting; None where no time passed."""
        return self.on_tokens / self.on_decode_s if self.on_decode_s > 0 else None

    @property
    def speedup(self) -> float | None:
        """Tokens a second with drafting over those without; None where either is unknown."""
        return _ratio(self.on_tokens_per_s, self.off_tokens_per_s)

    def to_dict(self) -> dict[str, object]:
        """Return totals and rates as JSON-ready values."""
        return {
            "num_prompts": self.num_prompts,
            "num_identical": self.num_identical,
            "off_tokens": self.off_tokens,
            "off_decode_s": self.off_decode_s,
            "off_tokens_per_s": self.off_tokens_per_s,
            "on_tokens": self.on_tokens,
            "on_decode_s": self.on_decode_s,
            "on_tokens_per_s": self.on_tokens_per_s,
            "speedup": self.speedup,
            "median_speedup": self.median_speedup,
            **self.stats.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class HitRateReport:
    """A hit-rate run: what was measured, with what, and each prompt's outcome.

    `config` is that of the replies with drafting.
    """

    config: GenerationConfig
    model: Model
    environment: Environment
    outcomes: tuple[Outcome, ...]

    @property
    def categories(self) -> dict[str, Summary]:
        """The totals of each category that has a prompt, in the order of `order_of`."""
        grouped = {
            category: [outcome for outcome in self.outcomes if outcome.category == category]
            for category in order_of(outcome.category for outcome in self.outcomes)
        }
        return {category: Summary.of(members) for category, members in grouped.items()}

    @property
    def total(self) -> Summary:
        """The totals of all prompts."""
        return Summary.of(self.outcomes)

    @property
    def differences(self) -> tuple[Outcome, ...]:
        """The outcomes whose replies differ with and without drafting."""
        return tuple(item for item in self.outcomes if item.first_difference is not None)

    def to_dict(self) -> dict[str, object]:
        """Return everything as JSON-ready values; seconds are in fields that end in `_s`."""
        return {
            "config": {
                "drafter": self.config.drafter,
                "num_draft_tokens": self.config.num_draft_tokens,
                "draft_budget": self.config.draft_budget,
                "max_tokens": self.config.max_tokens,
                "temperature": self.config.temperature,
                "seed": self.config.seed,
            },
            "model": self.model.to_dict(),
            "environment": self.environment.to_dict(),
            "total": self.total.to_dict(),
            "categories": {name: item.to_dict() for name, item in self.categories.items()},
            "prompts": [outcome.to_dict() for outcome in self.outcomes],
        }
