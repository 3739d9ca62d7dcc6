"""The report of a comparison: figures for files, tables for people."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from akunu_lab.compare.arm import Skipped
from akunu_lab.compare.mlx_lm_arms import PLAIN as MLX_LM
from akunu_py.bench.bootstrap import LEAST_SESSIONS, Ratio
from akunu_py.bench.figures import ArmFigures, Identity, Logits, Part, arm_figures, identity, ratio
from akunu_py.bench.result_file import Costs, Failure
from akunu_py.bench.rows import plain
from akunu_py.bench.run import Findings
from akunu_py.bench.runner import Arm, ItemReplies, Runs
from akunu_py.bench.tables import Column, Table, ratio_columns, table_of
from akunu_py.bench.workloads import order_of

AKUNU = "akunu-plain"

_SPEED = (
    Column("arm", "arm"),
    *ratio_columns("of_mlx_lm", "of\nmlx-lm", ".2f"),
    *ratio_columns("of_own_plain", "of own\nplain", ".2f"),
    Column("tokens_per_s", "tokens/s", ".1f"),
)
_PROMPT = (
    Column("arm", "arm"),
    *ratio_columns("prompt_of_mlx_lm", "of\nmlx-lm", ".2f"),
    Column("prompt_tokens_per_s", "prompt\ntokens/s", ".1f"),
    Column("first_ms", "first\nms", ".1f"),
    *ratio_columns("end_to_end", "end to end,\nof mlx-lm", ".2f"),
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
    *ratio_columns("ratio", "speed", ".2f"),
    Column("items", "items"),
)
_PROGRAMS = (Column("arm", "arm"), Column("program", "program"), Column("settings", "settings"))
_SKIPPED = (Column("name", "skipped"), Column("reason", "reason"))
_NOTE = (
    "Tokens a second of decoding after the first pass; a ratio is of all tokens / all seconds, "
    f"with a 95 % interval over at least {LEAST_SESSIONS} sessions. mlx-lm is mlx-lm-plain."
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
    own: Mapping[str, Identity]
    akunu: Mapping[str, Identity]


def compare(arms: Sequence[Arm], runs: Sequence[ItemReplies], logits: Logits) -> Comparison:
    """Return the figures of all arms that decoded anything."""
    figures = {arm.name: arm_figures(runs, arm.name) for arm in arms}
    present = tuple(arm for arm in arms if figures[arm.name].replies)
    return Comparison(
        arms=present,
        figures=figures,
        own={arm.name: identity(runs, arm.name, arm.plain, logits) for arm in present},
        akunu={arm.name: identity(runs, arm.name, AKUNU, logits) for arm in present},
    )


def compare_findings(
    comparison: Comparison,
    runs: Runs,
    *,
    skipped: Sequence[Skipped],
    failures: Sequence[Failure],
    costs: Costs | None,
) -> Findings:
    """Return the figures, tables and rows of a comparison; `failures` are those from before it."""
    measured = runs.answered
    return Findings(
        deterministic=deterministic(comparison, measured),
        timing=timing(comparison, measured),
        tables=tables(comparison, skipped, measured),
        items=tuple(
            {"id": run.item.id, "category": run.item.category, **plain(run)} for run in measured
        ),
        failures=(*failures, *runs.failures),
        costs=costs,
        finished=runs.finished,
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
            one = arm_figures(chosen, arm.name)
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

    categories = order_of(run.item.category for run in runs)
    return {
        "total": figures(runs),
        "categories": {
            name: figures([run for run in runs if run.item.category == name]) for name in categories
        },
    }


def timing(comparison: Comparison, runs: Sequence[ItemReplies]) -> dict[str, object]:
    """Return ratios by "arm/other arm" and part; by arm its program, rates and differences."""
    ratios: dict[str, object] = {}
    for arm in comparison.arms:
        for other in dict.fromkeys((arm.plain, MLX_LM)):
            if arm.name == other:
                continue
            for behind, part in _PARTS.items():
                found = ratio(runs, arm.name, other, part)
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
        table_of("speed", "Speed", _SPEED, _speed(comparison, runs), note=_NOTE),
        table_of("prompt", "Prompts", _PROMPT, _prompt(comparison, runs), note=_PROMPT_NOTE),
        table_of("output", "Drafts and output", _OUTPUT, _output(comparison), note=_OUTPUT_NOTE),
        _by_category(comparison, runs),
        table_of(
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
        found.append(table_of("skipped", "Skipped", _SKIPPED, map(asdict, skipped)))
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
    return None if arm == other else ratio(runs, arm, other, part)


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
    for category in order_of(run.item.category for run in runs):
        chosen = [run for run in runs if run.item.category == category]
        for arm in comparison.arms:
            if arm.name == MLX_LM:
                continue
            other = MLX_LM if arm.name == arm.plain else arm.plain
            found = ratio(chosen, arm.name, other)
            records.append({
                "category": category, "arm": arm.name, "other": other, "ratio": found,
                "items": found.pairs,
            })  # fmt: skip
    return table_of(
        "by_category",
        "Speed by category",
        _CATEGORY,
        records,
        note="Arms that draft: of their own plain arm; plain arms: of mlx-lm-plain.",
        # If all cells have too few items, the table is only for files.
        detail=all(record["ratio"].ratio is None for record in records),
    )
