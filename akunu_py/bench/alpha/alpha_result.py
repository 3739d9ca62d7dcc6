"""A measurement of acceptance as a result: p and q decide, so all but the speeds repeat."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict

from akunu_py.bench.alpha.report import AlphaReport, Prediction, Setting
from akunu_py.bench.result_file import BenchResult
from akunu_py.bench.tables import Cell, Column, Table

_SOURCE = (
    Column("q", "q"),
    Column("drafts", "drafts", ".0%"),
    Column("alpha", "alpha", ".3f"),
    Column("alpha_range", "95 %"),
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
    Column("measured", "speed\nmeasured", ".2f"),
    Column("measured_range", "95 %"),
    Column("predicted_tokens_per_pass", "a pass\npredicted", ".2f"),
    Column("tokens_per_pass", "a pass\nmeasured", ".2f"),
)
_PREDICTION_NOTE = (
    "accepted: by coupled draws, where there is a draft. c, C: a drafted token, and a pass over "
    "gamma + 1 rows, in plain steps. speed: over plain decoding, predicted by theorem 3.8 of "
    "arXiv:2211.17192, with C in place of 1, and measured. a pass: tokens"
)
_NOT_EXACT = "lenient: not exact; what is accepted does not follow the model's law"


def alpha_result(
    report: AlphaReport,
    arguments: Mapping[str, object],
    *,
    corpus_hash: str | None = None,
    started: str,
    seconds: float,
) -> BenchResult:
    """Return a measurement as a result; `arguments` are the command's settled options.

    `corpus_hash` is that of the file that unigrams and bigrams were fitted on, None without one.
    """
    timing: dict[str, object] = {}
    if report.predictions:
        timing["predictions"] = [asdict(made) for made in report.predictions]
    return BenchResult(
        command="alpha",
        arguments=arguments,
        environment=report.environment,
        model=report.model,
        draft_model=report.draft_model,
        deterministic={
            "corpus": corpus_hash,
            "cells": {_name(setting): _figures(setting) for setting in report.settings},
        },
        timing=timing,
        tables=tuple(_tables(report)),
        items=tuple(
            {
                "id": f"{source.name}, {_name(setting)}",
                "category": _name(setting),
                **source.to_dict(),
            }
            for setting in report.settings
            for source in setting.sources
        ),
        started=started,
        seconds=seconds,
        finished=report.finished,
    )


def _name(setting: Setting) -> str:
    return f"temperature {setting.temperature:g}"


def _figures(setting: Setting) -> dict[str, object]:
    record = setting.to_dict()
    record["sources"] = {source.name: source.to_dict() for source in setting.sources}
    return record


def _tables(report: AlphaReport) -> Iterable[Table]:
    for setting in report.settings:
        title = (
            f"temperature {setting.temperature:g}: {setting.num_tokens} tokens of "
            f"{setting.num_replies} replies"
        )
        lenience = list(setting.sources[0].lenient)
        notes = [_NOT_EXACT] if lenience else []
        if setting.num_tokens < report.num_tokens:
            notes.insert(
                0, f"fewer than {report.num_tokens}: greedy replies to these prompts have no more"
            )
        columns = (
            *_SOURCE,
            *(Column(f"lenient_{share:g}", f"lenient\n{share:g}", ".3f") for share in lenience),
        )
        yield Table(
            f"temperature-{setting.temperature:g}".replace(".", "_"),
            title,
            columns,
            tuple(_rows(setting, lenience)),
            ". ".join(notes),
        )
    if report.predictions:
        rows = tuple(_prediction_row(made) for made in report.predictions)
        yield Table("speeds", "Predicted and measured speed", _PREDICTION, rows, _PREDICTION_NOTE)


def _rows(setting: Setting, lenience: Iterable[float]) -> Iterable[tuple[Cell, ...]]:
    for source in setting.sources:
        low, high = source.alpha.interval
        finite = math.isfinite(low) and math.isfinite(high)
        yield (
            source.name,
            source.known,
            source.alpha.value,
            f"{low:.3f}-{high:.3f}" if finite else None,
            source.coupled.value,
            source.match.value,
            *(source.lenient[share].value for share in lenience),
        )


def _prediction_row(made: Prediction) -> tuple[Cell, ...]:
    found = made.measured
    cells = {**asdict(made), "measured": found.ratio, "measured_range": found.range_text(".2f")}
    return tuple(cells[column.name] for column in _PREDICTION)
