"""Figures of a comparison: rates, paired ratios, identity and where it ends; and its tables."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from akunu_py.bench.bootstrap import LEAST_SESSIONS, Ratio
from akunu_py.bench.metrics import TimedPair, first_difference, speedup, top2_margin
from akunu_py.bench.tables import Column, Table, ratio_columns, table_of
from akunu_py.bench.workloads import order_of
from akunu_py.lab.compare import akunu_arms, mlx_lm_arms
from akunu_py.lab.compare.arm import Arm, Skipped
from akunu_py.lab.compare.runner import ItemRun

AKUNU, MLX_LM = akunu_arms.PLAIN, mlx_lm_arms.PLAIN

Logits = Callable[[Sequence[int]], NDArray[np.float32]]

Part = Literal["decoding", "prompt", "whole"]
"""Of a reply: what follows its first pass, the prompt as far as the first token, or both."""


_SPEED = (
    Column("arm", "arm"),
    Column("tokens_per_s", "tokens/s", ".1f"),
    *ratio_columns("of_own_plain", "of own\nplain", ".2f"),
    *ratio_columns("of_mlx_lm", "of\nmlx-lm", ".2f"),
)
_PROMPT = (
    Column("arm", "arm"),
    Column("prompt_tokens_per_s", "prompt\ntokens/s", ".1f"),
    *ratio_columns("prompt_of_mlx_lm", "of\nmlx-lm", ".2f"),
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
    "Tokens a second of decoding behind the first pass; ratios are of all tokens over all seconds, "
    f"95 % an interval over sessions, at least {LEAST_SESSIONS} of them. mlx-lm is mlx-lm-plain."
)
_PROMPT_NOTE = (
    "The prompt's tokens over the seconds to the first token of the reply; first: the median of "
    "those. End to end: tokens of the reply over all seconds."
)
_PARTS: dict[str, Part] = {"": "decoding", " prompt": "prompt", " end to end": "whole"}
"""Suffixes of the names of ratios in files, for each part of a reply."""

_OUTPUT_NOTE = (
    "Replies that are its own plain arm's, and akunu-plain's, of those both gave, and the largest "
    "margin of akunu's two highest logits where one parts."
)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two replies part.

    Attributes:
        index: of the first generated token that differs; the shorter reply's length where the
            other begins with all of it.
        margin: between akunu's two highest logits there: near 0 a tie was rounded otherwise.

    """

    index: int
    margin: float


@dataclass(frozen=True, slots=True)
class Identity:
    """How many of an arm's replies are another arm's, of `pairs`; and the differences by item."""

    pairs: int
    differences: dict[str, Difference]

    @property
    def identical(self) -> int:
        """The replies that are the same, token by token."""
        return self.pairs - len(self.differences)

    @property
    def first(self) -> int | None:
        """The first token at which any reply differs."""
        return min((found.index for found in self.differences.values()), default=None)

    @property
    def margin(self) -> float | None:
        """The largest margin where a reply differs."""
        return max((found.margin for found in self.differences.values()), default=None)


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """One arm over the items that it decoded; counts and rates are of what followed the first pass.

    Attributes:
        replies: how many items it decoded.
        tokens: of all replies, first passes included.
        tokens_per_s: None where nothing followed the first passes; so are the other rates.
        first_s: median seconds to the first token.
        prompt_tokens_per_s: tokens of the prompts over the seconds to the first tokens.
        passes: after the first ones.
        drafted: for these.
        accepted: of them.
        digest: SHA-256 over the ids of all replies, item by item.

    """

    replies: int
    tokens: int
    tokens_per_s: float | None
    first_s: float
    prompt_tokens_per_s: float | None
    passes: int
    drafted: int
    accepted: int
    tokens_per_pass: float | None
    digest: str

    @property
    def hit_rate(self) -> float | None:
        """Accepted over drafted tokens; None where none were drafted."""
        return self.accepted / self.drafted if self.drafted else None


def arm_figures(runs: Sequence[ItemRun], arm: str) -> ArmFigures | None:
    """Return an arm's figures over these items; None where it decoded none of them."""
    decoded = [run for run in runs if arm in run.replies]
    replies = [run.replies[arm] for run in decoded]
    if not replies:
        return None
    prompts = sum(len(run.item.prompt) for run in decoded)
    firsts = sum(reply.first_s for reply in replies)
    timed = sum(reply.num_timed for reply in replies)
    seconds = sum(reply.decode_s for reply in replies)
    passes = sum(reply.num_passes for reply in replies)
    digest = hashlib.sha256()
    for run in decoded:
        ids = ",".join(map(str, run.replies[arm].token_ids))
        digest.update(f"{run.item.id}: {ids}\n".encode())
    return ArmFigures(
        replies=len(replies),
        tokens=sum(len(reply.token_ids) for reply in replies),
        tokens_per_s=timed / seconds if timed and seconds > 0 else None,
        first_s=median(reply.first_s for reply in replies),
        prompt_tokens_per_s=prompts / firsts if firsts > 0 else None,
        passes=passes,
        drafted=sum(reply.num_drafted for reply in replies),
        accepted=sum(reply.num_accepted for reply in replies),
        tokens_per_pass=timed / passes if passes else None,
        digest=digest.hexdigest(),
    )


