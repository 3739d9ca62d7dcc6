"""Figures of arms over items: rates, paired ratios, and where replies differ."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from akunu_py.bench.bootstrap import Ratio
from akunu_py.bench.metrics import TimedPair, first_difference, speedup, top2_margin
from akunu_py.bench.rows import Row
from akunu_py.lab.compare.runner import ItemRun

Logits = Callable[[Sequence[int]], NDArray[np.float32]]

Part = Literal["decoding", "prompt", "whole"]
"""Part of a reply: after its first pass, the prompt up to the first token, or both."""


class Difference(Row, frozen=True):
    """Where two replies diverge.

    Attributes:
        index: of the first generated token that differs; the shorter reply's length if the other
            begins with all of it.
        margin: difference of akunu's two highest logits there; near 0, a tie was rounded
            differently.

    """

    index: int
    margin: float


@dataclass(frozen=True, slots=True)
class Identity:
    """Agreement of two arms over `pairs` replies, with the differences by item."""

    pairs: int
    differences: dict[str, Difference]

    @property
    def identical(self) -> int:
        """The number of replies with the same tokens."""
        return self.pairs - len(self.differences)

    @property
    def first(self) -> int | None:
        """The smallest index at which a reply differs."""
        return min((found.index for found in self.differences.values()), default=None)

    @property
    def margin(self) -> float | None:
        """The largest margin at a difference."""
        return max((found.margin for found in self.differences.values()), default=None)


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """One arm over the items that it decoded; counts and rates begin after the first pass.

    Attributes:
        replies: number of items that it decoded.
        tokens: of all replies, first passes included.
        tokens_per_s: None if nothing followed the first passes, as for the other rates.
        first_s: median seconds to the first token.
        prompt_tokens_per_s: tokens of the prompts / seconds to the first tokens.
        passes: passes after the first ones.
        drafted: tokens drafted for these passes.
        accepted: accepted ones of these tokens.
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
        """Accepted / drafted tokens; None if nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None


def arm_figures(runs: Sequence[ItemRun], arm: str) -> ArmFigures | None:
    """Return an arm's figures over these items; None if it decoded none of them."""
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
    """Return the ratio of two arms' tokens a second over the items that both decoded.

    Items on which an arm has nothing to time are left out.
    """
    pairs = []
    for run in runs:
        if arm in run.replies and other in run.replies:
            on, off = _times(run, arm, part), _times(run, other, part)
            if min(*on, *off) > 0:
                pairs.append(TimedPair(run.item.session, *off, *on))
    return speedup(pairs)


def _times(run: ItemRun, arm: str, part: Part) -> tuple[int, float]:
    """Return the tokens of a part of an arm's reply, and its seconds."""
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
