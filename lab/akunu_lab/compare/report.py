"""The report of a comparison: figures for files, tables for people."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from akunu_lab.compare.arm import Skipped
from akunu_lab.compare.mlx_lm_arms import PLAIN as MLX_LM
from akunu_py.api import (
    Arm,
    ArmFigures,
    Column,
    Costs,
    Failure,
    Findings,
    ItemReplies,
    Ratio,
    Table,
)

Part = Literal["decoding", "prompt", "whole"]
Logits = Callable[[Sequence[int]], NDArray[np.float32]]

AKUNU = "akunu-plain"

_SPEED = (
    Column("arm", "arm"),
    *Column.ratio("of_mlx_lm", "of\nmlx-lm", ".2f"),
    *Column.ratio("of_own_plain", "of own\nplain", ".2f"),
    Column("tokens_per_s", "tokens/s", ".1f"),
)
_PROMPT = (
    Column("arm", "arm"),
    *Column.ratio("prompt_of_mlx_lm", "of\nmlx-lm", ".2f"),
    Column("prompt_tokens_per_s", "prompt\ntokens/s", ".1f"),
    Column("first_ms", "first\nms", ".1f"),
    *Column.ratio("end_to_end", "end to end,\nof mlx-lm", ".2f"),
)
_OUTPUT = (
    Column("arm", "arm"),
    Column("tokens_per_pass", "tokens\na pass", ".2f"),
    Column("hit_rate", "hit\nrate", ".0%"),
    Column("as_own_plain", "as own\nplain"),
    Column("own_first_difference", "first\ndiffers at", detail=True),
    Column("own_margin", "largest\nmargin", ".2g"),
    Column("as_akunu", "as akunu\nplain"),
    Column("akunu_first_difference", "first\ndiffers at", detail=True),
    Column("akunu_margin", "largest\nmargin", ".2g"),
)
_CATEGORY = (
    Column("category", "category"),
    Column("arm", "arm"),
    Column("other", "of"),
    *Column.ratio("ratio", "speed", ".2f"),
    Column("items", "items"),
)
_PROGRAMS = (Column("arm", "arm"), Column("program", "program"), Column("settings", "settings"))
_SKIPPED = (Column("name", "skipped"), Column("reason", "reason"))
_NOTE = (
    "Tokens a second of decoding after the first pass; a ratio is of all tokens / all seconds, "
    f"with a 95 % interval over at least {Ratio.LEAST_SESSIONS} sessions. mlx-lm is mlx-lm-plain."
)
_PROMPT_NOTE = (
    "The prompt's tokens / seconds to the first token of the reply; first is the median of these "
    "times. End to end: tokens of the reply / all seconds."
)
_PARTS: dict[str, Part] = {"": "decoding", " prompt": "prompt", " end to end": "whole"}
"""Suffixes of the names of ratios in files, for each part of a reply."""

_OUTPUT_NOTE = (
    "Replies equal to its own plain arm's and to akunu-plain's, of those that both have, and the "
    "largest margin of akunu's two highest logits where a reply diverges."
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Figures of the arms by their names; the arms in their order."""

    arms: tuple[Arm, ...]
    figures: Mapping[str, ArmFigures]
    own: Mapping[str, Any]
    """Agreement with the program's plain arm: see `ArmFigures.identity`."""

    akunu: Mapping[str, Any]
    """Agreement with akunu's plain arm."""


def compare(arms: Sequence[Arm], runs: Sequence[ItemReplies], logits: Logits) -> Comparison:
    """Return the figures of all arms that decoded anything."""
    figures = {arm.name: ArmFigures.of(runs, arm.name) for arm in arms}
    present = tuple(arm for arm in arms if figures[arm.name].replies)
    return Comparison(
        arms=present,
        figures=figures,
        own={arm.name: figures[arm.name].identity(arm.plain, logits) for arm in present},
        akunu={arm.name: figures[arm.name].identity(AKUNU, logits) for arm in present},
    )


def compare_findings(
    comparison: Comparison,
    measured: Sequence[ItemReplies],
    *,
    skipped: Sequence[Skipped],
    failures: Sequence[Failure],
    costs: Costs | None,
    finished: bool,
) -> Findings:
    """Return the figures, tables and rows of a comparison over items that some arm answered."""
    return Findings(
        deterministic=deterministic(comparison, measured),
        timing=timing(comparison),
        tables=tables(comparison, skipped, measured),
        items=tuple(
            {"id": run.item.id, "category": run.item.category, **run.plain()} for run in measured
        ),
        failures=tuple(failures),
        costs=costs,
        finished=finished,
    )


def deterministic(comparison: Comparison, runs: Sequence[ItemReplies]) -> dict[str, object]:
    """Return the deterministic figures, over all items and by category.

    Arms whose drafts depend on times are left out: on a device that rounds passes of different
    sizes differently, even their tokens may vary.
    """
    steady = [arm for arm in comparison.arms if arm.steady]

    def figures(chosen: Sequence[ItemReplies]) -> dict[str, object]:
        found: dict[str, object] = {}
        names = {run.item.id for run in chosen}
        for arm in steady:
            one = ArmFigures.of(chosen, arm.name)
            if not one.replies:
                continue
            stats = one.stats
            differing = comparison.own[arm.name].differences.keys() & names
            theirs = comparison.akunu[arm.name].differences.keys() & names
            found[arm.name] = {
                "replies": len(one.replies),
                "tokens": one.tokens,
                "passes": stats.steps,
                "drafted": stats.drafted,
                "accepted": stats.accepted,
                "tokens_per_pass": stats.tokens_per_pass,
                "hit_rate": stats.hit_rate,
                "differing_from_own_plain": len(differing),
                "differing_from_akunu": len(theirs),
                "token_ids_sha256": one.digest,
            }
        return found

    categories = dict.fromkeys(run.item.category for run in runs)
    return {
        "total": figures(runs),
        "categories": {
            name: figures([run for run in runs if run.item.category == name]) for name in categories
        },
    }


