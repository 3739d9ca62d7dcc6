"""Results of a measurement of acceptance: rows, figures and tables.

Acceptance is computed from p and q, so all figures but the speeds are deterministic.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from akunu_py.bench.bootstrap import Ratio
from akunu_py.bench.rows import Count, Number, Row, plain
from akunu_py.bench.run import Findings
from akunu_py.bench.tables import Column, Table, ratio_columns, table_of

_SOURCE = (
    Column("q", "q"),
    Column("drafts", "drafts", ".0%"),
    *ratio_columns("alpha", "alpha", ".3f"),
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
    *ratio_columns("measured", "speed\nmeasured", ".2f"),
    Column("predicted_tokens_per_pass", "a pass\npredicted", ".2f"),
    Column("tokens_per_pass", "a pass\nmeasured", ".2f"),
)
_PREDICTION_NOTE = (
    "accepted: by coupled draws, where there is a draft. c, C: a drafted token, and a pass over "
    "gamma + 1 rows, in plain steps. speed: over plain decoding, predicted by theorem 3.8 of "
    "arXiv:2211.17192, with C in place of 1, and measured. a pass: tokens"
)
_NOT_EXACT = "lenient: not exact; what is accepted does not follow the model's law"


class SourceFigures(Row, frozen=True):
    """One source of q at one temperature.

    Attributes:
        name: of the source.
        alpha: mean over tokens of sum min(p, q), the acceptance of rejection sampling.
        coupled: acceptance of draws with the target's own noise.
        match: acceptance of independent draws that are compared with the target's.
        known: share of the tokens for which the source had a distribution.
        coupled_known: acceptance of coupled draws over those tokens alone; None without any.
        lenient: alpha_l by lenience l.

    """

    name: str
    alpha: Ratio
    coupled: Ratio
    match: Ratio
    known: Number
    coupled_known: Number | None
    lenient: dict[float, Ratio]


class Setting(Row, frozen=True):
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
    """One drafter at one temperature: predicted and measured speed over plain decoding's.

    Attributes:
        drafter: its name.
        temperature: of the replies.
        num_draft_tokens: gamma, the most tokens drafted for a pass.
        acceptance: of a coupled draw, for tokens that the drafter has a distribution for.
        known: share of such tokens.
        draft_cost: c, the drafter's time a drafted token, in plain steps.
        pass_cost: C(gamma + 1), in plain steps.
        theorem: the walltime factor of theorem 3.8.
        predicted: the same with C in place of 1.
        predicted_tokens_per_pass: tokens a pass that both assume.
        measured: tokens a second with drafting / without.
        tokens_per_pass: measured tokens a pass.

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
    measured: Ratio
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
    settings: tuple[Setting, ...]
    predictions: tuple[Prediction, ...] = ()
    finished: bool = True

    def findings(self, corpus_hash: str | None = None) -> Findings:
        """Return the figures, tables and rows.

        `corpus_hash` is the hash of the file that unigrams and bigrams were fitted on, if any.
        """
        cells = {
            setting.name: {
                **plain(setting),
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
                {
                    "id": f"{source.name}, {setting.name}",
                    "category": setting.name,
                    **plain(source),
                }
                for setting in self.settings
                for source in setting.sources
            ),
            finished=self.finished,
        )

    def _tables(self) -> Iterable[Table]:
        for setting in self.settings:
            lenience = list(setting.sources[0].lenient)
            notes = [_NOT_EXACT] if lenience else []
            if setting.num_tokens < self.num_tokens:
                notes.insert(
                    0, f"fewer than {self.num_tokens}: greedy replies to these prompts have no more"
                )
            lenient = (
                Column(f"lenient_{share:g}", f"lenient\n{share:g}", ".3f") for share in lenience
            )
            yield table_of(
                f"temperature-{setting.temperature:g}".replace(".", "_"),
                f"{setting.name}: {setting.num_tokens} tokens of {setting.num_replies} replies",
                (*_SOURCE, *lenient),
                map(_record, setting.sources),
                note=". ".join(notes),
            )
        if self.predictions:
            yield table_of(
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
