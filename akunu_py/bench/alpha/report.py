"""What a measurement of acceptance came to."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from akunu_py.bench.bootstrap import Interval
from akunu_py.bench.environment import Environment
from akunu_py.bench.report import Model


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over tokens, and its 95 % interval from resampled sessions."""

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
    measured: float
    tokens_per_pass: float


@dataclass(frozen=True, slots=True)
class AlphaReport:
    """A measurement: what was measured, with what, and each temperature's figures.

    `draft_model` is None where there was none; `corpus` what unigrams and bigrams were fitted on;
    `num_tokens` how many tokens a setting was to have; `predictions` are there if asked for.
    """

    model: Model
    draft_model: Model | None
    environment: Environment
    corpus: str
    seed: int
    num_tokens: int
    settings: tuple[Setting, ...]
    predictions: tuple[Prediction, ...] = ()

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
            "predictions": [asdict(prediction) for prediction in self.predictions],
        }