def timing(comparison: Comparison) -> dict[str, object]:
    """Return ratios by "arm/other arm" and part; by arm its program, rates and differences."""
    ratios: dict[str, object] = {}
    for arm in comparison.arms:
        for other in dict.fromkeys((arm.plain, MLX_LM)):
            if arm.name == other:
                continue
            for behind, part in _PARTS.items():
                found = comparison.figures[arm.name].over(other, part)
                ratios[f"{arm.name}/{other}{behind}"] = found
    arms = {}
    for arm in comparison.arms:
        figures = comparison.figures[arm.name]
        arms[arm.name] = {
            "program": arm.version,
            "settings": arm.about,
            "tokens_per_s": figures.tokens_per_s,
            "first_s": figures.first_s,
            "prompt_tokens_per_s": figures.prompt_tokens_per_s,
            "tokens_per_pass": figures.stats.tokens_per_pass,
            "hit_rate": figures.stats.hit_rate,
            "differs_from_own_plain": comparison.own[arm.name].differences,
            "differs_from_akunu": comparison.akunu[arm.name].differences,
        }
    return {"ratios": ratios, "arms": arms}


def tables(
    comparison: Comparison, skipped: Sequence[Skipped], runs: Sequence[ItemReplies]
) -> tuple[Table, ...]:
    """Return the tables; skipped arms have their own table."""
    found = [
        Table.of("speed", "Speed", _SPEED, _speed(comparison, runs), note=_NOTE),
        Table.of("prompt", "Prompts", _PROMPT, _prompt(comparison, runs), note=_PROMPT_NOTE),
        Table.of("output", "Drafts and output", _OUTPUT, _output(comparison), note=_OUTPUT_NOTE),
        _by_category(comparison, runs),
        Table.of(
            "programs",
            "Arms",
            _PROGRAMS,
            (
                {"arm": arm.name, "program": arm.version, "settings": arm.about}
                for arm in comparison.arms
            ),
            detail=True,
        ),
    ]
    if skipped:
        found.append(Table.of("skipped", "Skipped", _SKIPPED, map(asdict, skipped)))
    return tuple(found)


def _speed(comparison: Comparison, runs: Sequence[ItemReplies]) -> Iterable[dict[str, Any]]:
    for arm in comparison.arms:
        yield {
            "arm": arm.name,
            "tokens_per_s": comparison.figures[arm.name].tokens_per_s,
            "of_own_plain": _over(runs, arm.name, arm.plain),
            "of_mlx_lm": _over(runs, arm.name, MLX_LM),
        }


def _prompt(comparison: Comparison, runs: Sequence[ItemReplies]) -> Iterable[dict[str, Any]]:
    for arm in comparison.arms:
        figures = comparison.figures[arm.name]
        yield {
            "arm": arm.name,
            "prompt_tokens_per_s": figures.prompt_tokens_per_s,
            "prompt_of_mlx_lm": _over(runs, arm.name, MLX_LM, "prompt"),
            "first_ms": 1e3 * (figures.first_s or 0.0),
            "end_to_end": _over(runs, arm.name, MLX_LM, "whole"),
        }


def _over(
    runs: Sequence[ItemReplies], arm: str, other: str, part: Part = "decoding"
) -> Ratio | None:
    """Return the ratio of an arm to another; None to itself."""
    return None if arm == other else ArmFigures.of(runs, arm).over(other, part)


def _output(comparison: Comparison) -> Iterable[dict[str, Any]]:
    for arm in comparison.arms:
        figures = comparison.figures[arm.name]
        own, akunu = comparison.own[arm.name], comparison.akunu[arm.name]
        yield {
            "arm": arm.name,
            "tokens_per_pass": figures.stats.tokens_per_pass,
            "hit_rate": figures.stats.hit_rate,
            "as_own_plain": f"{own.identical}/{own.pairs}",
            "own_first_difference": own.first,
            "own_margin": own.margin,
            "as_akunu": f"{akunu.identical}/{akunu.pairs}",
            "akunu_first_difference": akunu.first,
            "akunu_margin": akunu.margin,
        }


def _by_category(comparison: Comparison, runs: Sequence[ItemReplies]) -> Table:
    """Return ratios of decoding speed by category: to the own plain arm, for that to mlx-lm."""
    records: list[dict[str, Any]] = []
    for category in dict.fromkeys(run.item.category for run in runs):
        chosen = [run for run in runs if run.item.category == category]
        for arm in comparison.arms:
            if arm.name == MLX_LM:
                continue
            other = MLX_LM if arm.name == arm.plain else arm.plain
            found = ArmFigures.of(chosen, arm.name).over(other)
            records.append({
                "category": category, "arm": arm.name, "other": other, "ratio": found,
                "items": found.pairs,
            })  # fmt: skip
    return Table.of(
        "by_category",
        "Speed by category",
        _CATEGORY,
        records,
        note="Arms that draft: of their own plain arm; plain arms: of mlx-lm-plain.",
        # If all cells have too few items, the table is only for files.
        detail=all(record["ratio"].ratio is None for record in records),
    )
