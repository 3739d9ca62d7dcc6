"""Stop texts across pieces, and end ids inside a step."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from akunu_py.decoding.stats import cut_step
from akunu_py.decoding.stopping import (
    LONGEST_CYCLE,
    REPEATED_CYCLES,
    REPEATED_TOKENS,
    LoopDetector,
    StopTexts,
    cut_at_end,
)
from akunu_py.values.types import StepStats


def first_stop(text, stops):
    """Where the first complete stop text begins, and it; by looking at each beginning of the text."""
    for end in range(1, len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return end - len(stop), stop
    return len(text), None


@given(
    st.lists(st.text("abc", max_size=4), max_size=12),
    st.lists(st.text("abc", min_size=1, max_size=5), max_size=6),
)
@example(["abc"], ["abcd", "bc"])
@example(["ababa", "c"], ["abac", "babc"])
@example(["a <", "/en", "x", "</end> tail"], ["</end>"])
@example(["xab"], ["b", "a"])
@example([*"</end>"], ["another", "</end>"])
@example(["abc"], [])
def test_texts_in_any_pieces_end_where_the_definition_says(pieces, stops):
    filter_ = StopTexts(stops)
    shown, stopped = "", False
    for piece in pieces:
        text, stopped = filter_.feed(piece)
        shown += text
        # No less is shown than can be: what is held back begins a stop text.
        held = "".join(pieces)[len(shown) :][: filter_.held]
        assert not held or any(stop.startswith(held) for stop in stops)
        if stopped:
            break
    if not stopped:
        shown += filter_.finish()
    whole = "".join(pieces)
    end, reached = first_stop(whole, stops)
    assert (shown, stopped, filter_.reached) == (whole[:end], reached is not None, reached)


class CountedSteps(dict):
    """The steps of an automaton; counts how often one is looked for."""

    looked = 0

    def __contains__(self, key):
        self.looked += 1
        return super().__contains__(key)

    def get(self, key, default=None):
        self.looked += 1
        return super().get(key, default)


@pytest.mark.parametrize("count", [1, 64])
def test_the_work_for_a_text_does_not_grow_with_the_number_of_stop_texts(count):
    text = "abababac" * 500
    stops = StopTexts(["ab" * 100 + chr(0x100 + number) for number in range(count)])
    stops._next = CountedSteps(stops._next)
    assert "".join(stops.feed(character)[0] for character in text) + stops.finish() == text
    assert len(text) <= stops._next.looked <= 3 * len(text)


def test_cut_at_end():
    assert cut_at_end((1, 2, 3), {2, 3}) == ((1, 2), "stop")
    assert cut_at_end((1, 2, 3), ()) == ((1, 2, 3), None)


def loop_end(tokens):
    """Where a loop is complete, from its definition; None where there is none."""
    for end in range(1, len(tokens) + 1):
        for period in range(1, min(LONGEST_CYCLE, end) + 1):
            repeated = max(REPEATED_TOKENS, REPEATED_CYCLES * period)
            first = end - repeated - period
            if first >= 0 and tokens[first : end - period] == tokens[first + period : end]:
                return end
    return None


@pytest.mark.parametrize("seed", range(6))
def test_a_loop_ends_where_its_definition_says(seed):
    rng = random.Random(seed)
    cycle = [rng.randrange(9) for _ in range(rng.choice([1, 2, 7, 31, 32, 33, 60]))]
    tokens = [rng.randrange(9) for _ in range(40)] + cycle * 150
    loops = LoopDetector()
    found = next(end for end, token in enumerate(tokens, 1) if loops.feed(token))
    assert found == loop_end(tokens[:found])
    assert found > 40 + REPEATED_TOKENS - 8


def test_the_longest_cycle():
    for period in (LONGEST_CYCLE, LONGEST_CYCLE + 1):
        loops = LoopDetector()
        tokens = list(range(period)) * (REPEATED_CYCLES + 1)
        found = [loops.feed(token) for token in tokens]
        assert found[-1] == (period == LONGEST_CYCLE)
        assert not any(found[:-1])


def test_lists_and_tables_are_no_loops():
    numbered = [token for row in range(100) for token in (7, row, 8, 9, 10)]
    ruled = ([5] * 60 + [6]) * 3
    blank = [11] * REPEATED_TOKENS
    for tokens in (numbered, ruled, blank):
        loops = LoopDetector()
        assert True not in [loops.feed(token) for token in tokens]


def test_a_loop_is_cut_in_the_midst_of_a_step():
    loops = LoopDetector()
    assert cut_at_end([3] * REPEATED_TOKENS, (), loops) == ((3,) * REPEATED_TOKENS, None)
    assert cut_at_end((3, 3, 3), (), loops) == ((3,), "loop")
    assert cut_at_end([3] * 500, {3}, LoopDetector()) == ((3,), "stop")


def test_a_cut_step_counts_what_the_reply_kept():
    step = StepStats("x", 4, 4, 3, 4, "recovered", 0.0, 0.0, 0.0)
    cut = cut_step(step, 2)
    assert (cut.num_accepted_tokens, cut.num_tested_tokens, cut.num_output_tokens) == (2, 2, 2)
    assert cut_step(step, 4) is step
