"""Results of a measurement of acceptance: rows, figures and tables.

Acceptance is computed from p and q, so all figures but the speeds are deterministic.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from akunu_lab.study.values import Count, Number
from akunu_py.api import Column, Findings, Ratio, Row, Table

_SOURCE = (
    Column("q", "q"),
    Column("drafts", "drafts", ".0%"),
    *Column.ratio("alpha", "alpha", ".3f"),
    Column("coupled", "coupled", ".3f"),
    Column("independent", "independent", ".3f"),
)
_PREDICTION = (
    Column("drafter", "drafter"),
    Column("temperature", "T", "g"),
    Column("num_draft_tokens", "gamma"),
    Column("known", "drafts", ".0%"),
    Column("acceptance", "accepted", ".3f"),
    Column("draft_cost", "c", ".3f"),
    Column("pass_cost", "C", ".2f"),
    Column("theorem", "speed\n3.8", ".2f"),
    Column("predicted", "speed\nwith C", ".2f"),
    *Column.ratio("measured", "speed\nmeasured", ".2f"),
    Column("predicted_tokens_per_pass", "a pass\npredicted", ".2f"),
    Column("tokens_per_pass", "a pass\nmeasured", ".2f"),
)
_PREDICTION_NOTE = (
    "accepted: by coupled draws, where there is a draft. c, C: a drafted token, and a pass over "
    "gamma + 1 rows, in plain steps. speed: over plain decoding, predicted by theorem 3.8 of "
    "arXiv:2211.17192, with C in place of 1, and measured. a pass: tokens"
)
_FEWER = "fewer than {}: greedy replies to these prompts have no more"
_NOT_EXACT = "lenient: not exact; what is accepted does not follow the model's law"


class SourceFigures(Row, frozen=True):
    """One source of q at one temperature."""

    name: str
    alpha: Ratio
    """Mean over tokens of sum min(p, q), the acceptance of rejection sampling."""
    coupled: Ratio
    """Acceptance of draws with the target's own noise."""
    match: Ratio
    """Acceptance of independent draws that are compared with the target's."""
    known: Number
    """Share of the tokens for which the source had a distribution."""
    coupled_known: Number | None
    """Acceptance of coupled draws over those tokens alone; None without any."""
    lenient: dict[float, Ratio]
    """alpha_l by lenience l."""


class AlphaSetting(Row, frozen=True):
    """All sources at one temperature, over `num_tokens` tokens of `num_replies` replies."""

    temperature: Number
    num_tokens: Count
    num_replies: Count
    sources: tuple[SourceFigures, ...]

    @property
    def name(self) -> str:
        return f"temperature {self.temperature:g}"


@dataclass(frozen=True, slots=True)
class Prediction:
    """One drafter at one temperature: predicted and measured speed over plain decoding's."""

    drafter: str
    temperature: float
    num_draft_tokens: int
    """gamma, the most tokens drafted for a pass."""
    acceptance: float
    """Of a coupled draw, for tokens that the drafter has a distribution for."""
    known: float
    """Share of such tokens."""
    draft_cost: float
    """c, the drafter's time a drafted token, in plain steps."""
    pass_cost: float
    """C(gamma + 1), in plain steps."""
    theorem: float
    """The walltime factor of theorem 3.8."""
    predicted: float
    """The same with C in place of 1."""
    predicted_tokens_per_pass: float
    """Tokens a pass that both assume."""
    measured: Ratio
    """Tokens a second with drafting over those without."""
    tokens_per_pass: float


@dataclass(frozen=True, slots=True)
class AlphaReport:
    """The figures of each temperature.

    `corpus` names the text that unigrams and bigrams were fitted on; `num_tokens` is the requested
    number of tokens for a setting; `predictions` is filled on request. `finished` is False if an
    interrupt left settings out.
    """

    corpus: str
    seed: int
    num_tokens: int
    settings: tuple[AlphaSetting, ...]
    predictions: tuple[Prediction, ...] = ()
    finished: bool = True

    def findings(self, corpus_hash: str | None = None) -> Findings:
        """Return the figures, tables and rows.

        `corpus_hash` is the hash of the file that unigrams and bigrams were fitted on, if any.
        """
        cells = {
            setting.name: {
                **setting.plain(),
                "sources": {source.name: source for source in setting.sources},
            }
            for setting in self.settings
        }
        predictions = [asdict(made) for made in self.predictions]
        return Findings(
            deterministic={"corpus": corpus_hash, "cells": cells},
            timing={"predictions": predictions} if predictions else {},
            tables=tuple(self._tables()),
            items=tuple(
                {"id": f"{source.name}, {setting.name}", "category": setting.name, **source.plain()}
                for setting in self.settings
                for source in setting.sources
            ),
            finished=self.finished,
        )

    def _tables(self) -> Iterable[Table]:
        for setting in self.settings:
            lenient = [
                Column(f"lenient_{share:g}", f"lenient\n{share:g}", ".3f")
                for share in setting.sources[0].lenient
            ]
            notes = [_FEWER.format(self.num_tokens)] * (setting.num_tokens < self.num_tokens)
            notes += [_NOT_EXACT] * bool(lenient)
            yield Table.of(
                f"temperature-{setting.temperature:g}".replace(".", "_"),
                f"{setting.name}: {setting.num_tokens} tokens of {setting.num_replies} replies",
                (*_SOURCE, *lenient),
                map(_record, setting.sources),
                note=". ".join(notes),
            )
        if self.predictions:
            yield Table.of(
                "speeds",
                "Predicted and measured speed",
                _PREDICTION,
                map(asdict, self.predictions),
                note=_PREDICTION_NOTE,
            )


def _record(source: SourceFigures) -> dict[str, object]:
    return {
        "q": source.name,
        "drafts": source.known,
        "alpha": source.alpha,
        "coupled": source.coupled,
        "independent": source.match,
        **{f"lenient_{share:g}": found for share, found in source.lenient.items()},
    }
