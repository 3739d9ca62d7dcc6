"""Rows of options: every pair is there, and they are few."""

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st
from pairwise import all_pairs, each_value


@given(st.lists(st.integers(1, 5), min_size=2, max_size=5))
def test_every_pair_of_values_is_in_a_row(sizes):
    options = [[(option, value) for value in range(size)] for option, size in enumerate(sizes)]
    rows = all_pairs(*options)
    for first, second in combinations(range(len(sizes)), 2):
        found = {(row[first], row[second]) for row in rows}
        assert found == set(product(options[first], options[second]))
    assert len(set(rows)) == len(rows)


def test_rows_are_few():
    assert len(all_pairs("ab", "ab", "ab")) == 4
    assert len(all_pairs("abc", "abc", "ab", "ab")) <= 11
    assert len(all_pairs(range(10), "abc", "ab", "ab")) <= 31


def test_every_value_is_in_a_fast_row_and_every_combination_in_one():
    options = ("abcde", (1, 2), (True, False, None))
    rows = each_value(*options)
    assert [row.values for row in rows] == list(product(*options))
    fast = [row.values for row in rows if not row.marks]
    assert len(fast) == 5
    for place, values in enumerate(options):
        assert {row[place] for row in fast} == set(values)
