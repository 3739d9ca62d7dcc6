"""Every definition of docs/measuring.md, worked out by hand for a few steps written down here."""

import numpy as np
import pytest

from akunu_py import Engine
from akunu_py.bench import metrics
from akunu_py.bench.bootstrap import Ratio
from akunu_py.bench.workloads import Prompt
from akunu_py.decoding.stats import StatsRecorder
from akunu_py.values.types import GenerationConfig, StepStats

# Two replies, a line a pass: drafted, tested, accepted, output.
#   reply one: 4 drafted, 2 accepted, the third rejected (3 tested), 3 out
#              nothing drafted, 1 out
#              2 drafted, both accepted, 3 out
#   reply two: 3 drafted, the first rejected, 1 out
#              4 drafted, all accepted, the reply ends with the second of them: 2 count, 2 out
ONE = ((4, 3, 2, 3), (0, 0, 0, 1), (2, 2, 2, 3))
TWO = ((3, 1, 0, 1), (4, 2, 2, 2))


def stats_of(steps):
    recorder = StatsRecorder()
    for drafted, tested, accepted, output in steps:
        recorder.add(
            StepStats("x", drafted, tested, accepted, output, "bonus", 0.0, 0.0, 0.0)
        )  # fmt: skip
    return recorder.stats


BOTH = stats_of(ONE) + stats_of(TWO)


def test_tokens_per_pass():
    assert BOTH.tokens_per_pass == 10 / 5


def test_rates():
    assert BOTH.fire_rate == 4 / 5
    assert BOTH.hit_rate == 6 / 13
    assert BOTH.alpha == 6 / 8


@pytest.mark.parametrize(
    ("left", "right", "index"),
    [
        ((), (), None),
        ((1, 2), (1, 2), None),
        ((1, 2), (3, 2), 0),
        ((1, 2, 3), (1, 2, 4), 2),
        ((1, 2), (1, 2, 3), 2),
        ((1, 2), (), 0),
    ],
)
def test_first_difference(left, right, index):
    assert metrics.first_difference(left, right) == index
    assert metrics.first_difference(right, left) == index


def test_top2_margin():
    assert metrics.top2_margin(np.array([0.5, 3.0, -1.0, 2.25], dtype=np.float32)) == 0.75
    assert metrics.top2_margin(np.array([1.0, 1.0], dtype=np.float32)) == 0


@pytest.mark.parametrize(
    ("tokens", "looping"),
    [
        ([], 0),
        ([1, 2, 3, 4], 0),
        ([7, 7], 0),
        ([7, 7, 7], 3),
        ([1, 7, 7, 7, 7, 2], 4),
        # Twice is no loop, three times is, and what was cut off belongs to it.
        ([1, 2, 3, 1, 2, 3], 0),
        ([9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 9], 9),
        ([9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2], 11),
        # Two loops, one after the other.
        ([1, 1, 1, 5, 2, 3, 2, 3, 2, 3], 9),
        # A block of 32 counts, one of 33 does not.
        (list(range(32)) * 3, 96),
        (list(range(33)) * 3, 0),
        # A token lies in two loops and counts once.
        ([0, 0, 0, 1] * 3, 12),
    ],
)
def test_looping_tokens(tokens, looping):
    assert metrics.looping_tokens(tokens) == looping
    assert metrics.looping_tokens(tokens[::-1]) == looping


# One by one 2.4 and 0.72 times as fast, three items each.
PAIRS = [
    (name, *numbers)
    for name, numbers in zip("abcdef", [(10, 2.0, 12, 1.0), (20, 4.0, 18, 5.0)] * 3, strict=True)
]


def test_speedup():
    found = Ratio.of(PAIRS)
    # 90 tokens in 18 s without, 90 in 18 s with.
    assert found.ratio == 1
    assert found.pairs == 6
    # No resample is faster than the fastest item, nor slower than the slowest one.
    assert 18 / 5 / 5 < found.low < found.ratio < found.high < 12 / 5
    assert found.range_text(".2f") == f"{found.low:.2f}-{found.high:.2f}"


def test_a_median_is_not_moved_by_one_stall():
    found = Ratio.of(PAIRS, median=True)
    assert found.ratio == pytest.approx((12 / 5 + 18 / 5 / 5) / 2)
    assert (found.low, found.high, found.pairs) == (pytest.approx(0.72), pytest.approx(2.4), 6)
    stalled = [*PAIRS, ("g", 10, 2.0, 12, 1.0), ("h", 10, 2.0, 12, 1000.0)]
    assert Ratio.of(stalled, median=True).ratio == pytest.approx(found.ratio)


@pytest.mark.parametrize("median", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_no_ratio_without_an_interval(median, count):
    """As observed: a number from one item, and an interval from two."""
    found = Ratio.of(PAIRS[:count], median=median)
    assert found == Ratio(None, None, None, count)
    assert found.range_text(".2f") == "not enough items"
    assert Ratio.of(PAIRS[:5], median=median).ratio is not None


@pytest.mark.parametrize("median", [False, True])
def test_turns_of_one_session_are_resampled_together(median):
    turns = [(10, 1.0, 10, 0.5), (10, 1.0, 10, 2.0)]
    assert Ratio.of([("a", *turn) for turn in turns * 5], median=median).ratio is None
    found = Ratio.of([(name, *turn) for name in "abcde" for turn in turns], median=median)
    # Each resample holds both turns of each session drawn: nothing varies.
    assert (found.low, found.high) == (pytest.approx(found.ratio), pytest.approx(found.ratio))
    assert found.pairs == 10


def test_no_speedup_where_no_time_passed():
    nothing = [(name, 1, 0.0, 1, 0.0) for name in "abcde"]
    assert Ratio.of(nothing) == Ratio(None, None, None, 0)


@pytest.mark.slow
def test_figures_of_a_real_reply_agree_with_its_step_trace(default_model):
    """From the tokens of the trace alone: what was drafted, where the reply went, what was kept."""
    prompt = Prompt.load(["boilerplate"])[0]
    config = GenerationConfig(
        max_tokens=64, temperature=0.0, drafter="ngram", num_draft_tokens=4, draft_budget="always"
    )
    with Engine.load(default_model) as engine:
        ids = engine.tokenizer.encode(prompt.last_user_text)
        stream = engine.stream(ids, config)
        events = list(stream)
    result = stream.result
    reply = list(result.token_ids)
    passes, with_draft, accepted, agreed = 0, 0, 0, {}
    for event in events:
        detail = event.step.detail
        place = detail.position - len(ids)
        drafted = [token.token for token in detail.drafted]
        # A chain's tokens are accepted as long as they are what the reply goes on with.
        kept = 0
        while kept < len(drafted) and reply[place + kept : place + kept + 1] == [drafted[kept]]:
            kept += 1
        passes += 1
        with_draft += bool(drafted)
        accepted += kept
        for position in range(kept):
            agreed[position] = agreed.get(position, 0) + 1
    assert with_draft > 5
    stats = result.stats
    assert stats.tokens_per_pass == len(reply) / passes
    assert (stats.accepted, stats.steps_with_draft) == (accepted, with_draft)
    counts = [agreed.get(i, 0) for i in range(len(stats.accepted_per_position))]
    assert list(stats.accepted_per_position) == counts
