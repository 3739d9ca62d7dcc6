"""The result of a comparison: tables for people, figures for files."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from akunu_py.bench.bootstrap import LEAST_SESSIONS
from akunu_py.bench.compare import akunu_arms, mlx_lm_arms
from akunu_py.bench.compare.arm import Arm, Skipped
from akunu_py.bench.compare.figures import (
    ArmFigures,
    Identity,
    Logits,
    arm_figures,
    identity,
    ratio,
)
from akunu_py.bench.compare.runner import ItemRun
from akunu_py.bench.metrics import Speedup
from akunu_py.bench.tables import Cell, Column, Table
from akunu_py.bench.workloads import order_of

AKUNU, MLX_LM = akunu_arms.PLAIN, mlx_lm_arms.PLAIN

_SPEED = (
    Column("arm", "arm"),
    Column("tokens_per_s", "tokens/s", ".1f"),
    Column("of_own_plain", "of own\nplain", ".2f"),
    Column("of_own_plain_range", "95 %"),
    Column("of_own_plain_low", "low", ".2f", detail=True),
    Column("of_own_plain_high", "high", ".2f", detail=True),
    Column("of_mlx_lm", "of\nmlx-lm", ".2f"),
    Column("of_mlx_lm_range", "95 %"),
    Column("of_mlx_lm_low", "low", ".2f", detail=True),
    Column("of_mlx_lm_high", "high", ".2f", detail=True),
    Column("first_ms", "first\nms", ".1f"),
)
_OUTPUT = (
    Column("arm", "arm"),
    Column("tokens_per_pass", "tokens\na pass", ".2f"),
    Column("hit_rate", "hit\nrate", ".0%"),
    Column("end_to_end", "of mlx-lm,\nend to end", ".2f"),
    Column("end_to_end_range", "95 %"),
    Column("end_to_end_low", "low", ".2f", detail=True),
    Column("end_to_end_high", "high", ".2f", detail=True),
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
    Column("ratio", "speed", ".2f"),
    Column("range", "95 %"),
    Column("low", "low", ".2f", detail=True),
    Column("high", "high", ".2f", detail=True),
    Column("items", "items"),
)
_NOTE = (
    "Tokens a second of decoding behind the first pass; ratios are of all tokens over all seconds, "
    f"95 % an interval over sessions, at least {LEAST_SESSIONS} of them; first: to the first "
    "token, median. mlx-lm is mlx-lm-plain."
)
_OUTPUT_NOTE = (
    "Replies that are its own plain arm's, and akunu-plain's, of those both gave, and the largest "
    "margin of akunu's two highest logits where one parts."
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What runs came to, by the arms' names; the arms in their order."""

    arms: tuple[Arm, ...]
    figures: Mapping[str, ArmFigures]
    own: Mapping[str, Identity]
    akunu: Mapping[str, Identity]


def compare(arms: Sequence[Arm], runs: Sequence[ItemRun], logits: Logits) -> Comparison:
    """Return the figures of all arms that decoded anything."""
    figures = {arm.name: arm_figures(runs, arm.name) for arm in arms}
    present = tuple(arm for arm in arms if figures[arm.name] is not None)
    return Comparison(
        arms=present,
        figures={name: found for name, found in figures.items() if found is not None},
        own={arm.name: identity(runs, arm.name, arm.plain, logits) for arm in present},
        akunu={arm.name: identity(runs, arm.name, AKUNU, logits) for arm in present},
    )


