"""The figures of benchmarks, one function each; docs/measuring.md has the formulas.

The counts of a reply are a `DecodeStats`, whose rates (fire rate, hit rate, alpha, tokens a pass)
are defined there. A figure that does not exist, such as a share of nothing, is None.
"""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from akunu_py.bench.bootstrap import Ratio, TimedPair
from akunu_py.bench.reply import Pass
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import DecodeStats, Exactness, GenerationConfig

NOT_EXACT = "not exact"
"""Text of a table cell if replies need not be the same, since the rule is not exact."""

LONGEST_LOOP = 32
"""Tokens of the longest block whose repetition counts as a loop."""

LEAST_REPEATS = 3
"""Least number of repetitions in a row that make a block a loop."""


def reply_exactness(config: GenerationConfig) -> Exactness:
    """Return how replies with drafting relate to replies of plain decoding.

    At temperature 0 all probability is on the likeliest token, so rejection sampling gives the same
    reply as plain decoding.
    """
    found = config.exactness
    return "stream" if found == "distribution" and not config.temperature else found


def tokens_per_pass_macro(replies: Iterable[DecodeStats]) -> float | None:
    """Return the mean over replies of tokens / passes; each reply has the same weight.

    `DecodeStats.tokens_per_pass` of the sum of all replies is the micro average.
    """
    rates = [rate for reply in replies if (rate := reply.tokens_per_pass) is not None]
    return mean(rates) if rates else None


def mean_acceptance_vllm(stats: DecodeStats) -> float | None:
    """Return 1 + accepted / passes with a draft: passes without one are left out, as in vLLM."""
    return 1 + stats.accepted / stats.steps_with_draft if stats.steps_with_draft else None


def mean_acceptance_spec_bench(stats: DecodeStats) -> float | None:
    """Return the mean of accepted + 1 over all passes of all replies, as in Spec-Bench.

    It differs from `tokens_per_pass` only for replies that end within the accepted tokens.
    """
    return 1 + stats.accepted / stats.steps if stats.steps else None


def accepted_per_position(stats: DecodeStats) -> tuple[float, ...]:
    """Return, for i = 0, 1, ..., the share of passes with a draft that accepted its token i.

    A draft without a token i counts as not accepted there.
    """
    return tuple(count / stats.steps_with_draft for count in stats.accepted_per_position)


def conditional_acceptance(stats: DecodeStats) -> tuple[float | None, ...]:
    """Return, for i = 0, 1, ..., accepted at i / accepted at i - 1; at 0 / passes with a draft.

    The product of the first i + 1 is entry i of `accepted_per_position`.
    """
    before = (stats.steps_with_draft, *stats.accepted_per_position)
    return tuple(
        count / reached if reached else None
        for count, reached in zip(stats.accepted_per_position, before, strict=False)
    )


def accepted_per_pass(passes: Iterable[Pass]) -> tuple[int, ...]:
    """Return, for k = 0, 1, ..., how many passes with a draft accepted k of its tokens."""
    accepted = [step.accepted for step in passes if step.drafted]
    counts = [0] * (max(accepted, default=-1) + 1)
    for number in accepted:
        counts[number] += 1
    return tuple(counts)


def coverage(stats: DecodeStats) -> float | None:
    """Return accepted / output tokens: the share of the text that came from drafts."""
    return stats.accepted / stats.output_tokens if stats.output_tokens else None


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Return the first index at which two sequences differ, or None for equal ones.

    If one begins with all of the other, that is the length of the shorter one.
    """
    for index, (one, other) in enumerate(zip_longest(left, right)):
        if one != other:
            return index
    return None


def top2_margin(logits: NDArray[np.float32]) -> float:
    """Return the difference of the two highest logits of a row [vocab]."""
    second, first = np.partition(logits, -2)[-2:]
    return float(first) - float(second)


def looping_tokens(tokens: Sequence[int]) -> int:
    """Return how many tokens lie in a block that repeats `LEAST_REPEATS` times in a row or more.

    Blocks have 1 to `LONGEST_LOOP` tokens. All repetitions count, including the first and an
    incomplete last one.
    """
    looping = [False] * len(tokens)
    for size in range(1, LONGEST_LOOP + 1):
        start = size
        for index in range(size, len(tokens) + 1):
            if index < len(tokens) and tokens[index] == tokens[index - size]:
                continue
            # tokens[start:index] equal those `size` before them.
            if index - start >= (LEAST_REPEATS - 1) * size:
                looping[start - size : index] = [True] * (index - start + size)
            start = index + 1
    return sum(looping)


def normalised_speed(replies: Iterable[tuple[str, Sequence[Pass]]], curve: CostCurve) -> Ratio:
    """Return tokens / sum of C(1 + drafted): tokens a plain step of decoding, by the curve alone.

    `replies` are the passes of each, with its session. 1 is plain decoding where C(1) is 1; the
    drafter's own time is not included.
    """
    pairs: list[TimedPair] = []
    for session, passes in replies:
        tokens = sum(step.tokens for step in passes)
        cost = sum(curve.cost(1 + step.drafted) for step in passes)
        # Plain decoding takes a step a token.
        pairs.append((session, tokens, float(tokens), tokens, cost))
    return Ratio.of(pairs)
