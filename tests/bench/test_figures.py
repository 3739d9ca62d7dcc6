"""Figures of arms: what is counted, what is timed, and where replies differ."""

import numpy as np
import pytest
from bench.fake_arms import runs_of
from msgspec.structs import replace

from akunu_py.bench.bootstrap import Ratio
from akunu_py.bench.figures import ArmFigures
from akunu_py.bench.reply import MeasuredReply
from akunu_py.values.types import DecodeStats


def reply(tokens, *, first=1, first_s=1.0, decode_s=2.0, **more):
    """A reply; `more` are counts of its passes, or fields of the row."""
    counts = {name: more.pop(name) for name in ("steps", "drafted", "accepted") if name in more}
    counts = {"steps": len(tokens), "output_tokens": len(tokens), **counts}
    return MeasuredReply(tuple(tokens), first, first_s, decode_s, DecodeStats(**counts), **more)


def logits(token_ids):
    """Margins tell which text was asked for: its length over ten."""
    rows = np.zeros((len(token_ids), 9), dtype=np.float32)
    rows[:, 3] = 1 + np.arange(1, len(token_ids) + 1) / 10
    rows[:, 4] = 1
    return rows


def test_speeds_leave_the_first_pass_out_and_counts_do_not():
    found = ArmFigures.of(
        runs_of(
            {"a": reply((1, 2, 3, 4), decode_s=2.0, steps=3, drafted=6, accepted=1, target_s=1.5,
                        peak_memory_bytes=7)},
            {"a": reply((1, 2, 3), first=2, first_s=3.0, decode_s=2.0, steps=2, drafted=2,
                        target_s=1.5, peak_memory_bytes=9)},
            {},
        ),
        "a",
    )  # fmt: skip
    assert (len(found.replies), found.tokens, found.stats.steps) == (2, 7, 5)
    assert found.tokens_per_s == 1.0
    assert found.stats.tokens_per_pass == pytest.approx(7 / 5)
    assert found.stats.hit_rate == 1 / 8
    assert found.first_s == 2.0
    # Two prompts of three tokens, in 1 and 3 seconds.
    assert found.prompt_tokens_per_s == 6 / 4
    assert found.outside == 1 / 4
    assert found.peak_memory_bytes == 9
    nothing = ArmFigures.of(runs_of({}), "a")
    assert nothing.tokens_per_s is nothing.first_s is nothing.looping_share is None
    # One reply without the time of its passes, and nothing is said of any.
    runs = runs_of({"a": reply((1, 2), target_s=1.0)}, {"a": reply((1, 2))})
    assert ArmFigures.of(runs, "a").outside is None


def test_the_digest_is_of_ids_and_items():
    def digest(*replies):
        return ArmFigures.of(runs_of(*({"a": reply(ids)} for ids in replies)), "a").digest

    assert digest((1, 2), (3, 4)) == digest((1, 2), (3, 4))
    assert len({digest((1, 2), (3,)), digest((1,), (2, 3)), digest((12,), (3,))}) == 3
    one, two = runs_of({"a": reply((1,))}, {"a": reply((1,))})
    assert ArmFigures.of([one], "a").digest != ArmFigures.of([two], "a").digest


def test_ratios_are_over_what_both_answered():
    runs = runs_of(
        *[{"a": reply((1, 2, 3), decode_s=1.0), "b": reply((1, 2, 3), decode_s=2.0)}] * 3,
        *[{"a": reply((1, 2, 3), decode_s=1.0), "b": reply((1, 2, 3), decode_s=4.0)}] * 3,
        {"a": reply((1, 2, 3), decode_s=100.0)},
        {"a": reply((1,), decode_s=0.0), "b": reply((1, 2), decode_s=1.0)},
    )
    decoding = ArmFigures.of(runs, "a").over("b")
    assert decoding.ratio == pytest.approx((12 / 6) / (12 / 18))
    assert decoding.pairs == 6
    assert 2 <= decoding.low < 3 < decoding.high <= 4
    whole = ArmFigures.of(runs, "a").over("b", "whole")
    assert whole.pairs == 7
    assert whole.ratio == pytest.approx((19 / 13) / (20 / 26))
    prompt = ArmFigures.of(
        runs_of(*[{"a": reply((1,)), "b": reply((1,), first_s=3.0)}] * 5), "a"
    ).over("b", "prompt")
    assert (prompt.ratio, prompt.pairs) == (pytest.approx(3.0), 5)
    assert ArmFigures.of(runs, "a").over("c").ratio is None
    # Two sessions give neither a ratio nor an interval, however many items they have.
    assert ArmFigures.of(runs[2:4], "a").over("b") == Ratio(None, None, None, 2)
    talk = [replace(run, item=replace(run.item, session="talk")) for run in runs[:6]]
    assert ArmFigures.of(talk, "a").over("b") == Ratio(None, None, None, 6)


def test_identity_and_the_margin_where_it_ends():
    runs = runs_of(
        {"a": reply((1, 2, 3)), "b": reply((1, 2, 3))},
        {"a": reply((1, 7, 3)), "b": reply((1, 2, 3))},
        {"a": reply((1,)), "b": reply((1, 2))},
        {"a": reply((1,))},
    )
    found = ArmFigures.of(runs, "a").identity("b", logits)
    assert (found.identical, found.pairs, found.first) == (1, 3, 1)
    assert {name: one.index for name, one in found.differences.items()} == {"i2": 1, "i3": 1}
    # Asked for after the prompt of three tokens and the one that both have.
    assert found.differences["i2"].margin == pytest.approx(0.4)
    assert ArmFigures.of(runs, "a").identity("b").margin is None
    # Of several differences the first place and the largest margin.
    several = runs_of(
        {"a": reply((7,)), "b": reply((1,))}, {"a": reply((1, 2, 7)), "b": reply((1, 2, 3))}
    )
    found = ArmFigures.of(several, "a").identity("b", logits)
    assert (found.first, found.margin) == (0, pytest.approx(0.5))