def ratio(runs: Sequence[ItemRun], arm: str, other: str, part: Part = "decoding") -> Ratio:
    """Return an arm's tokens a second over another's, over the items that both decoded.

    Items on which either arm gave nothing to time are left out.
    """
    pairs = []
    for run in runs:
        if arm in run.replies and other in run.replies:
            on, off = _times(run, arm, part), _times(run, other, part)
            if min(*on, *off) > 0:
                pairs.append(TimedPair(run.item.session, *off, *on))
    return speedup(pairs)


def _times(run: ItemRun, arm: str, part: Part) -> tuple[int, float]:
    """Return the tokens of a part of an arm's reply, and the seconds that it took."""
    reply = run.replies[arm]
    if part == "prompt":
        return len(run.item.prompt), reply.first_s
    if part == "decoding":
        return reply.num_timed, reply.decode_s
    return len(reply.token_ids), reply.first_s + reply.decode_s


def identity(runs: Sequence[ItemRun], arm: str, other: str, logits: Logits) -> Identity:
    """Compare an arm's replies with another's; `logits` are akunu's after each token of a text."""
    pairs = 0
    differences: dict[str, Difference] = {}
    for run in runs:
        if arm not in run.replies or other not in run.replies:
            continue
        pairs += 1
        ours, theirs = run.replies[arm].token_ids, run.replies[other].token_ids
        index = first_difference(ours, theirs)
        if index is not None:
            row = logits((*run.item.prompt, *theirs[:index]))[-1]
            differences[run.item.id] = Difference(index, top2_margin(row))
    return Identity(pairs, differences)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Figures of the arms by their names; the arms in their order."""

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
    """Return ratios by "arm/other arm" and what is in `_PARTS`; by arm its rates and program."""
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
    """Return the tables; what was skipped has one of its own if there is any."""
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


def _speed(comparison: Comparison, runs: Sequence[ItemRun]) -> Iterable[dict[str, Any]]:
    for arm in comparison.arms:
        yield {
            "arm": arm.name,
            "tokens_per_s": comparison.figures[arm.name].tokens_per_s,
            "of_own_plain": _over(runs, arm.name, arm.plain),
            "of_mlx_lm": _over(runs, arm.name, MLX_LM),
        }


def _prompt(comparison: Comparison, runs: Sequence[ItemRun]) -> Iterable[dict[str, Any]]:
    for arm in comparison.arms:
        figures = comparison.figures[arm.name]
        yield {
            "arm": arm.name,
            "prompt_tokens_per_s": figures.prompt_tokens_per_s,
            "prompt_of_mlx_lm": _over(runs, arm.name, MLX_LM, "prompt"),
            "first_ms": 1e3 * figures.first_s,
            "end_to_end": _over(runs, arm.name, MLX_LM, "whole"),
        }


def _over(runs: Sequence[ItemRun], arm: str, other: str, part: Part = "decoding") -> Ratio | None:
    """Return an arm's ratio to another one; None to itself."""
    return None if arm == other else ratio(runs, arm, other, part)


def _output(comparison: Comparison) -> Iterable[dict[str, Any]]:
    for arm in comparison.arms:
        figures = comparison.figures[arm.name]
        own, akunu = comparison.own[arm.name], comparison.akunu[arm.name]
        yield {
            "arm": arm.name,
            "tokens_per_pass": figures.tokens_per_pass,
            "hit_rate": figures.hit_rate,
            "as_own_plain": f"{own.identical}/{own.pairs}",
            "own_first_difference": own.first,
            "own_margin": own.margin,
            "as_akunu": f"{akunu.identical}/{akunu.pairs}",
            "akunu_first_difference": akunu.first,
            "akunu_margin": akunu.margin,
        }


def _by_category(comparison: Comparison, runs: Sequence[ItemRun]) -> Table:
    """Return decoding speed over the own plain arm's by category; of plain arms over mlx-lm's."""
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
        # Where all say that there are too few items, files are the place for it.
        detail=all(record["ratio"].ratio is None for record in records),
    )
