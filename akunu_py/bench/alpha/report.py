"""What a measurement of acceptance came to."""

from collections.abc import Mapping
from dataclasses import dataclass

from akunu_py.bench.environment import Environment
from akunu_py.bench.replay.bootstrap import Interval
from akunu_py.bench.report import Model


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over tokens, and its 95 % interval from resampled prompts."""

    value: float
    interval: Interval

    def to_dict(self) -> dict[str, object]:
        """Return both as JSON-ready values."""
        return {"value": self.value, "interval": list(self.interval)}


@dataclass(frozen=True, slots=True)
class SourceFigures:
    """One source of q at one temperature.

    Attributes:
        name: of the source.
        alpha: sum min(p, q), what rejection sampling accepts.
        coupled: what draws by the target's own noise accept.
        match: what independent draws, compared with the target's, accept.
        known: share of the tokens for which the source had anything to say.
        alpha_known: alpha over those alone; None without any.
        lenient: alpha_l by lenience l.

    """

    name: str
    alpha: Figure
    coupled: Figure
    match: Figure
    known: float
    alpha_known: float | None
    lenient: Mapping[float, Figure]

    def to_dict(self) -> dict[str, object]:
        """Return the figures as JSON-ready values."""
        return {
            "name": self.name,
            "alpha": self.alpha.to_dict(),
            "coupled": self.coupled.to_dict(),
            "match": self.match.to_dict(),
            "known": self.known,
            "alpha_known": self.alpha_known,
            "lenient": {f"{share:g}": found.to_dict() for share, found in self.lenient.items()},
        }


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


@dataclass(frozen=True, slots=True)
class AlphaReport:
    """A measurement: what was measured, with what, and each temperature's figures.

    `draft_model` is None where there was none; `corpus` what unigrams and bigrams were fitted on;
    `num_tokens` how many tokens a setting was to have.
    """

    model: Model
    draft_model: Model | None
    environment: Environment
    corpus: str
    seed: int
    num_tokens: int
    settings: tuple[Setting, ...]

    def to_dict(self) -> dict[str, object]:
        """Return everything as JSON-ready values."""
        return {
            "model": self.model.to_dict(),
            "draft_model": None if self.draft_model is None else self.draft_model.to_dict(),
            "environment": self.environment.to_dict(),
            "corpus": self.corpus,
            "seed": self.seed,
            "num_tokens": self.num_tokens,
            "settings": [setting.to_dict() for setting in self.settings],
        }
