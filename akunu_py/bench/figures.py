"""Figures of arms over the items that they answered: rates, paired ratios, differences."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from akunu_py.bench import metrics
from akunu_py.bench.bootstrap import Ratio
from akunu_py.bench.reply import MeasuredReply, Pass
from akunu_py.bench.rows import Count, Row
from akunu_py.bench.runner import ItemReplies
from akunu_py.values.types import DecodeStats

Logits = Callable[[Sequence[int]], NDArray[np.float32]]
"""Ids of a text -> a model's logits after each of them."""

Part = Literal["decoding", "processor", "prompt", "whole"]
"""Part of a reply: behind its first pass, by the clock or in processor time, the prompt up to the
first token, or both."""


class Difference(Row, frozen=True):
    """Where two replies diverge.

    `index` is that of the first generated token that differs; the shorter reply's length if the
    other begins with all of it. `margin` is the difference of the model's two highest logits there.
    Near 0, passes of different sizes rounded a tie differently; far from 0, something is wrong. It
    is known only at temperature 0, where the logits alone decide.
    """

    index: Count
    margin: float | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """Agreement of two arms over `pairs` replies, with the differences by item."""

    pairs: int
    differences: Mapping[str, Difference] = field(default_factory=dict)

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
        known = [found.margin for found in self.differences.values() if found.margin is not None]
        return max(known, default=None)


@dataclass(frozen=True)
class ArmFigures:
    """One arm over the items that it answered; rates are over all their tokens and passes.

    Speeds of decoding begin behind the first pass of a reply, counts do not leave it out.
    """

    runs: tuple[ItemReplies, ...]
    arm: str

    @classmethod
    def of(cls, runs: Iterable[ItemReplies], arm: str) -> Self:
        """Return an arm's figures over those of the items that it answered."""
        return cls(tuple(run for run in runs if arm in run.replies), arm)

    @cached_property
    def replies(self) -> tuple[MeasuredReply, ...]:
        return tuple(run.replies[self.arm] for run in self.runs)

    @cached_property
    def stats(self) -> DecodeStats:
        """The sum over the replies."""
        return sum((reply.stats for reply in self.replies), DecodeStats())

    @cached_property
    def passes(self) -> tuple[Pass, ...]:
        return tuple(done for reply in self.replies for done in reply.passes)

    @property
    def tokens(self) -> int:
        """Tokens of the replies, those of first passes included."""
        return sum(len(reply.token_ids) for reply in self.replies)

    @property
    def decode_s(self) -> float:
        return sum(reply.decode_s for reply in self.replies)

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens behind the first passes / seconds; None if there are none."""
        timed = sum(reply.num_timed for reply in self.replies)
        return timed / self.decode_s if timed and self.decode_s > 0 else None

    @property
    def tokens_per_cpu_s(self) -> float | None:
        """The same tokens / seconds of processor time; None where that is unknown."""
        cpu_s = sum(reply.cpu_s or 0.0 for reply in self.replies)
        return sum(reply.num_timed for reply in self.replies) / cpu_s if cpu_s > 0 else None

    @property
    def first_s(self) -> float | None:
        """The median time to the first token; None without a reply."""
        return median(reply.first_s for reply in self.replies) if self.replies else None

    @property
    def prompt_tokens_per_s(self) -> float | None:
        """Tokens of the prompts / seconds to the first tokens."""
        seconds = sum(reply.first_s for reply in self.replies)
        return sum(len(run.item.prompt) for run in self.runs) / seconds if seconds > 0 else None

    @property
    def outside(self) -> float | None:
        """The share of the time of decoding that is not in passes; None where that is unknown."""
        known = [reply.target_s for reply in self.replies if reply.target_s is not None]
        if len(known) < len(self.replies) or self.decode_s <= 0:
            return None
        return 1 - sum(known) / self.decode_s

    @property
    def peak_memory_bytes(self) -> int | None:
        return max((reply.peak_memory_bytes or 0 for reply in self.replies), default=0) or None

    @property
    def looping_share(self) -> float | None:
        """The share of tokens in loops."""
        looping = sum(metrics.looping_tokens(reply.token_ids) for reply in self.replies)
        return looping / self.tokens if self.tokens else None

    @property
    def digest(self) -> str:
        """SHA-256 over the ids of all replies, item by item."""
        digest = hashlib.sha256()
        for run, reply in zip(self.runs, self.replies, strict=True):
            ids = ",".join(map(str, reply.token_ids))
            digest.update(f"{run.item.id}: {ids}\n".encode())
        return digest.hexdigest()

    def over(self, other: str, part: Part = "decoding", *, median: bool = False) -> Ratio:
        """Return the ratio of its tokens a second to another arm's, over items that both answered.

        It is of all tokens, or the `median` of the items' ratios. Items on which an arm has nothing
        to time are left out.
        """
        return Ratio.of(
            (
                (run.item.session, *_times(run, other, part), *_times(run, self.arm, part))
                for run in self.runs
                if other in run.replies
            ),
            median=median,
        )

    def identity(self, other: str, logits: Logits | None = None) -> Identity:
        """Compare its replies with another arm's, over items that both answered.

        `logits` are the model's after each token of a text; without them margins are unknown.
        """
        pairs = 0
        differences: dict[str, Difference] = {}
        for run in self.runs:
            if other not in run.replies:
                continue
            pairs += 1
            theirs = run.replies[other].token_ids
            index = metrics.first_difference(run.replies[self.arm].token_ids, theirs)
            if index is not None:
                margin = None
                if logits is not None:
                    margin = metrics.top2_margin(logits((*run.item.prompt, *theirs[:index]))[-1])
                differences[run.item.id] = Difference(index, margin)
        return Identity(pairs, differences)


def _times(run: ItemReplies, arm: str, part: Part) -> tuple[int, float]:
    """Return the tokens of a part of an arm's reply, and its seconds."""
    reply = run.replies[arm]
    if part == "prompt":
        return len(run.item.prompt), reply.first_s
    if part == "decoding":
        return reply.num_timed, reply.decode_s
    if part == "processor":
        return reply.num_timed, reply.cpu_s or 0.0
    return len(reply.token_ids), reply.whole_s