def deterministic(comparison: Comparison, runs: Sequence[ItemRun]) -> dict[str, object]:
    """Return what must be the same in every run, in all and by category.

    Of arms whose drafts depend on times there is nothing: on a device that rounds passes of
    several sizes differently, not even their tokens need be the same twice.
    """
    steady = [arm for arm in comparison.arms if arm.steady]

    def figures(chosen: Sequence[ItemRun]) -> dict[str, object]:
        found: dict[str, object] = {}
        names = {run.item.id for run in chosen}
        for arm in steady:
            one = arm_figures(chosen, arm.name)
            if one is None:
                continue
            differing = comparison.own[arm.name].differences.keys() & names
            theirs = comparison.akunu[arm.name].differences.keys() & names
            found[arm.name] = {
                "replies": one.replies,
                "tokens": one.tokens,
                "passes": one.passes,
                "drafted": one.drafted,
                "accepted": one.accepted,
                "tokens_per_pass": one.tokens_per_pass,
                "hit_rate": one.hit_rate,
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


def timing(comparison: Comparison, runs: Sequence[ItemRun]) -> dict[str, object]:
    """Return ratios by "arm/other arm" and "... end to end"; by arm its rates and its program."""
    ratios: dict[str, object] = {}
    for arm in comparison.arms:
        for other in dict.fromkeys((arm.plain, MLX_LM)):
            if arm.name == other:
                continue
            for end_to_end in (False, True):
                name = f"{arm.name}/{other}" + (" end to end" if end_to_end else "")
                ratios[name] = ratio(runs, arm.name, other, end_to_end=end_to_end).to_dict()
    arms = {}
    for arm in comparison.arms:
        figures = comparison.figures[arm.name]
        arms[arm.name] = {
            "program": arm.version,
            "settings": arm.about,
            "tokens_per_s": figures.tokens_per_s,
            "first_s": figures.first_s,
            "tokens_per_pass": figures.tokens_per_pass,
            "hit_rate": figures.hit_rate,
        }
    return {"ratios": ratios, "arms": arms}


def item_records(comparison: Comparison, runs: Sequence[ItemRun]) -> tuple[dict[str, object], ...]:
    """Return an entry an item: what each arm did, and where its reply parts from others."""
    records: list[dict[str, object]] = []
    for run in runs:
        arms: dict[str, object] = {}
        for name, reply in run.replies.items():
            arms[name] = {
                "tokens": len(reply.token_ids),
                "first_tokens": reply.num_first,
                "first_s": reply.first_s,
                "decode_s": reply.decode_s,
                "passes": reply.num_passes,
                "drafted": reply.num_drafted,
                "accepted": reply.num_accepted,
                "differs_from_own_plain": _difference(comparison.own[name], run),
                "differs_from_akunu": _difference(comparison.akunu[name], run),
            }
        records.append(
            {
                "id": run.item.id,
                "category": run.item.category,
                "session": run.item.session,
                "num_prompt_tokens": len(run.item.prompt),
                "arms": arms,
                "errors": dict(run.errors),
            }
        )
    return tuple(records)


def _difference(found: Identity, run: ItemRun) -> dict[str, object] | None:
    difference = found.differences.get(run.item.id)
    return None if difference is None else asdict(difference)


def tables(
    comparison: Comparison, skipped: Sequence[Skipped], runs: Sequence[ItemRun]
) -> tuple[Table, ...]:
    """Return the tables: speed, output, by category, programs, and what was skipped if any was."""
    found = [
        Table("speed", "Speed", _SPEED, _speed_rows(comparison, runs), _NOTE),
        Table("output", "Drafts and output", _OUTPUT, _output_rows(comparison, runs), _OUTPUT_NOTE),
        _by_category(comparison, runs),
        Table(
            "programs",
            "Arms",
            (Column("arm", "arm"), Column("program", "program"), Column("settings", "settings")),
            tuple((arm.name, arm.version, arm.about) for arm in comparison.arms),
            detail=True,
        ),
    ]
    if skipped:
        columns = (Column("arm", "skipped"), Column("reason", "reason"))
        rows = tuple((arm.name, arm.reason) for arm in skipped)
        found.append(Table("skipped", "Skipped", columns, rows))
    return tuple(found)


def _speed_rows(comparison: Comparison, runs: Sequence[ItemRun]) -> tuple[tuple[Cell, ...], ...]:
    rows: list[tuple[Cell, ...]] = []
    for arm in comparison.arms:
        figures = comparison.figures[arm.name]
        own = None if arm.name == arm.plain else ratio(runs, arm.name, arm.plain)
        theirs = None if arm.name == MLX_LM else ratio(runs, arm.name, MLX_LM)
        rows.append(
            (arm.name, figures.tokens_per_s, *_cells(own), *_cells(theirs), 1e3 * figures.first_s)
        )
    return tuple(rows)


def _output_rows(comparison: Comparison, runs: Sequence[ItemRun]) -> tuple[tuple[Cell, ...], ...]:
    rows: list[tuple[Cell, ...]] = []
    for arm in comparison.arms:
        figures = comparison.figures[arm.name]
        whole = None if arm.name == MLX_LM else ratio(runs, arm.name, MLX_LM, end_to_end=True)
        rows.append(
            (
                arm.name,
                figures.tokens_per_pass,
                figures.hit_rate,
                *_cells(whole),
                *_identity_cells(comparison.own[arm.name]),
                *_identity_cells(comparison.akunu[arm.name]),
            )
        )
    return tuple(rows)


def _by_category(comparison: Comparison, runs: Sequence[ItemRun]) -> Table:
    """Return decoding speed over the own plain arm's by category; of plain arms over mlx-lm's."""
    rows: list[tuple[Cell, ...]] = []
    for category in order_of(run.item.category for run in runs):
        chosen = [run for run in runs if run.item.category == category]
        for arm in comparison.arms:
            if arm.name == MLX_LM:
                continue
            other = MLX_LM if arm.name == arm.plain else arm.plain
            found = ratio(chosen, arm.name, other)
            rows.append((category, arm.name, other, *_cells(found), found.pairs))
    return Table(
        "by_category",
        "Speed by category",
        _CATEGORY,
        tuple(rows),
        "Arms that draft: of their own plain arm; plain arms: of mlx-lm-plain.",
        # Where all say that there are too few items, files are the place for it.
        detail=all(row[3] is None for row in rows),
    )


def _cells(found: Speedup | None) -> tuple[Cell, Cell, Cell, Cell]:
    """Return the ratio, its interval for people, and its ends; nothing for an arm by itself."""
    if found is None:
        return (None, None, None, None)
    return (found.ratio, found.range_text(".2f"), found.low, found.high)


def _identity_cells(found: Identity) -> tuple[Cell, Cell, Cell]:
    differences = found.differences.values()
    return (
        f"{found.identical}/{found.pairs}",
        min((difference.index for difference in differences), default=None),
        max((difference.margin for difference in differences), default=None),
    )
