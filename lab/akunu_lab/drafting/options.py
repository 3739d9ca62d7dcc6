"""What the laboratory's drafters can be told, beyond what akunu's own take."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, get_args

from akunu_py.api import ConfigError, Count, Number, option

DraftLength = Literal["budget", "fixed", "entropy", "lower-bound"]


@dataclass(frozen=True, kw_only=True)
class DrawOptions:
    """Options of drafters that draw from probabilities; the rules are in docs/methods.md."""

    draft_temperature: float | None = option(
        None,
        Number(1e-3, 100, "0 for the likeliest token, or a number from 0.001 to 100", or_zero=True),
        "Temperature of a draft model or of counts; the reply's, when left out.",
        metavar="T",
    )
    draft_length: DraftLength = option(
        "budget",
        get_args(DraftLength),
        "Where a draft of a draft model or counts ends: by draft_budget, at num_draft_tokens, "
        "earlier if the first token is uncertain, or at an unlikely token.",
    )
    min_draft_tokens: int = option(
        1,
        Count(0, "0 or more"),
        "With draft_length entropy: draft N tokens at least.",
        metavar="N",
    )
    draft_length_beta: float = option(
        0.0,
        Number(0, 1, "0 (no memory) or more, below 1", excluded=1),
        "With draft_length entropy: weight of earlier drafts in the smoothed entropy, below 1.",
        metavar="B",
    )
    draft_length_bound: float = option(
        0.4,
        Number(0, 1, "0 (never stop) to 1"),
        "With draft_length lower-bound: end a draft below this probability.",
        metavar="P",
    )
    """The default is that of `assistant_confidence_threshold` in Hugging Face's transformers."""

    def __post_init__(self) -> None:
        rules: dict[str, DraftLength] = {
            "min_draft_tokens": "entropy",
            "draft_length_beta": "entropy",
            "draft_length_bound": "lower-bound",
        }
        for declared in fields(DrawOptions):
            rule = rules.get(declared.name, self.draft_length)
            changed = getattr(self, declared.name) != declared.default
            if changed and self.draft_length != rule:
                raise ConfigError(
                    f"{declared.name} is for draft_length {rule!r}, but draft_length is "
                    f"{self.draft_length!r}; leave {declared.name} out, or set draft_length"
                )


@dataclass(frozen=True, kw_only=True)
class CorpusOptions(DrawOptions):
    """Options of drafts from the counts of a corpus."""

    counts: str | Path | None = option(
        None,
        Path,
        "Counts of a corpus that `akunu counts fit` wrote, for --drafter corpus.",
        metavar="FILE",
    )


@dataclass(frozen=True, kw_only=True)
class HeadOptions:
    """Options of trees of a prediction head's guesses."""

    num_proposals: int = option(
        1,
        Count(1, "1 to 8", most=8),
        "Let a draft model or a head propose K tokens for each position, verified as a tree.",
        metavar="K",
    )


@dataclass(frozen=True, kw_only=True)
class ModelOptions(HeadOptions, DrawOptions):
    """Options of draft models."""
