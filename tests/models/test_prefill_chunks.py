"""How a prompt is cut into passes: by the measured pace, so that Ctrl-C is heard soon."""

from types import SimpleNamespace

import mlx.core as mx
import pytest

from akunu_py.models import cached_rows
from akunu_py.models.aligned_rows import AlignedRows
from akunu_py.models.cached_rows import PREFILL_CHUNK, CachedRows


@pytest.fixture
def passes(model):
    """Sizes of the passes over a prompt, on a machine that reads `pace` rows a second."""

    def sizes(rows, length, pace, *, short=True):
        now = [0.0]
        found = []

        def timed(passes, tokens, feed=cached_rows.Passes.feed_apart):
            found.append(tokens.size)
            now[0] += tokens.size / pace
            feed(passes, tokens)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cached_rows.Passes, "feed_apart", timed)
            patch.setattr(cached_rows, "time", SimpleNamespace(perf_counter=lambda: now[0]))
            ids = [number % 90 for number in range(length)]
            list(rows.prefilling(ids, short_passes=short))
        return found

    return sizes


@pytest.mark.parametrize(
    ("pace", "found"),
    [
        (100, [16, 40, 40, 40, 32, 32]),  # 0.4 s at most
        (1, [16, *[8] * 23]),  # no pass is shorter
        (1e9, [16, 184]),
        (float("inf"), [16, 184]),  # a clock that has not moved
    ],
)
def test_passes_take_less_than_half_a_second_where_they_can(model, passes, pace, found):
    assert passes(CachedRows(model), 200, pace) == found


def test_the_pace_is_remembered_and_no_pass_is_longer_than_the_most(model, passes):
    rows = CachedRows(model)
    assert passes(rows, 1200, 1e9) == [16, 400, 392, 392]
    rows.reset()
    assert passes(rows, PREFILL_CHUNK, 1e9) == [PREFILL_CHUNK]


def test_passes_are_about_equal(model, passes):
    rows = CachedRows(model)
    passes(rows, 200, 200)
    rows.reset()
    assert passes(rows, 84, 200) == [48, 36]  # not 80 and 4


def test_the_short_end_of_a_prompt_says_nothing_of_the_pace(model, passes):
    rows = CachedRows(model)
    passes(rows, 200, 100)
    rows.reset()
    assert passes(rows, 12, 1) == [12]
    rows.reset()
    assert passes(rows, 40, 100) == [40]


def test_a_pace_that_varies_a_little_changes_no_size(model, passes):
    rows = CachedRows(model)
    assert 40 in passes(rows, 200, 100)
    for pace in (85, 190):  # 0.47 and 0.21 s a pass
        rows.reset()
        assert passes(rows, 200, pace) == [40] * 5
    rows.reset()
    assert passes(rows, 200, 400) == [40, 160]
    rows.reset()
    assert passes(rows, 800, 100)[:2] == [160, 40]


def test_passes_that_nobody_waits_for_are_long(model, passes):
    assert passes(CachedRows(model), 1200, 10, short=False) == [PREFILL_CHUNK, PREFILL_CHUNK, 176]


def test_a_machine_that_gets_slower_gets_smaller_passes_again(model, passes):
    rows = CachedRows(model)
    assert passes(rows, 528, 1e9) == [16, PREFILL_CHUNK]
    rows.reset()
    assert passes(rows, 1100, 100)[:3] == [368, 40, 40]


def test_reproducible_passes_depend_on_no_clock(model, passes):
    assert passes(AlignedRows(model), 1200, 10) == [PREFILL_CHUNK, PREFILL_CHUNK, 176]


def test_passes_of_any_size_give_the_same_row(model, passes):
    rows, other = CachedRows(model), CachedRows(model)
    passes(rows, 200, 1e9)
    passes(other, 200, 1)
    last = mx.array([3])
    assert mx.allclose(rows.feed(last), other.feed(last), atol=1e-4)
