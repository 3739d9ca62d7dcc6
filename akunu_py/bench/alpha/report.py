"""What a measurement of acceptance came to."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from akunu_py.bench.bootstrap import Interval
from akunu_py.bench.environment import Environment
from akunu_py.bench.measured_model import Model
from akunu_py.bench.metrics import Speedup
from akunu_py.bench.record import Record, is_number
from akunu_py.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over tokens, and its 95 % interval from resampled sessions."""

    value: float
    interval: Interval

    def to_dict(self) -> dict[str, object]:
        """Return both as JSON-ready values."""
        ends = [end if math.isfinite(end) else None for end in self.interval]
        return {"value": self.value, "interval": ends}

    @classmethod
    def from_dict(cls, record: Record) -> "Figure":
        """Return the figure of a JSON object; raises ConfigError saying what is wrong with it."""
        ends = record.values("interval")
        if len(ends) != 2 or not all(end is None or is_number(end) for end in ends):
            raise ConfigError(f"{record.where}: interval is {ends!r:.60}; it should be two numbers")
        low, high = (end if isinstance(end, int | float) else math.nan for end in ends)
        return cls(record.number("value"), (low, high))


@dataclass(frozen=True, slots=True)
class SourceFigures:
    """One source of q at one temperature.

    Attributes:
        name: of the source.
        alpha: sum min(p, q), what rejection sampling accepts.
        coupled: what draws by the target's own noise accept.
        match: what independent draws, compared with the target's, accept.
        known: share of the tokens for which the source had anything to say.
        coupled_known: what coupled draws accept over those alone; None without any.
        lenient: alpha_l by lenience l.

    """

    name: str
    alpha: Figure
    coupled: Figure
    match: Figure
    known: float
    coupled_known: float | None
    lenient: Mapping[float, Figure]

    def to_dict(self) -> dict[str, object]:
        """Return the figures as JSON-ready values."""
        return {
            "name": self.name,
            "alpha": self.alpha.to_dict(),
            "coupled": self.coupled.to_dict(),
            "match": self.match.to_dict(),
            "known": self.known,
            "coupled_known": self.coupled_known,
            "lenient": {str(share): found.to_dict() for share, found in self.lenient.items()},
        }

    @classmethod
    def from_dict(cls, record: Record) -> "SourceFigures":
        """Return the figures of a JSON object; raises ConfigError saying what is wrong."""
        known = None if record.is_null("coupled_known") else record.number("coupled_known")
        lenient = record.record("lenient")
        return cls(
            name=record.text("name"),
            alpha=Figure.from_dict(record.record("alpha")),
            coupled=Figure.from_dict(record.record("coupled")),
            match=Figure.from_dict(record.record("match")),
            known=record.number("known"),
            coupled_known=known,
            lenient={
                float(share): Figure.from_dict(lenient.record(share))
                for share in record.mapping("lenient")
            },
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """All sources at one temperature, over so many tokens of so many replies."""

    temperature: float
    num_tokens: int
    num_replies: int
    sources: tuple[SourceFigures, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the setting as JSON-ready values."""
        return {
            "temperature": self.temperature,
            "num_tokens": self.num_tokens,
            "num_replies": self.num_replies,
            "sources": [source.to_dict() for source in self.sources],
        }

    @classmethod
    def from_dict(cls, record: Record) -> "Setting":
        """Return the setting of a JSON object; raises ConfigError saying what is wrong with it."""
        return cls(
            temperature=record.number("temperature"),
            num_tokens=record.count("num_tokens"),
            num_replies=record.count("num_replies"),
            sources=tuple(map(SourceFigures.from_dict, record.records("sources"))),
        )


@dataclass(frozen=True, slots=True)
class Prediction:
    """One drafter at one temperature: speeds over plain decoding's, predicted and measured.

    Attributes:
        drafter: its name.
        temperature: of the replies.
        num_draft_tokens: gamma, the most that are drafted for a pass.
        acceptance: of a coupled draw, where the drafter has anything to say.
        known: for what share of the tokens it has.
        draft_cost: c, the drafter's time a drafted token, in plain steps.
        pass_cost: C(gamma + 1), in plain steps.
        theorem: the walltime factor of theorem 3.8.
        predicted: the same with C in place of 1.
        predicted_tokens_per_pass: what both take a pass to emit.
        measured: tokens a second with drafting over those without.
        tokens_per_pass: what a pass did emit.

    """

    drafter: str
    temperature: float
    num_draft_tokens: int
    acceptance: float
    known: float
    draft_cost: float
    pass_cost: float
    theorem: float
    predicted: float
    predicted_tokens_per_pass: float
    measured: Speedup
    tokens_per_pass: float


@dataclass(frozen=True, slots=True)
class AlphaReport:
    """A measurement: what was measured, with what, and each temperature's figures.

    `draft_model` is None where there was none; `corpus` what unigrams and bigrams were fitted on;
    `num_tokens` how many tokens a setting was to have; `predictions` are there if asked for.
    `finished` is False where an interrupt left settings out.
    """

    model: Model
    draft_model: Model | None
    environment: Environment
    corpus: str
    seed: int
    num_tokens: int
    settings: tuple[Setting, ...]
    predictions: tuple[Prediction, ...] = ()
    finished: bool = True
