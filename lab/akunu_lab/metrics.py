"""Figures of studies, one function each; lab/docs/methods.md has the formulas.

The counts of a reply are a `DecodeStats`. A figure that does not exist, such as a share of nothing,
is None.
"""

from collections.abc import Callable, Iterable
from statistics import mean

from akunu_py.api import DecodeStats, MeasuredReply, Ratio


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


def accepted_per_pass(replies: Iterable[MeasuredReply]) -> tuple[int, ...]:
    """Return, for k = 0, 1, ..., how many passes with a draft accepted k of its tokens."""
    accepted = [step.accepted for reply in replies for step in reply.passes if step.drafted]
    counts = [0] * (max(accepted, default=-1) + 1)
    for number in accepted:
        counts[number] += 1
    return tuple(counts)


def coverage(stats: DecodeStats) -> float | None:
    """Return accepted / output tokens: the share of the text that came from drafts."""
    return stats.accepted / stats.output_tokens if stats.output_tokens else None


def normalised_speed(
    replies: Iterable[tuple[str, MeasuredReply]], cost: Callable[[int], float]
) -> Ratio:
    """Return tokens / sum of C(1 + drafted): tokens a plain step of decoding, by the curve alone.

    `replies` are with their sessions, `cost` is C. 1 is plain decoding where C(1) is 1; the
    drafter's own time is not included.
    """
    pairs: list[tuple[str, float, float, float, float]] = []
    for session, reply in replies:
        tokens = sum(step.tokens for step in reply.passes)
        taken = sum(cost(1 + step.drafted) for step in reply.passes)
        # Plain decoding takes a step a token.
        pairs.append((session, tokens, tokens, tokens, taken))
    return Ratio.of(pairs)


def is_better(ratio: Ratio) -> bool:
    """Return whether the whole interval is above 1."""
    return ratio.low is not None and ratio.low > 1


def change_text(ratio: Ratio) -> str:
    """Return the difference from 1 of a ratio that exists: "+3.0% (-1.0% to +7.0%)"."""
    assert ratio.ratio is not None  # noqa: S101
    text = f"{ratio.ratio - 1:+.1%}"
    if ratio.low is None or ratio.high is None:
        return f"{text} (not enough items for an interval)"
    return f"{text} ({ratio.low - 1:+.1%} to {ratio.high - 1:+.1%})"
